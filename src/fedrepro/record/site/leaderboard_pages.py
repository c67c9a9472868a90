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
    """Return the key of the leaderboard in `others` that replaces `shown`, or "" if none does."""
    version = shown.key.partition("/")[2]
    later = (b.key for b in others if b.about["board"].get("supersedes") == version)
    return next(later, "")


def along(score: float | None) -> float:
    """Return where a score stands on a drawn bar, in percent of the bar; 0 for a missing score."""
    inside = LEAST if score is None or is_none(score) else min(max(score, LEAST), MOST)
    return round(100 * (inside - LEAST) / (MOST - LEAST), 1)


def score_of(method: str, rows: Any) -> float | None:
    """Return the score of a method in a leaderboard's table `rows`; None if the table lacks it."""
    scores = rows[rows["method"] == method]["score"]
    return float(scores.iloc[0]) if len(scores) else None


def answer(shown: BoardView) -> dict[str, Any]:
    """Return the outcome of a leaderboard for the home page; {} where methods have no groups.

    data: names of data sets. best: for each class (kind) of methods, those in the best group by
    data set. picture: the rows of methods over all data sets. leaders: for each class, the first
    data set that separates some of its methods (or the first), the best group there, and the
    highest score. above: data set -> methods shown to be above the best client. line: the method
    they are compared with, and `at` its score.
    """
    line = shown.about["board"]["line"]
    table = shown.table[shown.table["starts"] == shown.table["starts"].iloc[0]]
    rivals = table[table["class"] != "reference"]
    if rivals["group"].isna().all():
        return {}
    columns = [
        ("all data sets" if data == ALL else str(data), rows)
        for data, rows in rivals.groupby("data", sort=False)
    ]
    better = f"beside_{line.replace(' ', '_')}"
    above = [(data, rows[rows[better] == "better"]["method"].tolist()) for data, rows in columns]
    best, leaders = [], []
    for kind in rivals["class"].unique():
        cells, groups = [kind], []
        for data, rows in columns:
            own = rows[rows["class"] == kind]
            first = own[own["group"] == 1]
            names = first["method"].tolist()
            everyone = 1 < len(own) == len(names)
            cells.append(f"all {len(own)}" if everyone else ", ".join(names) or "not compared")
            groups.append((0 < len(names) < len(own), data, names, number(first["score"].max())))
        _, data, names, score = next((group for group in groups if group[0]), groups[0])
        best.append(cells)
        leaders += [(kind, data, names, score)] if names else []
    last = table[table["data"] == table["data"].iloc[-1]]
    return {
        "data": [data for data, _ in columns],
        "best": best,
        "picture": last[last["class"] != "reference"],
        "leaders": leaders,
        "above": above,
        "line": line,
        "at": score_of(line, last),
    }


def made_from(about: Mapping[str, Any]) -> str:
    """Write a leaderboard's number of exhibits, and scenarios without a score, from its json."""
    whole = len(about["parts"]) + len(about["missing"])
    text = f"Made from {len(about['parts'])} of {whole} exhibits."
    if about["without_score"]:
        names = "; ".join(about["without_score"])
        text += f" Without a score, since baseline and ceiling are too near: {names}."
    return text


def notes_on(rows: Any) -> str:
    """Write what the intervals of a leaderboard's table range over, and where other tests disagree.

    Another test disagrees if it puts other methods into the first group of a class of methods.
    """
    ranges, others = [], []
    scored, grouped = rows[rows["score"].notna()], rows[rows["group"].notna()]
    for drawn, members in scored.groupby("drawn_again", sort=False):
        kinds = f" ({', '.join(members['class'].unique())})"
        ranges.append(f"{drawn} are drawn again" + kinds * (rows["drawn_again"].nunique() > 1))
    for column, test in OTHERWISE.items():
        for kind, members in grouped.groupby("class", sort=False):
            first, other = (members[members[name] == 1]["method"] for name in ("group", column))
            if set(first) != set(other):
                others.append(f"{test} gives {joined_names(other.tolist())} ({kind})")
    text = f"In these intervals {'; '.join(ranges)}." if ranges else ""
    text += " Fewer than three scenarios make no groups." if ranges and grouped.empty else ""
    return text + (f" Other first groups: {'; '.join(others)}." if others else "")


def joined_names(names: Sequence[str], last: str = "and") -> str:
    """Join names as in a sentence, such as "A, B and C"."""
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def number(value: Any) -> str:
    """Write a score with two digits and a long minus; "" where the table has no score."""
    return "" if is_none(value) else f"{value:z.2f}".replace("-", "−")


def times_sent(bytes_sent: float) -> str:
    return f"{bytes_sent:.1f} ×" if bytes_sent else "0"


def is_none(value: Any) -> bool:
    """Return whether a cell of a table is empty: None, "" or nan."""
    return value is None or value == "" or value != value


# ----------------------------------------------------------------------------------- the chooser


def choices(shown: BoardView) -> dict[str, Any]:
    """Return the data of the home page's method chooser, for json: recommendations by scenario.

    exchanges: how often clients answer, each a number from which more methods can be taken. places:
    number of clients, skew, how clients start, the scenarios, and answers by `models only` (no,
    yes) and by exchanges: class, method, score, ends, accuracy in percent, bytes as a multiple of
    the models, exchanges. lines: the numbers of the methods to compare with, in the same order.
    """
    table = shown.table[[name for name in READ if name in shown.table]]
    cases = shown.scenarios[shown.scenarios["metric"].isin(MEASURED)]
    cases = cases[cases["case"] != ALL].assign(skew=cases["case"].astype(str).map(case_skew))
    asked = sorted({max(1, math.ceil(value)) for value in table["exchanges"].dropna()})
    places = []
    for (starts, clients, skew), rows in cases.groupby(["starts", "clients", "skew"], sort=False):
        place = {"starts": starts, "clients": int(float(str(clients))), "skew": skew}
        places.append(place | _answers(place, table, rows, asked, shown.key))
    places.sort(key=lambda place: (STARTS.index(place["starts"]), place["clients"], place["skew"]))
    rule = {"iid": IID_ALPHA, "unlike": UNLIKE, "several": SEVERAL}
    return {**rule, "starts": list(STARTS), "exchanges": asked, "places": places}


def _answers(
    place: Mapping[str, Any], table: Any, cases: Any, asked: list[int], board: str
) -> dict[str, Any]:
    """Return recommended methods for a reader whose clients are as in the scenarios `cases`.

    `place` has the clients' start, number and skew, `table` the leaderboard, `asked` the limits on
    exchanges, and `board` the leaderboard's key. Answers are listed by whether only models may be
    sent, then by limit; also the scenarios' names, and the methods to compare with.
    """
    one_start, found = place["starts"] == STARTS[0], {}
    answers: list[list[Any]] = [[], []]
    for only_models, exchanges in itertools.product((False, True), asked):
        key = frozenset(  # the same methods give the same answer
            row["method"]
            for row in table.to_dict("records")
            if row["exchanges"] <= exchanges and (not only_models or models_suffice(row))
        )
        if key not in found:
            own = place["clients"], place["skew"], exchanges, True, one_start, only_models
            found[key] = recommend_from(Situation(*own), table, cases, board)
        answers[only_models].append([_entry(one) for one in found[key].choices])
    any_one = next(iter(found.values()))
    lines = [_entry(one) for one in any_one.lines if one.method in LINES]
    return {"names": list(any_one.scenarios), "answers": answers, "lines": lines}


def _entry(one: RecommendedMethod) -> list[Any]:
    known = [100 * share for share in one.accuracy if not math.isnan(share)]
    accuracy = f"{sum(known) / len(known):.1f}" if known else ""
    numbers = (round(value, 2) for value in (one.score, one.low, one.high))
    costs = (round(float(str(one.costs[name])), 1) for name in ("bytes_up", "exchanges"))
    return [one.kind, one.method, *numbers, accuracy, *costs]


def by_place(data: dict[str, Any]) -> list[list[str]]:
    """Return the chooser's answers as rows of text, one for each kind of clients, for one exchange.

    Readers without JavaScript see these. Columns: clients; skew; starts; methods with one network
    where clients send models alone; those where clients may send more; methods with several
    networks.
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
