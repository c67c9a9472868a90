"""Parameters of components: keyword-only arguments, annotated as `Annotated[float, Arg("...")]`."""

from __future__ import annotations

import inspect
import math
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedrepro.core.errors import FedreproError, shown

Scalar = int | float | bool | str | None
Value = Scalar | tuple[Scalar, ...]

LARGEST = 1_000_000  # of a whole number whose Arg says nothing else
REACH = 1e38  # of single precision, in which models are
PAIRED = "paired"  # not a parameter: how many settings a token lists one by one
SAFE = re.compile(r"[A-Za-z0-9_.\-]+")  # a text, since values are part of file names
NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Arg:
    """The description of a parameter: meaning, unit, and bounds (`above` is exclusive).

    later: whether it is newer than recorded results, so that result files leave out its default.
    """

    doc: str
    unit: str = ""
    above: float | None = None
    least: float | None = None
    most: float | None = None
    later: bool = False


@dataclass(frozen=True)
class Param:
    """A component's parameter. arg: meaning. many: a list of `type`. optional: it may be None."""

    name: str
    type: type[int] | type[float] | type[bool] | type[str]
    many: bool
    optional: bool
    default: Value
    required: bool
    arg: Arg
    choices: tuple[str, ...] = ()

    def check(self, value: Any, where: str) -> Value:
        """Convert `value` to the type, a list to a tuple; FedreproErrors begin with `where`."""
        items = list(value) if isinstance(value, list | tuple) else [value]
        if not items:
            raise FedreproError(f"{where}: '{self.name}' is an empty list; give a value")
        if not self.many:
            return self.scalar(value, where)
        if self.optional and items == [None]:
            return None
        if None in items:
            said = f"{where}: parameter '{self.name}' has none in a list"
            raise FedreproError(f"{said}; leave it out")
        return tuple(self.scalar(item, where) for item in items)

    def scalar(self, value: Any, where: str) -> Scalar:
        """Convert a value, not a list, to the type; FedreproErrors begin with `where`."""
        if value is None and self.optional:
            return None
        if wrong := self._wrong(value):
            raise FedreproError(f"{where}: parameter '{self.name}' {wrong}")
        return value if self.type in (bool, str) else self.type(value)

    def _wrong(self, value: Any) -> str:
        arg, kinds = self.arg, {bool: "true or false", int: "a whole number", float: "a number"}
        if value is None:
            return "needs a value; it cannot be none"
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(self.choices)}, not {shown(value)}"
        if self.type is str:
            safe = isinstance(value, str) and SAFE.fullmatch(value)
            return "" if safe else f"may use letters, digits, _ . - only, not {shown(value)}"
        fits = isinstance(value, bool) == (self.type is bool) and isinstance(value, int | float)
        if not (fits and -math.inf < value < math.inf) or (self.type is int and value % 1):
            return f"must be {kinds[self.type]}, not {shown(value)}"
        if self.type is not bool and abs(value) > REACH:
            return f"must be at most {REACH:g} in size, not {value}"
        if arg.above is not None and value <= arg.above:
            return f"must be above {arg.above:g}, not {value}"
        if arg.least is not None and value < arg.least:
            return f"must be at least {arg.least:g}, not {value}"
        most = LARGEST if arg.most is None and self.type is int else arg.most
        if most is not None and value > most:
            text = f"{most:,}" if isinstance(most, int) else f"{most:g}"
            return f"must be at most {text}, not {value}"
        return ""

    def read_list(self, text: str, where: str) -> Scalar | list[Scalar]:
        """Parse a value as 0.1, or 1@5 for a list of 1 and 5; FedreproErrors begin with `where`."""
        items = [self._read(item, where) for item in text.split("@")]
        return items if self.many or len(items) > 1 else items[0]

    def _read(self, text: str, where: str) -> Scalar:
        if self.optional and text == "none":
            return None
        if self.type is bool and text in ("true", "false"):
            return text == "true"
        try:
            value = text if self.type is str else int(text) if self.type is int else float(text)
        except ValueError:
            why = f"{where}: parameter '{self.name}' cannot be read from '{text}'"
            raise FedreproError(why) from None
        return self.scalar(value, where)


def render(value: Value) -> str:
    """Return a parameter value as text: 10 for 10.0, 1e-06 for 0.000001, none, 1@2 for a list."""
    if isinstance(value, tuple):
        return "@".join(map(render, value))
    if isinstance(value, float):
        return repr(value).replace("e+", "e").removesuffix(".0")
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def comparable_text(value: Any) -> str:
    """Return a table's cell as text with ten digits: 1 for 1, for 1.0 and for the text "1.0"."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return render(value)
    try:
        return f"{float(value):.10g}"
    except ValueError:
        return str(value)


def read_signature(fn: Callable[..., Any]) -> dict[str, Param]:
    """Return the arguments of a function or class that an `Arg` annotates, as Params by name."""
    hinted = fn
    if inspect.isclass(fn):  # a dataclass has hints of its own, another class those of `__init__`
        owner = next(base for base in fn.__mro__ if "__init__" in vars(base))
        hinted = owner if "__dataclass_params__" in vars(owner) else vars(owner)["__init__"]
    hints = typing.get_type_hints(hinted, include_extras=True)
    params: dict[str, Param] = {}
    for name, item in inspect.signature(fn).parameters.items():
        for arg in getattr(hints.get(name), "__metadata__", ()):
            if isinstance(arg, Arg):
                params[name] = _param(name, typing.get_args(hints[name])[0], item.default, arg)
    return params


def _param(name: str, hint: Any, default: Any, arg: Arg) -> Param:
    if optional := isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint):
        hint = next(a for a in typing.get_args(hint) if a is not type(None))
    if many := typing.get_origin(hint) is tuple:
        hint = typing.get_args(hint)[0]
    choices = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    hint = str if choices else hint
    if hint not in (int, float, bool, str) or not NAME.fullmatch(name) or name == PAIRED:
        raise TypeError(f"parameter {name!r} cannot be a token: {hint!r}")
    required = default is inspect.Parameter.empty
    default = float(default) if hint is float and isinstance(default, int) else default
    return Param(name, hint, many, optional, None if required else default, required, arg, choices)
