"""A leaderboard as pages show it, and its chooser: the answers of `fedrepro recommend`.

A page cannot compute a test of scores. So each scenario of the leaderboard is asked for as if it
were the reader's own, under every constraint that excludes a method; the page's script finds the
nearest one by the rule of `recommended.distance`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedrepro.numbers.leaderboard import ALL, HERE, REPORTED, SEVERAL, STARTS, VERIFIED
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

Row = Mapping[str, Any]
# columns of other usual tests, and of one that selects settings in each trial
OTHERWISE = {
    "group_wilcoxon": "Wilcoxon's signed ranks with Holm's correction",
    "group_nemenyi": "Nemenyi's test",
    "group_settings_chosen_in_each_trial": "this test with settings selected in each trial",
}
# words on rows, if entries of others are among them
COMPUTED = {
    HERE: "by whoever made this page",
    VERIFIED: "sent by others; runs of it, drawn at random, were computed again and had the same "
    "bytes",
    REPORTED: "sent by others, and nothing of it was computed again: it has no rank",
}
LEAST, MOST = -0.25, 1.25  # scores at the ends of a bar
# basis of an answer: columns of the leaderboard, and metrics of its scenarios
READ = (
    *("starts", "data", "class", "method", "exchanges", "networks", "bytes_up", "sees"),
    *("clients_also_send", "computed"),
)
MEASURED = ("score", "accuracy", "bytes_up", "exchanges", "networks")
LINES = ("best client", "FedAvg")  # shown with every answer of the chooser


def superseded_by(shown: BoardView, others: Sequence[BoardView]) -> str:
    """Return the key of the leaderboard with numbers that replaces this one, or ""."""
    version = shown.key.partition("/")[2]
    later = (b.key for b in others if b.about["board"].get("supersedes") == version)
    return next(later, "")


def families(shown: BoardView) -> list[dict[str, Any]]:
    """Arrange a leaderboard for its template, by how clients start.

    tables: by data set, with methods by class, best first, and notes on intervals. methods: the
    rows over all data sets. seconds: of each method at the server.
    """
    found = []
    line = shown.about["board"]["line"]
    times = shown.times[shown.times["metric"] == "server_seconds"]
    for starts, family in shown.table.groupby("starts", sort=False):
        tables = []
        for data, methods in family.groupby("data", sort=False):
            rows = with_bars(methods)
            tables.append(
                {
                    "name": "All data sets" if data == ALL else data,
                    "classes": by_class(rows),
                    "rows": rows,
                    "notes": _drawn_again(methods) + _otherwise(methods),
                    "line_at": next((row["at"] for row in rows if row["method"] == line), None),
                }
            )
        own = times[times["starts"] == starts].set_index("method")["mean"]
        methods = family[family["data"] == family["data"].iloc[-1]].to_dict("records")
        found.append(
            {"starts": starts, "tables": tables, "methods": methods, "seconds": own.to_dict()}
        )
    return found


def with_bars(methods: Any) -> list[Row]:
    """Return rows with the ends of an interval and its score as percent of a bar."""

    def percent(score: float) -> float:
        inside = min(max(LEAST if is_none(score) else score, LEAST), MOST)
        return round(100 * (inside - LEAST) / (MOST - LEAST), 1)

    ends = {"left": "score_low", "right": "score_high", "at": "score"}
    return [
        row | {end: percent(row[column]) for end, column in ends.items()}
        for row in methods.to_dict("records")
    ]


def by_class(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    classes: dict[str, list[Row]] = {}
    for row in rows:
        classes.setdefault(row["class"], []).append(row)
    return [*classes.items()]


def answer(shown: BoardView) -> dict[str, Any]:
    """Return the outcome for the clients that come first, for the home page; {} without groups.

    data: names of data sets. best: of each class the methods in the best one's group, by data set.
    picture: the methods over all data sets by class. leaders: of each class, the first data set
    that separates some of its methods (or the first), the best group there, and the highest score.
    above: data set -> methods shown to be above the best client. line: the method they are compared
    with, and `at` its place on a bar.
    """
    table, line = shown.table, shown.about["board"]["line"]
    table = table[table["starts"] == table["starts"].iloc[0]]
    rivals = table[table["class"] != "reference"]
    if rivals["group"].isna().all():
        return {}
    columns = {
        "all data sets" if data == ALL else str(data): rows
        for data, rows in rivals.groupby("data", sort=False)
    }
    best, leaders = [], []
    for kind in rivals["class"].unique():
        firsts = {data: rows[rows["class"] == kind] for data, rows in columns.items()}
        leading = {data: rows[rows["group"] == 1] for data, rows in firsts.items()}
        best.append([kind, *(_first(leading[data], rows) for data, rows in firsts.items())])
        apart = [data for data, rows in firsts.items() if 0 < len(leading[data]) < len(rows)]
        data = (apart or [*firsts])[0]
        if len(leading[data]):
            score = number(leading[data]["score"].max())
            leaders.append((str(kind), data, leading[data]["method"].tolist(), score))
    better = f"beside_{line.replace(' ', '_')}"
    above = [(d, rows[rows[better] == "better"]["method"].tolist()) for d, rows in columns.items()]
    last = with_bars(table[table["data"] == table["data"].iloc[-1]])
    return {
        "data": [*columns],
        "best": best,
        "picture": by_class([row for row in last if row["class"] != "reference"]),
        "leaders": leaders,
        "above": above,
        "line": line,
        "at": next((row["at"] for row in last if row["method"] == line), 0.0),
    }


def _first(leading: Any, rows: Any) -> str:
    if 1 < len(rows) == len(leading):
        return f"all {len(rows)}"
    return ", ".join(leading["method"]) or "not compared"


def made_from(about: Mapping[str, Any]) -> str:
    """Say which of its exhibits a leaderboard is made of."""
    whole = len(about["parts"]) + len(about["missing"])
    text = f"Made from {len(about['parts'])} of {whole} exhibits."
    if about["without_score"]:
        names = "; ".join(about["without_score"])
        text += f" Without a score, since baseline and ceiling are too near: {names}."
    return text


def _drawn_again(rows: Any) -> str:
    """Say what the intervals of a table range over."""
    parts = []
    for drawn, members in rows[rows["score"].notna()].groupby("drawn_again", sort=False):
        kinds = ", ".join(members["class"].unique())
        text = f"{drawn} are drawn again"
        parts.append(f"{text} ({kinds})" if rows["drawn_again"].nunique() > 1 else text)
    groups = "" if rows["group"].notna().any() else " Fewer than three scenarios make no groups."
    return f"In these intervals {'; '.join(parts)}.{groups}" if parts else ""


def _otherwise(rows: Any) -> str:
    """Write a sentence on other tests, where they give other first groups."""
    parts = []
    for column, test in OTHERWISE.items():
        for kind, members in rows[rows["group"].notna()].groupby("class", sort=False):
            first, other = (members[members[name] == 1] for name in ("group", column))
            if set(first["method"]) != set(other["method"]):
                parts.append(f"{test} gives {joined_names(other['method'].tolist())} ({kind})")
    return f" Other first groups: {'; '.join(parts)}." if parts else ""


def joined_names(names: Sequence[str], last: str = "and") -> str:
    """Join names as in a sentence: A, B and C."""
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def number(value: Any) -> str:
    """Write a score with two digits, and nothing where there is none."""
    return "" if is_none(value) else f"{value:z.2f}".replace("-", "−")


def times_sent(bytes_sent: float) -> str:
    return f"{bytes_sent:.1f} ×" if bytes_sent else "0"


def is_none(value: Any) -> bool:
    """Tell whether a cell of a table holds nothing."""
    return value is None or value == "" or value != value


# ----------------------------------------------------------------------------------- the chooser


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
    first, rows = cases.iloc[0], table.to_dict("records")
    place = {"starts": first["starts"], "clients": int(first["clients"]), "skew": first["skew"]}
    one_start, found = first["starts"] == STARTS[0], {}
    answers: list[list[Any]] = [[], []]
    for only_models, exchanges in itertools.product((False, True), asked):
        key = frozenset(  # the same methods give the same answer
            row["method"]
            for row in rows
            if row["exchanges"] <= exchanges and (not only_models or models_suffice(row))
        )
        if key not in found:
            own = place["clients"], place["skew"], exchanges
            wanted = Situation(*own, True, one_start, only_models)
            found[key] = recommend_from(wanted, table, cases, board)
        answers[only_models].append([_entry(one) for one in found[key].choices])
    any_one = next(iter(found.values()))
    lines = [_entry(one) for one in any_one.lines if one.method in LINES]
    return {**place, "names": list(any_one.scenarios), "answers": answers, "lines": lines}


def _entry(one: RecommendedMethod) -> list[Any]:
    known = [100 * share for share in one.accuracy if not math.isnan(share)]
    accuracy = f"{sum(known) / len(known):.1f}" if known else ""
    numbers = (round(value, 2) for value in (one.score, one.low, one.high))
    costs = (round(float(str(one.costs[name])), 1) for name in ("bytes_up", "exchanges"))
    return [one.kind, one.method, *numbers, accuracy, *costs]


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
