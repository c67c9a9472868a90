"""A leaderboard as pages show it: methods by data set and class, and what each one costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedrepro.numbers.leaderboard import ALL, HERE, REPORTED, VERIFIED
from fedrepro.record.site.report_data import BoardView

Row = Mapping[str, Any]
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


def superseded_by(shown: BoardView, others: Sequence[BoardView]) -> str:
    """Return the key of the leaderboard with numbers that replaces this one, or ""."""
    version = shown.key.partition("/")[2]
    later = (b.key for b in others if b.about["board"].get("supersedes") == version)
    return next(later, "")


def families(shown: BoardView) -> list[dict[str, Any]]:
    """Arrange a leaderboard for its template, by how clients start.

    starts: how clients start. tables: by data set, as `_table` returns them. costs: of each method,
    head -> text. handed: each method with what it sees and receives.
    """
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
        found.append({"starts": starts, "tables": tables, "costs": costs, "handed": handed})
    return found


def _table(shown: BoardView, data: str, methods: Any) -> dict[str, Any]:
    """Return a data set's methods by class, best first, their rows, and notes on intervals."""
    line = shown.about["board"]["line"]
    classes: dict[str, list[Row]] = {}
    rows = [_row(row, line) for row in methods.to_dict("records")]
    for row in rows:
        classes.setdefault(row["all"]["Class"], []).append(row)
    return {
        "name": "All data sets" if data == ALL else data,
        "classes": [*classes.items()],
        "notes": _drawn_again(methods) + _otherwise(methods),
        "rows": [row["all"] for row in rows],
        "line_at": next((row["at"] for row in rows if row["method"] == line), None),
    }


def _row(row: Row, line: str) -> dict[str, Any]:
    """Write a method's row as text: in short, and with all columns.

    left, right, at: the ends of its interval and its score, as percent of a bar.
    """
    key, bound = line.replace(" ", "_"), row["class"] == "reference"
    score, ends = _interval(row, "score")
    above, above_ends = _interval(row, f"above_{key}")
    ranks = [f"{row[f'rank_{end}']:g}" for end in ("low", "high") if not _none(row["rank_low"])]
    verdict, chance = _text(row[f"beside_{key}"]), row[f"beside_{key}_chance"]
    group = "" if _none(row["group"]) else f"{row['group']:g}"
    by = {"Computed": _computed(row)} if "computed" in row else {}
    plus = "+" if above and above[0] != "−" and above != "0.00" else ""
    return {
        "method": row["method"],
        "group": group,
        "score": score or _text(row["without_rank"]),
        "ends": ends,
        "left": _percent(row["score_low"]),
        "right": _percent(row["score_high"]),
        "at": _percent(row["score"]),
        "above": "" if bound else plus + above,
        "verdict": "" if bound else verdict,
        "sends": "–" if bound else _times(row["bytes_up"]),
        "computed": _computed(row),
        "bound": bound,
        "all": {
            "Group": group,
            "Method": row["method"],
            "Class": row["class"],
            "Score": score,
            "95 %": ends,
            "By trial": "" if _none(row["score_each_trial"]) else _number(row["score_each_trial"]),
            "Rank": " to ".join(dict.fromkeys(ranks))
            or ("–" if bound else _text(row["without_rank"])),
            f"Above {line}": above,
            "95 % ": above_ends,
            "Trials alone": above and _interval(row, f"above_{key}", f"above_{key}_trials")[1],
            "In scenarios": above and f"{row['scenarios_above']:g} of {row['scenarios']:g}",
            "Shown (Holm's p)": verdict if _none(chance) else f"{verdict} ({chance:.3f})",
            **by,
        },
    }


def _percent(score: float) -> float:
    inside = min(max(LEAST if _none(score) else score, LEAST), MOST)
    return round(100 * (inside - LEAST) / (MOST - LEAST), 1)


def _costs(shown: BoardView, starts: str, row: Row) -> dict[str, str]:
    times = shown.times
    at = (times["starts"] == starts) & (times["method"] == row["method"])
    seconds = times[at & (times["metric"] == "server_seconds")]["mean"]
    return {
        "Method": row["method"],
        "Class": row["class"],
        "Bytes sent": _times(row["bytes_up"]),
        "Received": _times(row["bytes_down"]),
        "Exchanges": f"{row['exchanges']:.0f}",
        "With the choice: sent": _times(row["bytes_up_with_choice"]),
        "received": _times(row["bytes_down_with_choice"]),
        "exchanges": f"{row['exchanges_with_choice']:.0f}",
        "Passes": f"{row['passes']:.1f}",
        "Server, s": f"{float(seconds.iloc[0]):.2f}" if len(seconds) else "",
        "Parameters": f"{row['parameters']:,.0f}",
        "Settings": f"{row['settings_tried']:g}",
        "Chosen at the end of the grid": _text(row["ends_of_grid"]),
    }


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
            score = _number(float(leading[data]["score"].max()))
            leaders.append((str(kind), data, leading[data]["method"].tolist(), score))
    better = f"beside_{line.replace(' ', '_')}"
    above = [(d, rows[rows[better] == "better"]["method"].tolist()) for d, rows in columns.items()]
    last = table[table["data"] == table["data"].iloc[-1]]
    bound = last[last["method"] == line]["score"]
    return {
        "data": [*columns],
        "best": best,
        "picture": _table(shown, "", last[last["class"] != "reference"])["classes"],
        "leaders": leaders,
        "above": above,
        "line": line,
        "at": _percent(float(bound.iloc[0]) if len(bound) else 0.0),
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


def _interval(row: Row, name: str, ends: str = "") -> tuple[str, str]:
    """Return a value and the ends of its interval as text; both empty where there is none."""
    if _none(row[name]):
        return "", ""
    low, high = (_number(row[f"{ends or name}_{end}"]) for end in ("low", "high"))
    return _number(row[name]), f"{low} to {high}"


def _computed(row: Row) -> str:
    word = _text(row.get("computed"))
    return "here" if word == HERE else word


def _times(bytes_sent: float) -> str:
    return f"{bytes_sent:.1f} ×" if bytes_sent else "0"


def _number(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")  # adding zero removes its sign


def _text(value: Any) -> str:
    return "" if _none(value) else str(value)


def _none(value: Any) -> bool:
    return value is None or value == "" or value != value
