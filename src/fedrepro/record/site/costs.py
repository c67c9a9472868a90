"""A table of each method's costs and needs, from the files of an exhibit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from fedrepro.drawings.tables import TextCell, TextTable
from fedrepro.numbers.cost_words import megabytes, needs_in_words, times
from fedrepro.numbers.exhibit_tables import ROUND, leading_columns
from fedrepro.planning.figure_interface import final

PLAIN = ("fedavg", "average")  # the first of these in an exhibit is the measure of the others
OTHERS = ("rounds", "passes", "parameters", "seconds")


@dataclass(frozen=True)
class MethodCosts:
    """A method of an exhibit: each of its numbers at the points that have it, in their order.

    sent: bytes of all clients; ratios: as multiples of the plain method at the same point.
    seconds: of a trial, clients and server together.
    """

    label: str
    sees: str
    sent: Sequence[float]
    ratios: Sequence[float]
    exchanges: Sequence[float]
    passes: Sequence[float]
    parameters: Sequence[float]
    seconds: Sequence[float]


def costs_of(
    about: Mapping[str, Any],
    numbers: pd.DataFrame,
    seconds: Mapping[str, Sequence[float]] | None = None,
) -> tuple[str, list[MethodCosts]]:
    """Compute the costs of methods whose clients send anything.

    Args:
        about: the json of an exhibit.
        numbers: its csv.
        seconds: measured seconds of a trial by setting, where the csv has none.

    Returns:
        The label of the plain method, and the costs of all; both empty if fewer than two methods
        send, or one method at several nodes or settings sends the same everywhere.
    """
    ended = final(numbers)
    places = [name for name in leading_columns(ended) if name != ROUND]
    held: dict[tuple[str, str], dict[tuple[str, ...], float]] = {}
    for row in ended.to_dict("records"):
        place = tuple(str(row[name]) for name in places)
        held.setdefault((row["method"], row["metric"]), {})[place] = row["mean"]
    methods = {
        method["label"]: method
        for method in about["methods"]
        if any(held.get((method["label"], "bytes_up"), {}).values())
    }
    alike = len({tuple(held[label, "bytes_up"].values()) for label in methods}) == 1
    by_name = {method["name"]: label for label, method in reversed(methods.items())}
    if len(methods) < 2 or (alike and len(by_name) == 1):
        return "", []
    plain = next((by_name[name] for name in PLAIN if name in by_name), next(iter(methods)))
    base, found = held[plain, "bytes_up"], []
    for label, method in methods.items():
        sent = held[label, "bytes_up"]
        by_metric = {m: list(held.get((label, m), {}).values()) for m in OTHERS}
        if seconds and not by_metric["seconds"]:
            others = set(ended["setting"][ended["method"] != label])
            settings = [one for one in dict.fromkeys(ended["setting"]) if one not in others]
            by_metric["seconds"] = [one for token in settings for one in seconds.get(token, ())]
        ratios = [value / base[place] for place, value in sent.items() if base.get(place)]
        sees = needs_in_words(method["needs"], method.get("sends", ""))
        found.append(MethodCosts(label, sees, list(sent.values()), ratios, *by_metric.values()))
    return plain, found


def cost_table(plain: str, costs: Sequence[MethodCosts]) -> tuple[str, list[dict[str, str]]]:
    """Arrange the results of `costs_of`: a sentence on who sends how much, and rows by head."""
    columns: dict[str, Callable[[MethodCosts], str]] = {
        "Method": lambda method: method.label,
        "Clients send": lambda method: _range(method.sent, megabytes),
        f"Times {plain}": lambda method: _range(method.ratios, _times),
        "Exchanges": lambda method: _range(method.exchanges, _count),
        "Passes": lambda method: _range(method.passes, _count),
        "Parameters": lambda method: _range(method.parameters, _count),
        "Seconds a trial": lambda method: _range(method.seconds, "{:.3g}".format),
        "It sees": lambda method: method.sees,
    }
    filled = {head: text for head, text in columns.items() if any(map(text, costs))}
    rows = [{head: text(method) for head, text in filled.items()} for method in costs]
    quoted = {
        name: f"“{name}”" if "," in name else name for name in (plain, *(c.label for c in costs))
    }
    groups: dict[str, list[str]] = {}
    for method in costs:
        if method.label != plain and method.ratios:
            groups.setdefault(_range(method.ratios, _times), []).append(quoted[method.label])
    same = groups.pop(_times(1.0), [])
    if not groups:
        return f"Costs: all methods send as much as {quoted[plain]}", rows
    more = "; ".join(f"{text} {quoted[plain]}: {', '.join(who)}" for text, who in groups.items())
    others = f"; the others as much as {quoted[plain]}" if same else ""
    return f"Costs: clients send {more}{others}", rows


def with_sent(
    table: TextTable, about: Mapping[str, Any], costs: Sequence[MethodCosts]
) -> TextTable:
    """Add a column of sent bytes to a table whose rows are methods; others stay as they are.

    Under the bytes stands their multiple of the plain method.
    """
    labels = {method["label"] for method in about["methods"]}
    if len(table.corner) != 1 or not costs or any(r.heads[0] not in labels for r in table.rows):
        return table
    depth = max((1, *map(len, table.heads)))
    heads = [(*("",) * (depth - len(head)), *head) for head in (*table.heads, ("Clients send",))]
    cells = {
        one.label: TextCell(
            text=_range(one.sent, megabytes),
            below=tuple(filter(None, [_range(one.ratios, _times)])),
        )
        for one in costs
    }
    nothing = TextCell(text="nothing")
    rows = [
        replace(row, cells=(*row.cells, cells.get(row.heads[0], nothing))) for row in table.rows
    ]
    return replace(table, heads=tuple(heads), rows=tuple(rows))


def _times(value: float) -> str:
    return times(value, 1.0)


def _count(value: float) -> str:
    return f"{value:,.4g}" if value < 10_000 else f"{value:,.0f}"


def _range(values: Sequence[float], text: Callable[[float], str]) -> str:
    """Write the least and the most, or the one number that they are."""
    known = [value for value in values if value == value]
    ends = dict.fromkeys(text(end) for end in (min(known), max(known))) if known else {}
    return " to ".join(ends)
