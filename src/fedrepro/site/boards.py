"""A leaderboard as a page shows it: a table that can be sorted, with groups, and its pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedrepro.drawings.tables import html_text
from fedrepro.numbers.board import ALL, HERE, REPORTED, VERIFIED
from fedrepro.site.cells import data_table, wide
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
# other usual tests, and one that takes settings as the best client is taken, by their columns
OTHERWISE = {
    "group_wilcoxon": "Wilcoxon's signed ranks with Holm's correction",
    "group_nemenyi": "Nemenyi's test",
    "group_settings_chosen_in_each_trial": "this test with settings chosen in each trial",
}


# what a row's word means, where entries of others are among them
COMPUTED = {
    HERE: "by whoever made this page",
    VERIFIED: "sent by others; runs of it, drawn at random, were computed again and had the same "
    "bytes",
    REPORTED: "sent by others, and nothing of it was computed again: it has no rank",
}


def superseded_by(shown: ShownBoard, others: Sequence[ShownBoard]) -> str:
    """The key of a leaderboard that has numbers and takes the place of this one, or nothing."""
    version = shown.key.partition("/")[2]
    later = (b.key for b in others if b.about["board"].get("supersedes") == version)
    return next(later, "")


def board_html(shown: ShownBoard, later: str = "") -> list[str]:
    """The lines of a leaderboard's part of a page, which lies in papers/. later: what supersedes
    it, if there is such."""
    about, at = shown.about, f"../shown/{shown.key}"
    board = about["board"]
    name = shown.key.partition("/")[2]
    lines = [f'<span id="{name}"></span>', "", f"## {shown.key}: {html_text(board['title'])}", ""]
    lines += [
        f"<p>A score of 0 is {html_text(board['baseline'])}, one of 1 is "
        f"{html_text(board['ceiling'])}; means over the scenarios of a data set, and over data "
        "sets. Groups, ranks and what is shown beside the "
        f"{html_text(board['line'])} are of one test: Student's t of differences within trials, "
        "after Holm's correction for all pairs of a class and data set, the "
        f"{html_text(board['line'])} among them. An interval is that of one number by itself. "
        + (
            "Settings are chosen in each trial, as the "
            if board.get("each_trial")
            else "<i>By trial</i>: the score if settings are chosen in each trial, as the "
        )
        + f"{html_text(board['line'])} is. <i>Trials alone</i>: the difference's interval if the "
        "scenarios stay as they are. <i>In scenarios</i>: where the difference is above nothing. "
        f"{_there(about)}</p>",
        "",
    ]
    if later:
        lines.insert(4, f"<p><b>Superseded by {later}</b>, whose ground says what it changes.</p>")
    if "computed" in shown.table:
        meanings = "; ".join(f"<i>{word}</i>: {meaning}" for word, meaning in COMPUTED.items())
        lines += [f"<p>Some rows are entries of others. {meanings}.</p>", ""]
    for starts, family in shown.table.groupby("starts", sort=False):
        for data, rows in family.groupby("data", sort=False):
            where = "all data sets" if data == ALL else str(data)
            name = f"clients of {starts}, {where}"
            lines += [f"### C{name[1:]}", "", f"<p>{_drawn_again(rows)}{_otherwise(rows)}</p>", ""]
            lines += [_table(shown, name, rows), ""]
        whole = family[family["data"] == family["data"].iloc[-1]]
        lines += [f"### Clients of {starts}: costs and settings", "", COUNTED, ""]
        lines += [_costs(shown, str(starts), whole), "", _handed(whole), ""]
    for name, caption in PICTURES.items():
        lines += [
            f'<figure><a href="{at}.{name}.svg"><img src="{at}.{name}.svg" loading="lazy" '
            f'alt="{caption}"></a><figcaption>{caption}</figcaption></figure>',
            "",
        ]
    lines += [
        f'<p class="small"><a href="{at}.csv">the table, csv</a> · '
        f'<a href="{at}.scenarios.csv">single scenarios and trials, csv</a> · '
        f'<a href="{at}.times.csv">seconds, csv</a></p>',
        "",
    ]
    return lines


def board_top(shown: ShownBoard) -> list[str]:
    """For the home page: of each class and data set the methods that are not told apart from the
    best, what is shown to be above the line, and the picture of costs. Empty without groups."""
    table, board = shown.table, shown.about["board"]
    table = table[(table["starts"] == table["starts"].iloc[0]) & (table["class"] != "reference")]
    if table["group"].isna().all():
        return []
    columns = {str(data): rows for data, rows in table.groupby("data", sort=False)}
    rows = [
        (
            html_text(str(kind)),
            *(_first(rows[rows["class"] == kind]) for rows in columns.values()),
        )
        for kind in table["class"].unique()
    ]
    link = f"papers/{shown.key.partition('/')[0]}.html"
    picture = f"shown/{shown.key}.bytes.svg"
    name = f"{shown.key}: the first group of each class"
    heads = ("What predicts", *("All data sets" if data == ALL else data for data in columns))
    return [
        f'## <a href="{link}">Which method should I take?</a>',
        "",
        f"<p>Methods that are not told apart from the best of their class. "
        f"{_above(columns, board['line'])} {_there(shown.about)}</p>",
        "",
        wide(data_table(heads, rows, name, "plain"), name),
        "",
        f'<figure><a href="{link}"><img src="{picture}" alt="{PICTURES["bytes"]}"></a>'
        f"<figcaption>{PICTURES['bytes']}</figcaption></figure>",
        "",
    ]


def _first(rows: Any) -> str:
    """The first group of a class, or that all are in it."""
    names = rows[rows["group"] == 1]["method"].tolist()
    if len(names) > 1 and len(names) == len(rows):
        return f"all {len(names)}"
    return ", ".join(f"<b>{html_text(name)}</b>" for name in names) or "not compared"


def _above(columns: Mapping[str, Any], line: str) -> str:
    """Which methods are shown to be above the line, data set by data set."""
    told = []
    for data, rows in columns.items():
        better = rows[rows[f"beside_{line.replace(' ', '_')}"] == "better"]["method"].tolist()
        where = "over all data sets" if data == ALL else f"on {data}"
        told.append(f"{where} {', '.join(map(str, better)) or 'none'}")
    return html_text(f"Shown to be above the {line}: {'; '.join(told)}.")


def _there(about: Mapping[str, Any]) -> str:
    """Which of its exhibits it is made of."""
    whole = len(about["parts"]) + len(about["missing"])
    text = f"Made from {len(about['parts'])} of {whole} exhibits."
    if about["without_score"]:
        names = "; ".join(about["without_score"])
        text += f" Without a score, since baseline and ceiling are too near: {names}."
    return html_text(text)


COUNTED = (
    "<p>Bytes are multiples of the clients' models. To choose a setting, every candidate goes to "
    "all clients, and accuracies come back; a method of several exchanges makes all of them for "
    "each setting. To find the best client, all models go to all clients.</p>"
)


def _drawn_again(rows: Any) -> str:
    """What other experiments would change in the intervals of a table."""
    told = []
    for drawn, members in rows[rows["score"].notna()].groupby("drawn_again", sort=False):
        kinds = ", ".join(members["class"].unique())
        text = f"{drawn} are drawn again"
        told.append(f"{text} ({kinds})" if rows["drawn_again"].nunique() > 1 else text)
    groups = "" if rows["group"].notna().any() else " Fewer than three scenarios make no groups."
    return html_text(f"In these intervals {'; '.join(told)}.{groups}") if told else ""


def _otherwise(rows: Any) -> str:
    """Write a sentence on other tests, where they give other first groups."""
    told = []
    for column, test in OTHERWISE.items():
        for kind, members in rows[rows["group"].notna()].groupby("class", sort=False):
            first, other = (members[members[name] == 1] for name in ("group", column))
            if set(first["method"]) != set(other["method"]):
                told.append(f"{test} gives {_listed(other['method'].tolist())} ({kind})")
    return html_text(f" Other first groups: {'; '.join(told)}.") if told else ""


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _table(shown: ShownBoard, name: str, methods: Any) -> str:
    line = shown.about["board"]["line"]
    heads = [head.format(line=line) for head in HEADS]
    heads += ["Computed"] if "computed" in shown.table else []
    rows = [_row(row, line.replace(" ", "_")) for row in methods.to_dict("records")]
    return wide(data_table(heads, rows, f"{shown.key}, {name}"), name)


def _row(row: Mapping[str, Any], line: str) -> Sequence[str]:
    rank = "" if _none(row["rank_low"]) else f"{row['rank_low']:g} to {row['rank_high']:g}"
    if row["rank_low"] == row["rank_high"]:
        rank = f"{row['rank_low']:g}"
    above, chance = row[f"above_{line}"], row[f"beside_{line}_chance"]
    shown = _text(row[f"beside_{line}"])
    return (
        "" if _none(row["group"]) else f"<b>{row['group']:g}</b>",
        f"<b>{html_text(row['method'])}</b>",
        html_text(row["class"]),
        *_interval(row, "score"),
        "" if _none(row["score_each_trial"]) else _number(row["score_each_trial"]),
        rank or _text(row["without_rank"]),
        *_interval(row, f"above_{line}"),
        "" if _none(above) else _interval(row, f"above_{line}", f"above_{line}_trials")[1],
        "" if _none(above) else f"{row['scenarios_above']:g} of {row['scenarios']:g}",
        shown if _none(chance) else f"{shown} ({chance:.3f})",
        *([_computed(str(row["computed"]))] if "computed" in row else []),
    )


def _interval(row: Mapping[str, Any], name: str, ends: str = "") -> tuple[str, str]:
    """A value and the ends of its interval; empty where there is none."""
    if _none(row[name]):
        return "", ""
    low, high = (_number(row[f"{ends or name}_{end}"]) for end in ("low", "high"))
    return _number(row[name]), f"{low} to {high}"


def _costs(shown: ShownBoard, starts: str, methods: Any) -> str:
    """What each method costs, by itself and with the choice of its setting."""
    rows = [
        (
            f"<b>{html_text(row['method'])}</b>",
            html_text(row["class"]),
            *(
                cell
                for end in ("", "_with_choice")
                for cell in (
                    *(_times(row[f"bytes_{way}{end}"]) for way in ("up", "down")),
                    f"{row[f'exchanges{end}']:.0f}",
                )
            ),
            f"{row['passes']:.1f}",
            _seconds(shown, starts, row["method"]),
            f"{row['parameters']:,.0f}",
            f"{row['settings_tried']:g}",
            _text(row["ends_of_grid"]),
        )
        for row in methods.to_dict("records")
    ]
    name = f"{shown.key}, clients of {starts}: costs and settings"
    return wide(data_table(COSTS, rows, name), name)


def _times(bytes_sent: float) -> str:
    return f"{bytes_sent:.1f} ×" if bytes_sent else "0"


def _computed(word: str) -> str:
    """Who computed a row; what nobody here did stands out."""
    return "here" if word == HERE else f"<b>{word}</b>" if word == VERIFIED else f"<i>{word}</i>"


def _handed(methods: Any) -> str:
    """What each method is handed, and what its clients send beside models, in a fold."""
    items = []
    for row in methods.to_dict("records"):
        sent = _text(row["clients_also_send"])
        more = f" Clients also send: {sent}." if sent else ""
        items.append(f"<li><b>{_text(row['method'])}</b>: {_text(row['sees'])}.{more}</li>")
    body = "".join(items)
    return f"<details><summary>What each method is handed</summary><ul>{body}</ul></details>"


def _number(value: float) -> str:
    """Two digits; nothing is below nothing by less than they tell."""
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def _seconds(shown: ShownBoard, starts: str, method: str) -> str:
    times = shown.times
    at = (times["starts"] == starts) & (times["method"] == method)
    seconds = times[at & (times["metric"] == "server_seconds")]["mean"]
    return f"{float(seconds.iloc[0]):.2f}" if len(seconds) else ""


def _text(value: Any) -> str:
    return "" if _none(value) else html_text(str(value))


def _none(value: Any) -> bool:
    return value is None or value == "" or value != value
