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
    rounds: Sequence[float]
    passes: Sequence[float]
    parameters: Sequence[float]
    seconds: Sequence[float]


def costs_of(
    about: Mapping[str, Any],
    numbers: pd.DataFrame,
    seconds: Mapping[str, Sequence[float]] | None = None,
) -> tuple[str, list[MethodCosts]]:
    """Compute what the methods of an exhibit send, compute and see, if their clients send.

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
    methods = {m["label"]: m for m in about["methods"]}
    sending = {
        label: sent
        for label in methods
        if any((sent := held.get((label, "bytes_up"), {})).values())
    }
    by_name = {methods[label]["name"]: label for label in reversed(sending)}
    alike = len({tuple(sent.values()) for sent in sending.values()}) == 1
    if len(sending) < 2 or (alike and len(by_name) == 1):
        return "", []
    plain = next((by_name[name] for name in PLAIN if name in by_name), next(iter(sending)))
    base, found = sending[plain], []
    for label, sent in sending.items():
        others = {
            metric: list(held.get((label, metric), {}).values())
            for metric in ("rounds", "passes", "parameters", "seconds")
        }
        if seconds and not others["seconds"]:
            shared = set(ended["setting"][ended["method"] != label])
            own = [one for one in dict.fromkeys(ended["setting"]) if one not in shared]
            others["seconds"] = [one for token in own for one in seconds.get(token, ())]
        ratios = [value / base[place] for place, value in sent.items() if base.get(place)]
        sees = needs_in_words(methods[label]["needs"], methods[label].get("sends", ""))
        found.append(MethodCosts(label, sees, [*sent.values()], ratios, **others))
    return plain, found


def cost_table(plain: str, costs: Sequence[MethodCosts]) -> tuple[str, list[dict[str, str]]]:
    """Arrange the results of `costs_of`: a sentence on who sends how much, and rows by head."""
    columns: dict[str, Callable[[MethodCosts], str]] = {
        "Method": lambda method: method.label,
        "Clients send": lambda method: _range(method.sent, megabytes),
        f"Times {plain}": lambda method: _range(method.ratios, _times),
        "Exchanges": lambda method: _range(method.rounds, _count),
        "Passes": lambda method: _range(method.passes, _count),
        "Parameters": lambda method: _range(method.parameters, _count),
        "Seconds a trial": lambda method: _range(method.seconds, "{:.3g}".format),
        "It sees": lambda method: method.sees,
    }
    filled = {head: text for head, text in columns.items() if any(map(text, costs))}
    rows = [{head: text(method) for head, text in filled.items()} for method in costs]
    named = {
        name: f"“{name}”" if "," in name else name for name in (plain, *(c.label for c in costs))
    }
    groups: dict[str, list[str]] = {}
    for method in costs:
        if method.label != plain and method.ratios:
            groups.setdefault(_range(method.ratios, _times), []).append(named[method.label])
    same = groups.pop(_times(1.0), [])
    if not groups:
        return f"Costs: all methods send as much as {named[plain]}", rows
    more = "; ".join(f"{text} {named[plain]}: {', '.join(who)}" for text, who in groups.items())
    return f"Costs: clients send {more}" + f"; the others as much as {named[plain]}" * bool(
        same
    ), rows


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
    cells = {}
    for one in costs:
        ratio = _range(one.ratios, _times)
        cells[one.label] = TextCell(
            text=_range(one.sent, megabytes), below=(ratio,) if ratio else ()
        )
    nothing = TextCell(text="nothing")
    rows = [replace(r, cells=(*r.cells, cells.get(r.heads[0], nothing))) for r in table.rows]
    return replace(table, heads=tuple(heads), rows=tuple(rows))


def _times(value: float) -> str:
    return times(value, 1.0)


def _count(value: float) -> str:
    return f"{value:,.4g}" if value < 10_000 else f"{value:,.0f}"


def _range(values: Sequence[float], text: Callable[[float], str]) -> str:
    """Write the least and the largest of `values` as a range, or once if both read the same."""
    known = [value for value in values if value == value]
    ends = dict.fromkeys(text(end) for end in (min(known), max(known))) if known else {}
    return " to ".join(ends)
