"""Make a table of each method's costs and needs, from the files of a figure or table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from fedrepro.numbers.cost_words import megabytes, needs_in_words, times
from fedrepro.numbers.exhibit_tables import ROUND, leading_columns
from fedrepro.planning.figure_interface import final

PLAIN = ("fedavg", "average")  # the first of these in an exhibit is the measure of the others
COUNTED = {"Exchanges": "rounds", "Passes": "passes", "Parameters": "parameters"}


def cost_table(
    about: Mapping[str, Any],
    numbers: pd.DataFrame,
    seconds: Mapping[str, Sequence[float]] | None = None,
) -> list[dict[str, str]]:
    """Return a table of the costs of methods: bytes, rounds, passes, parameters, seconds, needs.

    `about` and `numbers` are the json and the csv of a figure or table. `seconds` has seconds of
    trials by method with parameters, as text, where the csv has none.

    Returns:
        For each method that sends bytes, a dict from column head to text; columns that are empty
        for all
        are left out. [] if fewer than two methods send bytes, or if all are one method, at several
        nodes or
        parameter values, that always sends equally many. Bytes are also given as multiples of those
        of a
        plain method, such as FedAvg, at equal swept parameters.
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
        return []
    plain = next((by_name[name] for name in PLAIN if name in by_name), next(iter(sending)))
    base, rows = sending[plain], []
    for label, sent in sending.items():
        ratios = [value / base[place] for place, value in sent.items() if base.get(place)]
        took = [*held.get((label, "seconds"), {}).values()]
        if seconds and not took:
            shared = set(ended["setting"][ended["method"] != label])
            own = [str(one) for one in ended["setting"].unique() if one not in shared]
            took = [one for token in own for one in seconds.get(token, ())]
        cells = {"Method": label, "Clients send": _range(sent.values(), megabytes)}
        cells[f"Times {plain}"] = _range(ratios, lambda ratio: times(ratio, 1.0))
        for head, metric in COUNTED.items():
            cells[head] = _range(held.get((label, metric), {}).values(), _count)
        cells["Seconds a trial"] = _range(took, "{:.3g}".format)
        cells["It sees"] = needs_in_words(methods[label]["needs"], methods[label].get("sends", ""))
        rows.append(cells)
    kept = [head for head in rows[0] if any(one[head] for one in rows)]
    return [{head: one[head] for head in kept} for one in rows]


def _count(value: float) -> str:
    return f"{value:,.4g}" if value < 10_000 else f"{value:,.0f}"


def _range(values: Iterable[float], text: Callable[[float], str]) -> str:
    """Write the least and the largest of `values` as "1 to 3", or once if their texts are equal."""
    known = [value for value in values if value == value]
    ends = dict.fromkeys(text(end) for end in (min(known), max(known))) if known else {}
    return " to ".join(ends)
