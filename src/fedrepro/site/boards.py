"""A leaderboard as pages show it: methods by data set and class, and what each one costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedrepro.numbers.board import ALL, HERE, REPORTED, VERIFIED
from fedrepro.site.reading import ShownBoard

PICTURES = {
    "groups": "Scores of all methods by data set, with their intervals, in groups that are not "
    "told apart.",
    "gains": "What each method gains over the baseline in each scenario, in points.",
    "scenarios": "Methods by scenarios: test accuracies, coloured by score.",
    "bytes": "Score against the bytes that clients send, with the frontier.",
}
HEADS = (
    *("Group", "Method", "Class", "Score", "95 %", "By trial", "Rank", "Above {line}", "95 %"),
    *("Trials alone", "In scenarios", "Shown (Holm's p)"),
)
COSTS = (
    *("Method", "Class", "Bytes sent", "Received", "Exchanges", "With the choice: sent"),
    *("received", "exchanges", "Passes", "Server, s", "Parameters", "Settings"),
    "Chosen at the end of the grid",
)
# columns of other usual tests, and of one that chooses settings in each trial
OTHERWISE = {
    "group_wilcoxon": "Wilcoxon's signed ranks with Holm's correction",
    "group_nemenyi": "Nemenyi's test",
    "group_settings_chosen_in_each_trial": "this test with settings chosen in each trial",
}
# words on rows, if entries of others are among them
COMPUTED = {
    HERE: "by whoever made this page",
    VERIFIED: "sent by others; runs of it, drawn at random, were computed again and had the same "
    "bytes",
    REPORTED: "sent by others, and nothing of it was computed again: it has no rank",
}
LEAST, MOST = -0.25, 1.25  # scores at the ends of a bar
DASH = "–"


@dataclass(frozen=True)
class BoardLine:
    """A method in a table of a leaderboard, as text.

    group: 1 if no test separates it from the best. left, right, at: the ends of its interval and
    its score, as percent of a bar. verdict: against the best client; empty for a bound.
    """

    method: str
    group: str
    score: str
    ends: str
    left: float
    right: float
    at: float
    above: str
    verdict: str
    sends: str
    computed: str
    bound: bool


@dataclass(frozen=True)
class BoardTable:
    """The methods of a data set by class, best first, and a sentence on their intervals.

    rows: everything known of each method, under `heads`.
    """

    name: str
    classes: list[tuple[str, list[BoardLine]]]
    told: str
    heads: list[str]
    rows: list[Sequence[str]]


@dataclass(frozen=True)
class BoardFamily:
    """Methods for clients that start alike; `handed` says what each method sees and receives."""

    starts: str
    tables: list[BoardTable]
    costs: list[Sequence[str]]
    handed: list[tuple[str, str]]
    cost_heads: Sequence[str] = field(default=COSTS)


def superseded_by(shown: ShownBoard, others: Sequence[ShownBoard]) -> str:
    """Return the key of the leaderboard with numbers that replaces this one, or ""."""
    version = shown.key.partition("/")[2]
    later = (b.key for b in others if b.about["board"].get("supersedes") == version)
    return next(later, "")


def families(shown: ShownBoard) -> list[BoardFamily]:
    """Arrange a leaderboard as tables, by how clients start and by data set."""
    found = []
    for starts, family in shown.table.groupby("starts", sort=False):
        tables = [
            _table(shown, str(data), rows) for data, rows in family.groupby("data", sort=False)
        ]
        whole = family[family["data"] == family["data"].iloc[-1]].to_dict("records")
        costs = [_costs(shown, str(starts), row) for row in whole]
        handed = []
        for row in whole:
            sent = _text(row["clients_also_send"])
            more = f" Clients also send: {sent}." if sent else ""
            handed.append((row["method"], f"{_text(row['sees'])}.{more}"))
        found.append(BoardFamily(str(starts), tables, costs, handed))
    return found


def _table(shown: ShownBoard, data: str, methods: Any) -> BoardTable:
    line = shown.about["board"]["line"]
    by_others = "computed" in shown.table
    heads = [head.format(line=line) for head in HEADS] + ["Computed"] * by_others
    records, key = methods.to_dict("records"), line.replace(" ", "_")
    classes: dict[str, list[BoardLine]] = {}
    for row in records:
        classes.setdefault(str(row["class"]), []).append(_line(row, key))
    name = "All data sets" if data == ALL else data
    told = _drawn_again(methods) + _otherwise(methods)
    return BoardTable(name, [*classes.items()], told, heads, [_row(row, key) for row in records])


def _line(row: Mapping[str, Any], line: str) -> BoardLine:
    score, ends = _interval(row, "score")
    bound = row["class"] == "reference"
    above = "" if bound else _interval(row, f"above_{line}")[0]
    plus = "+" if above and above[0] != "−" and above != "0.00" else ""
    return BoardLine(
        method=row["method"],
        group="" if _none(row["group"]) else f"{row['group']:g}",
        score=score or _text(row["without_rank"]),
        ends=ends,
        left=_percent(row["score_low"]),
        right=_percent(row["score_high"]),
        at=_percent(row["score"]),
        above=plus + above,
        verdict="" if bound else _text(row[f"beside_{line}"]),
        sends=DASH if bound else _times(row["bytes_up"]),
        computed=_computed(row),
        bound=bound,
    )


def _percent(score: float) -> float:
    inside = min(max(LEAST if _none(score) else score, LEAST), MOST)
    return round(100 * (inside - LEAST) / (MOST - LEAST), 1)


def _row(row: Mapping[str, Any], line: str) -> Sequence[str]:
    rank = "" if _none(row["rank_low"]) else f"{row['rank_low']:g} to {row['rank_high']:g}"
    if row["rank_low"] == row["rank_high"]:
        rank = f"{row['rank_low']:g}"
    above, chance = row[f"above_{line}"], row[f"beside_{line}_chance"]
    verdict = _text(row[f"beside_{line}"])
    return (
        "" if _none(row["group"]) else f"{row['group']:g}",
        row["method"],
        row["class"],
        *_interval(row, "score"),
        "" if _none(row["score_each_trial"]) else _number(row["score_each_trial"]),
        rank or (DASH if row["class"] == "reference" else _text(row["without_rank"])),
        *_interval(row, f"above_{line}"),
        "" if _none(above) else _interval(row, f"above_{line}", f"above_{line}_trials")[1],
        "" if _none(above) else f"{row['scenarios_above']:g} of {row['scenarios']:g}",
        verdict if _none(chance) else f"{verdict} ({chance:.3f})",
        *([_computed(row)] if "computed" in row else []),
    )


def _costs(shown: ShownBoard, starts: str, row: Mapping[str, Any]) -> Sequence[str]:
    """List a method's costs, by itself and with the choice of its setting."""
    times = shown.times
    at = (times["starts"] == starts) & (times["method"] == row["method"])
    seconds = times[at & (times["metric"] == "server_seconds")]["mean"]
    return (
        row["method"],
        row["class"],
        *(
            cell
            for end in ("", "_with_choice")
            for cell in (
                *(_times(row[f"bytes_{way}{end}"]) for way in ("up", "down")),
                f"{row[f'exchanges{end}']:.0f}",
            )
        ),
        f"{row['passes']:.1f}",
        f"{float(seconds.iloc[0]):.2f}" if len(seconds) else "",
        f"{row['parameters']:,.0f}",
        f"{row['settings_tried']:g}",
        _text(row["ends_of_grid"]),
    )


@dataclass(frozen=True)
class BoardAnswer:
    """The outcome of a leaderboard.

    best: of each class the methods in the best one's group, by data set; empty where nothing is
    compared. picture: the methods over all data sets. leaders: of each class, the first data set
    that separates some of its methods (or the first), the best group there, and the highest score.
    above: data set -> methods shown to be above the best client. line: the method they are compared
    with, and `at` its place on a bar.
    """

    data: list[str]
    best: list[tuple[str, list[str]]]
    picture: list[tuple[str, list[BoardLine]]]
    leaders: list[tuple[str, str, list[str], str]]
    above: list[tuple[str, list[str]]]
    line: str
    at: float


def answer(shown: ShownBoard) -> BoardAnswer | None:
    """Return the outcome for the clients that come first, or None if there are no groups."""
    table, line = shown.table, shown.about["board"]["line"]
    table = table[table["starts"] == table["starts"].iloc[0]]
    rivals = table[table["class"] != "reference"]
    if rivals["group"].isna().all():
        return None
    columns = {
        "all data sets" if data == ALL else str(data): rows
        for data, rows in rivals.groupby("data", sort=False)
    }
    key, best, leaders = line.replace(" ", "_"), [], []
    for kind in rivals["class"].unique():
        firsts = {data: rows[rows["class"] == kind] for data, rows in columns.items()}
        best.append((str(kind), [_first(rows) for rows in firsts.values()]))
        apart = [data for data, rows in firsts.items() if 0 < _leading(rows) < len(rows)]
        data = (apart or [*firsts])[0]
        first = firsts[data][firsts[data]["group"] == 1]
        if len(first):
            score = _number(float(first["score"].max()))
            leaders.append((str(kind), data, first["method"].tolist(), score))
    above = [
        (data, rows[rows[f"beside_{key}"] == "better"]["method"].tolist())
        for data, rows in columns.items()
    ]
    last = table[table["data"] == table["data"].iloc[-1]]
    bound = last[last["method"] == line]["score"]
    picture = _table(shown, "", last[last["class"] != "reference"]).classes
    at = _percent(float(bound.iloc[0]) if len(bound) else 0.0)
    return BoardAnswer([*columns], best, picture, leaders, above, line, at)


def _leading(rows: Any) -> int:
    return int((rows["group"] == 1).sum())


def _first(rows: Any) -> str:
    """Name the first group of a class, or say that all are in it."""
    if 1 < len(rows) == _leading(rows):
        return f"all {len(rows)}"
    return ", ".join(rows[rows["group"] == 1]["method"]) or "not compared"


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
    told = []
    for drawn, members in rows[rows["score"].notna()].groupby("drawn_again", sort=False):
        kinds = ", ".join(members["class"].unique())
        text = f"{drawn} are drawn again"
        told.append(f"{text} ({kinds})" if rows["drawn_again"].nunique() > 1 else text)
    groups = "" if rows["group"].notna().any() else " Fewer than three scenarios make no groups."
    return f"In these intervals {'; '.join(told)}.{groups}" if told else ""


def _otherwise(rows: Any) -> str:
    """Write a sentence on other tests, where they give other first groups."""
    told = []
    for column, test in OTHERWISE.items():
        for kind, members in rows[rows["group"].notna()].groupby("class", sort=False):
            first, other = (members[members[name] == 1] for name in ("group", column))
            if set(first["method"]) != set(other["method"]):
                told.append(f"{test} gives {listed(other['method'].tolist())} ({kind})")
    return f" Other first groups: {'; '.join(told)}." if told else ""


def listed(names: Sequence[str], last: str = "and") -> str:
    """Join names as in a sentence: A, B and C."""
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _interval(row: Mapping[str, Any], name: str, ends: str = "") -> tuple[str, str]:
    """Return a value and the ends of its interval as text; both empty where there is none."""
    if _none(row[name]):
        return "", ""
    low, high = (_number(row[f"{ends or name}_{end}"]) for end in ("low", "high"))
    return _number(row[name]), f"{low} to {high}"


def _computed(row: Mapping[str, Any]) -> str:
    word = _text(row.get("computed"))
    return "here" if word == HERE else word


def _times(bytes_sent: float) -> str:
    return f"{bytes_sent:.1f} ×" if bytes_sent else "0"


def _number(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def _text(value: Any) -> str:
    return "" if _none(value) else str(value)


def _none(value: Any) -> bool:
    return value is None or value == "" or value != value
