"""A table of each method's costs and needs, from the files of an exhibit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd

from fedrepro.drawings.tables import TextCell, TextTable
from fedrepro.numbers.cost_words import megabytes, needs_in_words, times
from fedrepro.numbers.exhibit_tables import ROUND, leading_columns
from fedrepro.planning.figure_interface import final

PLAIN = ("fedavg", "average")  # the first of these in an exhibit is the measure of the others


class MethodCosts(NamedTuple):
    """Costs of a method in one figure or table: what it needs to see besides weights, and numbers.

    numbers: by name, a value for each point (value of swept parameters) that has one. sent: bytes
    of all clients; ratios: those as multiples of the plain method's at the same point; seconds: of
    a trial, clients and server together; rounds, passes and parameters.
    """

    sees: str
    numbers: Mapping[str, Sequence[float]]


def costs_of(
    about: Mapping[str, Any],
    numbers: pd.DataFrame,
    seconds: Mapping[str, Sequence[float]] | None = None,
) -> tuple[str, dict[str, MethodCosts]]:
    """Compute bytes sent, rounds, passes, parameters and seconds of a figure's or table's methods.

    Args:
        about: the json of the figure or table.
        numbers: its csv.
        seconds: measured seconds of a trial by setting, where the csv has none.

    Returns:
        The label of the plain method (such as FedAvg), and the costs of all by label; empty if
        fewer than two methods send, or one method at several nodes or settings sends equally much.
    """
    ended = final(numbers)
    places = [name for name in leading_columns(ended) if name != ROUND]
    held: dict[tuple[str, str], dict[tuple[str, ...], float]] = {}
    for row in ended.to_dict("records"):
        place = tuple(str(row[name]) for name in places)
        held.setdefault((row["method"], row["metric"]), {})[place] = row["mean"]
    methods = {method["label"]: method for method in about["methods"]}
    sending = {label: held.get((label, "bytes_up"), {}) for label in methods}
    sending = {label: sent for label, sent in sending.items() if any(sent.values())}
    by_name = {methods[label]["name"]: label for label in reversed(sending)}
    alike = len({tuple(sent.values()) for sent in sending.values()}) == 1
    if len(sending) < 2 or (alike and len(by_name) == 1):
        return "", {}
    plain = next((by_name[name] for name in PLAIN if name in by_name), next(iter(sending)))
    base, found = sending[plain], {}
    for label, sent in sending.items():
        own = {"sent": [*sent.values()]}
        own["ratios"] = [value / base[place] for place, value in sent.items() if base.get(place)]
        for metric in ("rounds", "passes", "parameters", "seconds"):
            own[metric] = [*held.get((label, metric), {}).values()]
        if seconds and not own["seconds"]:
            shared = set(ended["setting"][ended["method"] != label])
            settings = [one for one in dict.fromkeys(ended["setting"]) if one not in shared]
            own["seconds"] = [one for token in settings for one in seconds.get(token, ())]
        sees = needs_in_words(methods[label]["needs"], methods[label].get("sends", ""))
        found[label] = MethodCosts(sees, own)
    return plain, found


def cost_table(plain: str, costs: Mapping[str, MethodCosts]) -> tuple[str, list[dict[str, str]]]:
    """Write the results of `costs_of` as a sentence on who sends how much, and rows of a table.

    `plain` is the label of the method to compare with. A row is a dict from column head to text,
    one for each method; columns without any text are left out.
    """
    columns = {
        "Clients send": ("sent", megabytes),
        f"Times {plain}": ("ratios", _times),
        "Exchanges": ("rounds", _count),
        "Passes": ("passes", _count),
        "Parameters": ("parameters", _count),
        "Seconds a trial": ("seconds", "{:.3g}".format),
    }
    rows = [
        {
            "Method": label,
            **{head: _range(one.numbers[name], text) for head, (name, text) in columns.items()},
            "It sees": one.sees,
        }
        for label, one in costs.items()
    ]
    empty = [head for head in (*columns, "It sees") if not any(row[head] for row in rows)]
    rows = [{head: text for head, text in row.items() if head not in empty} for row in rows]
    named = {name: f"“{name}”" if "," in name else name for name in (plain, *costs)}
    groups: dict[str, list[str]] = {}
    for label, one in costs.items():
        if label != plain and one.numbers["ratios"]:
            groups.setdefault(_range(one.numbers["ratios"], _times), []).append(named[label])
    same = groups.pop(_times(1.0), [])
    if not groups:
        return f"Costs: all methods send as much as {named[plain]}", rows
    more = "; ".join(f"{text} {named[plain]}: {', '.join(who)}" for text, who in groups.items())
    others = f"; the others as much as {named[plain]}" if same else ""
    return f"Costs: clients send {more}{others}", rows


def with_sent(
    table: TextTable, about: Mapping[str, Any], costs: Mapping[str, MethodCosts]
) -> TextTable:
    """Return a table whose rows are methods with a column of the bytes that clients send.

    Below the bytes stands their multiple of the plain method's. Any other table is returned
    unchanged. `about` is the json of the table, `costs` the result of `costs_of`.
    """
    labels = {method["label"] for method in about["methods"]}
    if len(table.corner) != 1 or not costs or any(r.heads[0] not in labels for r in table.rows):
        return table
    depth = max((1, *map(len, table.heads)))
    heads = [(*("",) * (depth - len(head)), *head) for head in (*table.heads, ("Clients send",))]

    def sent(label: str) -> TextCell:
        if label not in costs:
            return TextCell(text="nothing")
        bytes_sent, ratios = (costs[label].numbers[name] for name in ("sent", "ratios"))
        below = tuple(filter(None, [_range(ratios, _times)]))
        return TextCell(text=_range(bytes_sent, megabytes), below=below)

    rows = [replace(row, cells=(*row.cells, sent(row.heads[0]))) for row in table.rows]
    return replace(table, heads=tuple(heads), rows=tuple(rows))


def _times(value: float) -> str:
    return times(value, 1.0)


def _count(value: float) -> str:
    return f"{value:,.4g}" if value < 10_000 else f"{value:,.0f}"


def _range(values: Sequence[float], text: Callable[[float], str]) -> str:
    """Write the least and the largest of `values` as "1 to 3", or once if their texts are equal."""
    known = [value for value in values if value == value]
    ends = dict.fromkeys(text(end) for end in (min(known), max(known))) if known else {}
    return " to ".join(ends)
