"""A chooser of methods for a page: the answers of `fedrepro recommend`, computed beforehand.

A page cannot compute a test of scores. So each scenario of the leaderboard is asked for as if it
were the reader's own, under every constraint that excludes a method; the page's script finds the
nearest one by the rule of `recommended.distance`.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from fedrepro.numbers.leaderboard import ALL, SEVERAL, STARTS
from fedrepro.numbers.recommendation import (
    IID_ALPHA,
    UNLIKE,
    RecommendedMethod,
    Situation,
    case_skew,
    models_suffice,
    recommend_from,
)
from fedrepro.record.site.report_data import BoardView

# basis of an answer: columns of the leaderboard, and metrics of its scenarios
READ = (
    *("starts", "data", "class", "method", "exchanges", "networks", "bytes_up", "sees"),
    *("clients_also_send", "computed"),
)
MEASURED = ("score", "accuracy", "bytes_up", "exchanges", "networks")
LINES = ("best client", "FedAvg")  # shown with every choice


def choices(shown: BoardView) -> dict[str, Any]:
    """Return the data of the chooser, for json.

    exchanges: how often clients answer, each a number from which more methods can be taken.
    places: number of clients, skew, how clients start, the scenarios, and answers by `models only`
    (no, yes) and by exchanges: class, method, score, ends, accuracy in percent, bytes as a multiple
    of the models, exchanges. lines: the numbers of the methods to compare with, in the same order.
    """
    table = shown.table[[name for name in READ if name in shown.table]]
    cases = shown.scenarios[shown.scenarios["metric"].isin(MEASURED)]
    cases = cases[cases["case"] != ALL].assign(skew=cases["case"].astype(str).map(case_skew))
    asked = sorted({max(1, math.ceil(value)) for value in table["exchanges"].dropna()})
    groups = cases.groupby(["starts", "clients", "skew"], sort=False)
    places = [_answers(table, rows, asked, shown.key) for _, rows in groups]
    places.sort(key=lambda place: (STARTS.index(place["starts"]), place["clients"], place["skew"]))
    rule = {"iid": IID_ALPHA, "unlike": UNLIKE, "several": SEVERAL}
    return {**rule, "starts": list(STARTS), "exchanges": asked, "places": places}


def _answers(table: Any, cases: Any, asked: list[int], board: str) -> dict[str, Any]:
    """Return the recommendations for a client whose own setting is that of these scenarios."""
    first = cases.iloc[0]
    place = {"starts": first["starts"], "clients": int(first["clients"]), "skew": first["skew"]}
    one_start, found = first["starts"] == STARTS[0], {}
    answers: list[list[Any]] = [[], []]
    for only_models, exchanges in itertools.product((False, True), asked):
        key = frozenset(  # the same methods give the same answer
            row["method"]
            for row in table.to_dict("records")
            if row["exchanges"] <= exchanges and (not only_models or models_suffice(row))
        )
        if key not in found:
            own = place["clients"], place["skew"], exchanges
            wanted = Situation(*own, True, one_start, only_models)
            found[key] = recommend_from(wanted, table, cases, board)
        answers[only_models].append([_told(entry) for entry in found[key].choices])
    any_one = next(iter(found.values()))
    lines = [_told(entry) for entry in any_one.lines if entry.method in LINES]
    return {**place, "names": list(any_one.scenarios), "answers": answers, "lines": lines}


def _told(entry: RecommendedMethod) -> list[Any]:
    known = [100 * share for share in entry.accuracy if not math.isnan(share)]
    accuracy = f"{sum(known) / len(known):.1f}" if known else ""
    numbers = (round(value, 2) for value in (entry.score, entry.low, entry.high))
    costs = (round(float(str(entry.costs[name])), 1) for name in ("bytes_up", "exchanges"))
    return [entry.kind, entry.method, *numbers, accuracy, *costs]


def by_place(data: dict[str, Any]) -> list[list[str]]:
    """Return the chooser's answers for readers without JavaScript: a row a place, one exchange.

    Clients; skew; starts; one network if models alone are sent; one network; several networks.
    """

    def named(rows: list[list[Any]], several: bool) -> str:
        kept = (row for row in rows if row[0] != "public data" and (row[0] == SEVERAL) == several)
        return ", ".join(row[1] for row in kept) or "–"

    rows = []
    for place in data["places"]:
        (more, *_), (models, *_) = place["answers"]
        skew = f"Dirichlet {place['skew']}" if place["skew"][0].isdigit() else place["skew"]
        found = named(models, False), named(more, False), named(more, True)
        rows.append([str(place["clients"]), skew, place["starts"], *found])
    return rows
