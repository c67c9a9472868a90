"""Prepare what pages show of a leaderboard: its outcome, notes and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedrepro.numbers.leaderboard import ALL, HERE, REPORTED, VERIFIED
from fedrepro.record.site.report_data import BoardView

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


def superseded_by(shown: BoardView, others: Sequence[BoardView]) -> str:
    """Return the key of the whole leaderboard in `others` that replaces `shown`, or ""."""
    version = shown.key.partition("/")[2]
    whole = [other for other in others if not other.about["missing"]]
    later = (b.key for b in whole if b.about["board"].get("supersedes") == version)
    return next(later, "")


def along(score: float | None) -> float:
    """Return where a score is on a bar, in percent of the bar's length; 0 for a missing score."""
    inside = LEAST if score is None or is_none(score) else min(max(score, LEAST), MOST)
    return round(100 * (inside - LEAST) / (MOST - LEAST), 1)


def score_of(method: str, rows: Any) -> float | None:
    """Return the score of a method in a leaderboard's table `rows`; None if the table lacks it."""
    scores = rows[rows["method"] == method]["score"]
    return float(scores.iloc[0]) if len(scores) else None


def answer(shown: BoardView) -> dict[str, Any]:
    """Return the outcome of a leaderboard for the home page; {} where methods have no groups.

    data: names of data sets. picture: rows of methods over all data sets. leaders: for each class
    of methods a tuple (class, data set, best group, highest score), of the first data set with
    methods outside its best group, or the first. above: pairs (data set, methods shown to beat
    `line`). line: method to beat; at: its score.
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
    leaders = []
    for kind in rivals["class"].unique():
        groups = []
        for data, rows in columns:
            own = rows[rows["class"] == kind]
            first = own[own["group"] == 1]
            names = first["method"].tolist()
            groups.append((0 < len(names) < len(own), data, names, number(first["score"].max())))
        _, data, names, score = next((group for group in groups if group[0]), groups[0])
        leaders += [(kind, data, names, score)] if names else []
    last = table[table["data"] == table["data"].iloc[-1]]
    return {
        "paper": shown.key.partition("/")[0],
        "data": [data for data, _ in columns],
        "picture": last[last["class"] != "reference"],
        "leaders": leaders,
        "above": [(d, rows[rows[better] == "better"]["method"].tolist()) for d, rows in columns],
        "line": line,
        "at": score_of(line, last),
    }


def made_from(about: Mapping[str, Any]) -> str:
    """Write how many tables a leaderboard's json `about` has, and its scenarios without a score."""
    whole = len(about["parts"]) + len(about["missing"])
    text = f"Made from {len(about['parts'])} of {whole} exhibits."
    if about["without_score"]:
        names = "; ".join(about["without_score"])
        text += f" Without a score, since baseline and ceiling are too near: {names}."
    return text


def notes_on(rows: Any) -> str:
    """Write what the intervals of leaderboard `rows` count as random, and what other tests find.

    Trials, and also scenarios or data sets, may count as random. Another test is named if its best
    group in a class of methods differs.
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


def by_scenario(shown: BoardView, starts: str) -> tuple[list[str], list[list[str]]]:
    """Return (names of scenarios, a row of texts per method) of clients that start as `starts`.

    A row has the method, then per scenario test accuracy in percent and (score), or "–" if it was
    not run.
    """
    rows = shown.scenarios.query("starts == @starts and case != @ALL")
    texts: dict[str, dict[str, str]] = {}
    for key, own in rows.groupby(["data", "case", "clients", "method"], sort=False):
        data, case, clients, method = map(str, key)
        means = own.set_index("metric")["mean"].to_dict()
        if "accuracy" in means:
            score = number(means.get("score"))
            text = f"{100 * means['accuracy']:.1f}" + (f" ({score})" if score else "")
            texts.setdefault(f"{data}, {case}, {float(clients):g} clients", {})[method] = text
    order = shown.table[shown.table["starts"] == starts]["method"].unique()
    return [*texts], [[name, *(own.get(name, "–") for own in texts.values())] for name in order]


def joined_names(names: Sequence[str], last: str = "and") -> str:
    """Join names as in a sentence, such as "A, B and C"."""
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def number(value: Any) -> str:
    """Write a score with two digits and a long minus; "" where the table has no score."""
    return "" if is_none(value) else f"{value:z.2f}".replace("-", "−")


def is_none(value: Any) -> bool:
    """Return whether a cell of a table is empty: None, "" or nan."""
    return value is None or value == "" or value != value
