"""A leaderboard as a page shows it: a table that can be sorted, with groups, and its pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedrepro.drawings.tables import html_text
from fedrepro.numbers.board import HERE, REPORTED, VERIFIED
from fedrepro.site.cells import data_table, wide
from fedrepro.site.reading import ShownBoard

PICTURES = {
    "groups": "Scores of all methods with their intervals, in groups that are not told apart.",
    "gains": "What each method gains over the baseline in each scenario, in points.",
    "scenarios": "Methods by scenarios: test accuracies, coloured by score.",
    "bytes": "Score against the bytes that clients send, with the frontier.",
}
HEADS = (
    *("Group", "Method", "Class", "Score", "95 %", "Rank", "Beside {line}", "Bytes sent"),
    *("Exchanges", "Passes", "Server, s", "Parameters", "Settings"),
)


# what a row's word means, where entries of others are among them
COMPUTED = {
    HERE: "by whoever made this page",
    VERIFIED: "sent by others; runs of it, drawn at random, were computed again and had the same "
    "bytes",
    REPORTED: "sent by others, and nothing of it was computed again: it has no rank",
}


def board_html(shown: ShownBoard) -> list[str]:
    """The lines of a leaderboard's part of a page, which lies in papers/."""
    about, at = shown.about, f"../shown/{shown.key}"
    board = about["board"]
    name = shown.key.partition("/")[2]
    lines = [f'<span id="{name}"></span>', "", f"## {shown.key}: {html_text(board['title'])}", ""]
    lines += [
        f"<p>A score of 0 is {html_text(board['baseline'])}, one of 1 is "
        f"{html_text(board['ceiling'])}; means over scenarios. Methods of one group are not told "
        "apart from its best, after Holm's correction; classes are groups of their own. "
        f"{_there(about)}</p>",
        "",
    ]
    if "computed" in shown.table:
        meanings = "; ".join(f"<i>{word}</i>: {meaning}" for word, meaning in COMPUTED.items())
        lines += [f"<p>Some rows are entries of others. {meanings}.</p>", ""]
    for starts, rows in shown.table.groupby("starts", sort=False):
        lines += [f"### Clients of {starts}", "", _table(shown, str(starts), rows), ""]
        lines += [_handed(rows), ""]
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
    """For the home page: of each class the methods that are not told apart from its best, what
    they reach and cost, and the picture of costs. Empty where no method has a group."""
    table = shown.table
    starts = table["starts"].iloc[0]
    first = table[(table["starts"] == starts) & (table["group"] == 1)]
    rows = [
        (
            html_text(kind),
            ", ".join(f"<b>{html_text(name)}</b>" for name in members["method"]),
            _range(members["score"], _number),
            _range(members["bytes_up"], lambda sent: f"{sent:.1f} ×"),
        )
        for kind, members in first.groupby("class", sort=False)
    ]
    if not rows:
        return []
    board, link = shown.about["board"], f"papers/{shown.key.partition('/')[0]}.html"
    picture = f"shown/{shown.key}.bytes.svg"
    name = f"{shown.key}: the first group of each class"
    heads = ("What predicts", "Not told apart from the best", "Score", "Bytes sent")
    return [
        f'## <a href="{link}">Which method should I take?</a>',
        "",
        f"<p>A score of 0 is {html_text(board['baseline'])}, one of 1 is "
        f"{html_text(board['ceiling'])}. {_there(shown.about)}</p>",
        "",
        wide(data_table(heads, rows, name, "plain"), name),
        "",
        f'<figure><a href="{link}"><img src="{picture}" alt="{PICTURES["bytes"]}"></a>'
        f"<figcaption>{PICTURES['bytes']}</figcaption></figure>",
        "",
    ]


def _range(values: Any, told: Callable[[float], str]) -> str:
    low, high = told(float(values.min())), told(float(values.max()))
    return low if low == high else f"{low} to {high}"


def _there(about: Mapping[str, Any]) -> str:
    """Which of its exhibits it is made of."""
    whole = len(about["parts"]) + len(about["missing"])
    text = f"Made from {len(about['parts'])} of {whole} exhibits."
    if about["without_score"]:
        names = "; ".join(about["without_score"])
        text += f" Without a score, since baseline and ceiling are too near: {names}."
    return html_text(text)


def _table(shown: ShownBoard, starts: str, methods: Any) -> str:
    line = shown.about["board"]["line"]
    heads = [head.format(line=line) for head in HEADS]
    heads += ["Computed"] if "computed" in shown.table else []
    rows = [_row(shown, starts, row) for row in methods.to_dict("records")]
    name = f"{shown.key}, clients of {starts}"
    return wide(data_table(heads, rows, name), name)


def _row(shown: ShownBoard, starts: str, row: Mapping[str, Any]) -> Sequence[str]:
    beside = row[next(key for key in row if key.startswith("beside_"))]
    rank = "" if _none(row["rank_low"]) else f"{row['rank_low']:g} to {row['rank_high']:g}"
    if row["rank_low"] == row["rank_high"]:
        rank = f"{row['rank_low']:g}"
    score = f"{_number(row['score_low'])} to {_number(row['score_high'])}"
    return (
        "" if _none(row["group"]) else f"<b>{row['group']:g}</b>",
        f"<b>{html_text(row['method'])}</b>",
        html_text(row["class"]),
        "" if _none(row["score"]) else _number(row["score"]),
        "" if _none(row["score"]) else score,
        rank or _text(row["without_rank"]),
        _text(beside),
        f"{row['bytes_up']:.1f} ×" if row["bytes_up"] else "0",
        f"{row['exchanges']:.0f}",
        f"{row['passes']:.1f}",
        _seconds(shown, starts, row["method"]),
        f"{row['parameters']:,.0f}",
        f"{row['settings_tried']:g}",
        *([_computed(str(row["computed"]))] if "computed" in row else []),
    )


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
