"""Parameters of components, read off the signatures of annotated functions.

A component's keyword-only arguments are its parameters; `Annotated[float, Arg("...")]` gives their
meaning, unit and range. Values are scalars, or lists of them. Tokens write them down, so texts use
letters, digits and `_ . -` only.
"""

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
SAFE = re.compile(r"[A-Za-z0-9_.\-]+")
NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Arg:
    """Meaning of a parameter: a sentence, its unit, and the values it may take.

    most: inclusive upper bound; whole numbers have LARGEST without it. later: whether it is newer
    than the record: with its default, it is left out of files and keys.
    """

    doc: str
    unit: str = ""
    above: float | None = None  # exclusive lower bound
    least: float | None = None
    most: float | None = None
    later: bool = False


@dataclass(frozen=True)
class Param:
    """One parameter of a component, read off the signature."""

    name: str
    type: type[int] | type[float] | type[bool] | type[str]
    many: bool
    optional: bool
    default: Value
    required: bool
    arg: Arg
    choices: tuple[str, ...] = ()

    def silent(self, value: Value) -> bool:
        return self.arg.later and value == self.default

    def check(self, value: Any, where: str) -> Value:
        """Return the value in its declared type.

        Raises:
            FedreproError: it does not fit; the error names the parameter and its range.
        """
        if self.many:
            items = value if isinstance(value, list | tuple) else (value,)
            if self.optional and list(items) == [None]:
                return None
            if not items:
                raise FedreproError(f"{where}: '{self.name}' is an empty list; give a value")
            return tuple(self.scalar(item, where) for item in items)
        return self.scalar(value, where)

    def scalar(self, value: Any, where: str) -> Scalar:
        """Return one of its values in the declared type; see `check`."""
        place = f"{where}: parameter '{self.name}'"
        if value is None:
            if not self.optional:
                raise FedreproError(f"{place} needs a value; it cannot be none")
            return None
        if self.type is bool:
            if not isinstance(value, bool):
                raise FedreproError(f"{place} must be true or false, not {shown(value)}")
            return value
        if self.type is str:
            return self._text(value, place)
        return self._number(value, place)

    def _text(self, value: Any, place: str) -> str:
        if self.choices and value not in self.choices:
            raise FedreproError(
                f"{place} must be one of {', '.join(self.choices)}, not {shown(value)}"
            )
        if not isinstance(value, str) or not SAFE.fullmatch(value):
            raise FedreproError(f"{place} may use letters, digits, _ . - only, not {shown(value)}")
        return value

    def _number(self, value: Any, place: str) -> int | float:
        kind = "a whole number" if self.type is int else "a number"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise FedreproError(f"{place} must be {kind}, not {shown(value)}")
        if not math.isfinite(value) or (self.type is int and value != int(value)):
            raise FedreproError(f"{place} must be {kind}, not {shown(value)}")
        if abs(value) > REACH:
            raise FedreproError(f"{place} must be at most {REACH:g} in size, not {value}")
        arg = self.arg
        if arg.above is not None and value <= arg.above:
            raise FedreproError(f"{place} must be above {arg.above:g}, not {value}")
        if arg.least is not None and value < arg.least:
            raise FedreproError(f"{place} must be at least {arg.least:g}, not {value}")
        most = LARGEST if arg.most is None and self.type is int else arg.most
        if most is not None and value > most:
            text = f"{most:,}" if isinstance(most, int) else f"{most:g}"
            raise FedreproError(f"{place} must be at most {text}, not {value}")
        return int(value) if self.type is int else float(value)

    def read_list(self, text: str, where: str) -> Scalar | list[Scalar]:
        """Read a value from its text in a token: a list joins its values by @."""
        items = [self.read(item, where) for item in text.split("@")]
        return items if self.many or len(items) > 1 else items[0]

    def read(self, text: str, where: str) -> Scalar:
        """Read one scalar from its text in a token."""
        if self.optional and text == "none":
            return None
        if self.type is bool and text in ("true", "false"):
            return text == "true"
        if self.type is str:
            return self.scalar(text, where)
        try:
            number = int(text) if self.type is int else float(text)
        except ValueError:
            raise FedreproError(
                f"{where}: parameter '{self.name}' cannot be read from '{text}'"
            ) from None
        return self.scalar(number, where)


def render_scalar(value: Scalar) -> str:
    """Write a scalar as in tokens: 10 for 10.0, 1e-06 for 0.000001, true, none."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = repr(value).replace("e+", "e")
        return text[:-2] if text.endswith(".0") else text
    return str(value)


def render(value: Value) -> str:
    if isinstance(value, tuple):
        return "@".join(render_scalar(item) for item in value)
    return render_scalar(value)


def comparable_text(value: Any) -> str:
    """Write a value of a table for comparison: numbers by ten digits, 1 for 1.0 and for "1.0".

    A column that mixes numbers with texts is read as texts, one that mixes 1 with 0.5 as floats.
    """
    if isinstance(value, str):
        try:
            return f"{float(value):.10g}"
        except ValueError:
            return value
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:.10g}" if plain else render(value)


def read_signature(fn: Callable[..., Any]) -> dict[str, Param]:
    """Return the parameters of a component: its keyword-only arguments that carry an `Arg`."""
    hints = typing.get_type_hints(_hinted(fn), include_extras=True)
    params: dict[str, Param] = {}
    for name, item in inspect.signature(fn).parameters.items():
        hint = hints.get(name)
        args = [a for a in getattr(hint, "__metadata__", ()) if isinstance(a, Arg)]
        if args:
            params[name] = _param(name, typing.get_args(hint)[0], item.default, args[0])
    return params


def _hinted(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the owner of the type hints: a function, a dataclass, or a class's `__init__`."""
    if not inspect.isclass(fn):
        return fn
    owner = next(base for base in fn.__mro__ if "__init__" in vars(base))
    return owner if "__dataclass_params__" in vars(owner) else vars(owner)["__init__"]


def _param(name: str, hint: Any, default: Any, arg: Arg) -> Param:
    choices: tuple[str, ...] = ()
    optional = many = False
    if isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint):
        optional = True
        hint = next(a for a in typing.get_args(hint) if a is not type(None))
    if typing.get_origin(hint) is tuple:
        many = True
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) is typing.Literal:
        choices = typing.get_args(hint)
        hint = str
    if hint not in (int, float, bool, str) or not NAME.fullmatch(name) or name == PAIRED:
        raise TypeError(f"parameter {name!r} cannot be a token: {hint!r}")
    required = default is inspect.Parameter.empty
    if not required and hint is float and not many and default is not None:
        default = float(default)
    return Param(name, hint, many, optional, None if required else default, required, arg, choices)
