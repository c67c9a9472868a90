"""A table of each method's costs and needs, from the files of an exhibit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from fedrepro.drawings.tables import TextCell, TextTable
from fedrepro.numbers.costs import megabytes, seen, times
from fedrepro.numbers.summary import ROUND, leading_columns
from fedrepro.planning.drawing import final

PLAIN = ("fedavg", "average")  # the first of these in an exhibit is the measure of the others


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
    sending = {
        label
        for (label, metric), by_place in held.items()
        if metric == "bytes_up" and any(by_place.values())
    }
    methods = {m["label"]: m for m in about["methods"] if m["label"] in sending}
    if len(methods) < 2:
        return "", []
    alike = len({tuple(held[label, "bytes_up"].values()) for label in methods}) == 1
    if alike and len({method["name"] for method in methods.values()}) == 1:
        return "", []  # one method in several settings
    plain = next(
        (label for name in PLAIN for label, m in methods.items() if m["name"] == name),
        next(iter(methods)),
    )
    base = held[plain, "bytes_up"]
    costs = []
    for label, method in methods.items():
        sent = held[label, "bytes_up"]
        by_metric = {m: list(held.get((label, m), {}).values()) for m in OTHERS}
        ratios = [value / base[place] for place, value in sent.items() if base.get(place)]
        sees = seen(method["needs"], method.get("sends", ""))
        by_metric["seconds"] = by_metric["seconds"] or _seconds(label, ended, seconds or {})
        costs.append(MethodCosts(label, sees, list(sent.values()), ratios, *by_metric.values()))
    return plain, costs


OTHERS = ("rounds", "passes", "parameters", "seconds")


def _seconds(
    label: str, final: pd.DataFrame, seconds: Mapping[str, Sequence[float]]
) -> list[float]:
    """Return the seconds of a method's settings that no other method of the exhibit has."""
    settings = dict.fromkeys(final["setting"][final["method"] == label])
    others = set(final["setting"][final["method"] != label])
    return [value for token in settings if token not in others for value in seconds.get(token, ())]


@dataclass(frozen=True)
class CostTable:
    """Costs and needs of an exhibit's methods; `head` says who sends how many times as much."""

    head: str
    heads: list[str]
    rows: list[list[str]]


def cost_table(plain: str, costs: Sequence[MethodCosts]) -> CostTable | None:
    """Arrange the results of `costs_of` as a table, or return None if there are none."""
    if not costs:
        return None
    columns: dict[str, Callable[[MethodCosts], str]] = {
        "Method": lambda method: method.label,
        "Clients send": lambda method: _range(method.sent, megabytes),
        f"Times {plain}": lambda method: _range(method.ratios, _times),
        "Exchanges": lambda method: _range(method.exchanges, _count),
        "Passes beside training": lambda method: _range(method.passes, _count),
        "Parameters": lambda method: _range(method.parameters, _count),
        "Seconds a trial": lambda method: _range(method.seconds, "{:.3g}".format),
        "It sees": lambda method: method.sees,
    }
    cells = {head: [tell(method) for method in costs] for head, tell in columns.items()}
    heads = [head for head, column in cells.items() if any(column)]  # empty columns are left out
    rows = [[cells[head][at] for head in heads] for at in range(len(costs))]
    return CostTable(_head(plain, costs), heads, rows)


def with_sent(
    table: TextTable, about: Mapping[str, Any], costs: Sequence[MethodCosts]
) -> TextTable:
    """Add a column of sent bytes to a table whose rows are methods; others stay as they are.

    Under the bytes stands their multiple of the plain method.
    """
    labels = {method["label"] for method in about["methods"]}
    if len(table.corner) != 1 or not costs or any(r.heads[0] not in labels for r in table.rows):
        return table
    known = {method.label: method for method in costs}
    depth = max((1, *map(len, table.heads)))
    heads = [(*("",) * (depth - len(head)), *head) for head in (*table.heads, ("Clients send",))]
    rows = []
    for row in table.rows:
        row_costs = known.get(row.heads[0])
        below = tuple(filter(None, [_range(row_costs.ratios, _times)])) if row_costs else ()
        sent = _range(row_costs.sent, megabytes) if row_costs else "nothing"
        rows.append(replace(row, cells=(*row.cells, TextCell(text=sent, below=below))))
    return replace(table, heads=tuple(heads), rows=tuple(rows))


def _head(plain: str, costs: Sequence[MethodCosts]) -> str:
    """Say in a line how many times as much as the plain method others send."""
    groups: dict[str, list[str]] = {}
    for method in costs:
        if method.label != plain and method.ratios:
            groups.setdefault(_range(method.ratios, _times), []).append(method.label)
    same = groups.pop(_times(1.0), [])
    if not groups:
        return f"Costs: all methods send as much as {_quoted(plain)}"
    summary = "; ".join(
        f"{text} {_quoted(plain)}: {', '.join(map(_quoted, labels))}"
        for text, labels in groups.items()
    )
    return f"Costs: clients send {summary}" + (
        f"; the others as much as {_quoted(plain)}" if same else ""
    )


def _quoted(label: str) -> str:
    return f"“{label}”" if "," in label else label


def _times(value: float) -> str:
    return times(value, 1.0)


def _count(value: float) -> str:
    return f"{value:,.4g}" if value < 10_000 else f"{value:,.0f}"


def _range(values: Sequence[float], text: Callable[[float], str]) -> str:
    """Write the least and the most, or the one number that they are."""
    known = [value for value in values if value == value]
    ends = dict.fromkeys(text(end) for end in (min(known), max(known))) if known else {}
    return " to ".join(ends)
