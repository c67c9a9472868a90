"""What the tests with odd inputs share: odd values, mutations, and what may come of them."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st

from fedrepro.core.errors import FedreproError
from fedrepro.core.params import Param
from fedrepro.core.spec import Component

LONGEST = 700  # letters of a sentence


def some(count: int) -> settings:
    """So many examples, and more under a profile that asks for more."""
    most = max(1, count * settings.default.max_examples // 100)
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    return settings(max_examples=most, suppress_health_check=slow)


def done_or_said(call: Callable[[], Any]) -> Any:
    """What the call gives, or None if one sentence refused it; other errors go through."""
    try:
        done = call()
        event("done")
        return done
    except FedreproError as error:
        event("said")
        words = str(error)
        assert "\n" not in words
        assert 10 < len(words) <= LONGEST, words
        return None


ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3.5, -0.5, 1e300, float("nan"), float("inf"), 10**9, 10**30,
    "", "x", "mlp", "iid", "none", "a/b", "a,b", "ü", "\0", "../x", "@", "~", "+", "quick",
    [], [[]], [1, 2], [1, 1], [1, 1.0], ["a"], [None], [{}], {}, {"name": "mnist"}, {"name": None},
    {"name": ["pfnm"]}, {"a": 1}, {1: 2}, {None: None}, {True: 1}, datetime.date(2020, 1, 1),
    {"name": "pfnm", "sigma2": [[1]]}, {"name": "average", "label": "PFNM"}, {"tiny": 3},
    {"tiny": {"trials": None}}, {"quik": {}}, "claims", "heat-maps", "lines", "table",
    "accuracy-close-up",
]  # fmt: skip
KEYS: list[Any] = [
    "x", "name", "trials", "at", "sweep", "cases", "show", "choose", "methods", "label", "drawing",
    "partition.clients", "model.hidden", "dataset", "training.epochs", "measure_every", "graph",
    "graph.weights", None, 1,
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


@st.composite
def mutated(draw: st.DrawFn, base: Any) -> Any:
    """The nested value with one to three things replaced, removed, added or moved."""
    value = copy.deepcopy(base)
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        found = list(places(value))
        if not found:
            break
        *above, key = draw(st.sampled_from(found))
        holder = _at(value, above)
        odd = copy.deepcopy(draw(st.sampled_from(ODD)))
        match draw(st.sampled_from(["replace", "remove", "add", "move"])):
            case "replace":
                holder[key] = odd
            case "remove":
                del holder[key]
            case "add" if isinstance(holder, dict):
                holder[draw(st.sampled_from(KEYS))] = odd
            case "add":
                holder.insert(0, odd)
            case _:
                holder[key] = copy.deepcopy(_at(value, draw(st.sampled_from(found))))
    return value


def _at(value: Any, path: Any) -> Any:
    for key in path:
        value = value[key]
    return value


WHOLE = [-1, 0, 1, 2, 3, 5, 7, 11, 198, 10**7, 2**31, 2**63, 10**20]
REAL = [-1.0, 0.0, 1e-300, 1e-30, 1e-3, 0.1, 0.5, 0.9, 1.0, 1.5, 10.0, 1e3, 1e6, 1e30, 1e300]
TEXTS = ["x", "0-1", "0-1-2-3-4-5-6-7-8-9", "9-9", "12", "-", "none", "pixels", "convnet", "ü"]


def values_of(param: Param, whole: list[int]) -> st.SearchStrategy[Any]:
    """Values of a parameter: mostly legal ones, then those beyond its range, lists, and none."""
    pool: Any = {bool: [True, False], int: whole, float: REAL, str: param.choices or TEXTS}
    values = list(pool[param.type])
    legal = st.sampled_from([value for value in values if _is_legal(param, value)] or values)
    several = st.lists(legal, min_size=1, max_size=3, unique=True)
    usual = several if param.many else legal
    return st.one_of(usual, usual, usual, st.sampled_from(values), several, st.none())


def _is_legal(param: Param, value: Any) -> bool:
    try:
        param.check(value, "")
    except FedreproError:
        return False
    return True


@st.composite
def settings_of(
    draw: st.DrawFn, found: list[Component], whole: list[int], **given: Any
) -> tuple[Component, dict[str, Any]]:
    """A component, and odd values for some of its parameters; `given` where it has such ones."""
    component = draw(st.sampled_from(found))
    params = component.params
    values: dict[str, Any] = {key: 2 for key, param in params.items() if param.required}
    values |= {key: value for key, value in given.items() if key in params}
    for key in draw(st.lists(st.sampled_from(sorted(params) or [""]), max_size=3, unique=True)):
        if key:
            values[key] = draw(values_of(params[key], whole))
    return component, values


@st.composite
def spoiled(draw: st.DrawFn, good: bytes, most: int = 4) -> bytes:
    """The bytes with a few of them changed, removed, added, blanked or moved, or cut short."""
    data = bytearray(good)
    for _ in range(draw(st.integers(1, most))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        size = draw(st.sampled_from([1, 1, 4, 40, 400]))
        match draw(st.sampled_from(["flip", "set", "remove", "add", "blank", "copy", "cut"])):
            case "flip":
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "set":
                data[at] = draw(st.integers(0, 255))
            case "remove":
                del data[at : at + size]
            case "add":
                data[at:at] = draw(st.binary(min_size=1, max_size=size))
            case "blank":
                data[at : at + size] = bytes(len(data[at : at + size]))
            case "copy":
                start = draw(st.integers(0, len(data) - 1))
                data[at : at + size] = data[start : start + size]
            case _:
                del data[at:]
    return bytes(data)
