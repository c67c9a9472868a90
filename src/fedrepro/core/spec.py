"""Components, their parameters, and tokens: "a path is its parameters".

A component (a data set, a partition, a model, a training procedure, a method) is an annotated
function. Its keyword-only arguments are its parameters; `Annotated[float, Arg("...")]` carries
their meaning, unit and range. A `Spec` is a component with values for all of them, and a token
is a spec written down:

    dirichlet+clients~25            name, then key~value for what differs from the default
    pfnm+sigma2~0.01@0.1@1          a list joins its values by @; a list for a scalar is a sweep
    fedavg+epochs~1@5+lr~0.1@0.02+paired~2    a sweep of two settings, (1, 0.1) and (5, 0.02)

Tokens are folder names, so they use letters, digits and `_ . - + ~ @` only. `parse` accepts the
canonical form alone; parse and token are inverse to each other.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fedrepro.core.errors import FedreproError, shown, unknown

Scalar = int | float | bool | str | None
Value = Scalar | tuple[Scalar, ...]

LARGEST = 1_000_000  # of a whole number whose Arg says nothing else
REACH = 1e38  # of single precision, in which models are
PAIRED = "paired"  # no parameter: how many settings a token lists one by one
SAFE = re.compile(r"[A-Za-z0-9_.\-]+")
NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Arg:
    """What a parameter means: a sentence, its unit, and the values it may take.

    most: inclusive upper bound; whole numbers have LARGEST without it. later: added after results
    were kept: where it has its default, files and what makes jobs run again do not speak of it.
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
        """Whether files do not speak of this value; see `Arg.later`."""
        return self.arg.later and value == self.default

    def check(self, value: Any, where: str) -> Value:
        """The value in its declared type, or an error that names the parameter and its range."""
        if self.many:
            items = value if isinstance(value, list | tuple) else (value,)
            if not items:
                raise FedreproError(f"{where}: '{self.name}' is an empty list; give a value")
            return tuple(self._scalar(item, where) for item in items)
        return self._scalar(value, where)

    def _scalar(self, value: Any, where: str) -> Scalar:
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

    def read(self, text: str, where: str) -> Scalar:
        """One scalar from its text in a token."""
        if self.optional and text == "none":
            return None
        if self.type is bool and text in ("true", "false"):
            return text == "true"
        if self.type is str:
            return self._scalar(text, where)
        try:
            number = int(text) if self.type is int else float(text)
        except ValueError:
            raise FedreproError(
                f"{where}: parameter '{self.name}' cannot be read from '{text}'"
            ) from None
        return self._scalar(number, where)


def render_scalar(value: Scalar) -> str:
    """A scalar as it stands in a token: 10 for 10.0, 1e-06 for 0.000001, true, none."""
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


@dataclass(frozen=True, eq=False)
class Component:
    """A registered function with its parameters; `meta` holds what its kind adds.

    version: raised whenever results change; of a component in development, a text that changes
    with its file. common: a function whose parameters every component of the kind has beside its
    own; they are not handed to `fn`.
    """

    kind: str
    name: str
    version: int | str
    fn: Callable[..., Any]
    meta: Mapping[str, Any] = field(default_factory=dict)
    common: Callable[..., Any] | None = None

    @property
    def file(self) -> str:
        """The file that it is in; empty if it is in none."""
        return getattr(sys.modules.get(self.fn.__module__), "__file__", None) or ""

    @cached_property
    def own_params(self) -> dict[str, Param]:
        """The parameters of `fn`."""
        return read_signature(self.fn)

    @cached_property
    def common_params(self) -> dict[str, Param]:
        """Those that all components of the kind have."""
        return read_signature(self.common) if self.common else {}

    @cached_property
    def params(self) -> dict[str, Param]:
        """All parameters by name."""
        return self.own_params | self.common_params

    @property
    def doc(self) -> str:
        """The first paragraph of the docstring, on one line."""
        text = inspect.getdoc(self.fn) or ""
        return " ".join(text.split("\n\n")[0].split())

    def spec(self, values: Mapping[str, Any] | None = None, where: str = "") -> Spec:
        """A spec from a mapping, as in YAML. A list for a scalar parameter is a sweep."""
        where = f"{where}: {self.kind} '{self.name}'" if where else f"{self.kind} '{self.name}'"
        given = dict(values or {})
        full: dict[str, Value] = {}
        for key in given:
            if key not in self.params:
                raise unknown("parameter", key, self.params, where)
        for key, param in self.params.items():
            if key in given:
                full[key] = self._given(param, given[key], where)
            elif param.required:
                raise FedreproError(f"{where} needs a value for its parameter '{key}'")
            else:
                full[key] = param.default
        return Spec(self, full)

    def _given(self, param: Param, value: Any, where: str) -> Value:
        if isinstance(value, list | tuple) and not param.many:
            swept = tuple(param._scalar(item, where) for item in value)
            if len(set(swept)) != len(swept):
                raise FedreproError(f"{where}: '{param.name}' lists a value twice: {render(swept)}")
            if not swept:
                raise FedreproError(f"{where}: '{param.name}' is an empty list; give a value")
            return swept[0] if len(swept) == 1 else swept
        return param.check(value, where)

    def paired(
        self, values: Mapping[str, Any], settings: Sequence[Mapping[str, Any]], where: str = ""
    ) -> Spec:
        """A sweep of settings that are listed one by one, each by what differs from `values`."""
        each = [self.spec({**values, **setting}, where).single(where) for setting in settings]
        where = f"{where}: {self.kind} '{self.name}'" if where else f"{self.kind} '{self.name}'"
        if not each:
            raise FedreproError(f"{where} has an empty list of settings; give one")
        if len(set(each)) != len(each):
            raise FedreproError(f"{where} lists a setting twice; take one out")
        columns: dict[str, Value] = {}
        for key, param in self.params.items():
            found = [spec.values[key] for spec in each]
            same = all(value == found[0] for value in found)
            if not same and param.many:
                raise FedreproError(
                    f"{where}: '{key}' is a list itself, so that it cannot differ between settings"
                )
            columns[key] = found[0] if same else typing.cast(tuple[Scalar, ...], tuple(found))
        swept = Spec(self, columns).swept
        return Spec(self, columns, len(each) if len(swept) > 1 else 0)


@dataclass(frozen=True)
class Spec:
    """A component with a value for each parameter. Equal specs have equal tokens."""

    component: Component
    values: Mapping[str, Value]
    paired: int = 0  # settings of a sweep that lists them one by one; 0 for every combination

    @property
    def kind(self) -> str:
        return self.component.kind

    @property
    def name(self) -> str:
        return self.component.name

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    @property
    def own(self) -> dict[str, Value]:
        """The values that the component's function takes."""
        return {key: self.values[key] for key in self.component.own_params}

    @property
    def common(self) -> dict[str, Value]:
        """The values of what all components of the kind have."""
        return {key: self.values[key] for key in self.component.common_params}

    def __hash__(self) -> int:
        return hash((self.kind, self.token))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and (self.kind, self.token) == (other.kind, other.token)

    @property
    def told(self) -> dict[str, Value]:
        """The values that files speak of; see `Arg.later`."""
        params = self.component.params
        return {key: value for key, value in self.values.items() if not params[key].silent(value)}

    @property
    def swept(self) -> tuple[str, ...]:
        """The scalar parameters that hold a list."""
        params = self.component.params
        return tuple(
            k for k, v in self.values.items() if isinstance(v, tuple) and not params[k].many
        )

    def single(self, where: str = "") -> Spec:
        """The spec itself. Errors: FedreproError if a parameter lists several values."""
        if self.swept:
            key = self.swept[0]
            raise FedreproError(
                f"{where}{': ' if where else ''}{self.kind} '{self.name}': '{key}' lists several "
                f"values, {render(self.values[key])}, where one is needed; an exhibit lists them "
                f"under sweep, as {self.kind}.{key}"
            )
        return self

    @cached_property
    def token(self) -> str:
        """The canonical text: only what differs from the default, keys sorted."""
        parts = [self.name]
        for key in sorted(self.values):
            param = self.component.params[key]
            value = self.values[key]
            if param.required or value != param.default:
                parts.append(f"{key}~{render(value)}")
        return "+".join([*parts, *self._pairs])

    @property
    def _pairs(self) -> list[str]:
        return [f"{PAIRED}~{self.paired}"] if self.paired else []

    @property
    def resolved(self) -> str:
        """Name, version and every parameter: what a changed default or version alters.

        Behind them, what a component says of a file that it reads beside data sets (`reads`).
        """
        pairs = [f"{k}~{render(value)}" for k, value in sorted(self.told.items())]
        reads = self.component.meta.get("reads")
        read = f";{reads(self.values)}" if reads else ""
        return f"{self.name};v{self.component.version};{'+'.join([*pairs, *self._pairs])}{read}"

    def expand(self) -> Iterator[Spec]:
        """Every setting of a sweep, in the order written; the spec itself if nothing is swept."""
        if not self.swept:
            yield self
            return
        lists = [typing.cast(tuple[Scalar, ...], self.values[key]) for key in self.swept]
        together = zip(*lists, strict=True) if self.paired else itertools.product(*lists)
        for values in together:
            own = dict(zip(self.swept, values, strict=True))
            yield Spec(self.component, {**self.values, **own})


def setting_token(
    method: Spec, training: Sequence[tuple[str, Value]] = (), tune: Spec | None = None
) -> str:
    """A method's token, what it changes of the local training, and how its model is tuned:
    fedavg;training+lr~0.1, average;tune+examples~100."""
    changes = "".join(f"+{key}~{render(value)}" for key, value in training)
    parts = [method.token]
    parts += [f"training{changes}"] if changes else []
    return ";".join([*parts, tune.token] if tune else parts)


def shorten(token: str, limit: int) -> str:
    """A token that fits `limit` bytes: itself, or the parameters that fit and a digest of it all.

    `mlp+hidden~50@50@50` becomes `mlp+id~<10 hex digits>`, and one with several parameters keeps
    the first of them. The name and the digest always stay.
    """
    if len(token) <= limit:
        return token
    name, *pairs = token.split("+")
    digest = f"+id~{hashlib.blake2b(token.encode(), digest_size=5).hexdigest()}"
    for pair in pairs:
        if len(name) + 1 + len(pair) + len(digest) > limit:
            break
        name = f"{name}+{pair}"
    return name + digest


def fitted(tokens: Sequence[str], room: int) -> tuple[str, ...]:
    """The tokens in `room` bytes together: the longest are shortened, and no more than need be."""
    names = list(tokens)
    for at in sorted(range(len(names)), key=lambda at: -len(names[at])):
        excess = sum(map(len, names)) - room
        if excess > 0:
            names[at] = shorten(names[at], len(names[at]) - excess)
    return tuple(names)


def parse(components: Mapping[str, Component], token: str, kind: str = "component") -> Spec:
    """The spec a token stands for. Refuses what is not canonical, and says what would be."""
    spec = read(components, token, kind)
    if spec.token != token:
        raise FedreproError(
            f"{kind} token '{token}' is not in canonical form; write '{spec.token}'"
        )
    return spec


def read(components: Mapping[str, Component], token: str, kind: str = "component") -> Spec:
    """The spec a token stands for, also if its keys are not sorted or it states a default."""
    name, *pairs = token.split("+")
    if name not in components:
        raise unknown(kind, name, components, f"'{token}'")
    component = components[name]
    where = f"{kind} token '{token}'"
    values: dict[str, Any] = {}
    paired = ""
    for pair in pairs:
        key, sep, text = pair.partition("~")
        if not sep or not text:
            raise FedreproError(f"{where}: '{pair}' is not of the form key~value")
        if key == PAIRED:
            paired = text
            continue
        if key not in component.params:
            raise unknown("parameter", key, component.params, where)
        param = component.params[key]
        items = [param.read(item, where) for item in text.split("@")]
        values[key] = items if param.many or len(items) > 1 else items[0]
    return _paired(component, values, paired, where) if paired else component.spec(values)


def _paired(component: Component, values: Mapping[str, Any], count: str, where: str) -> Spec:
    """The settings that a token lists one by one, from a list for each parameter that differs."""
    params = component.params
    lists = {k: v for k, v in values.items() if isinstance(v, list) and not params[k].many}
    for key, items in lists.items():
        if str(len(items)) != count:
            raise FedreproError(
                f"{where}: it pairs {count} settings, but '{key}' lists {len(items)} values"
            )
    if not lists:
        raise FedreproError(f"{where}: it pairs {count} settings, but lists no values")
    same = {key: value for key, value in values.items() if key not in lists}
    rows = zip(*lists.values(), strict=True)
    return component.paired(same, [dict(zip(lists, row, strict=True)) for row in rows])


def read_signature(fn: Callable[..., Any]) -> dict[str, Param]:
    """The parameters of a component: its keyword-only arguments that carry an `Arg`."""
    hints = typing.get_type_hints(fn.__init__ if inspect.isclass(fn) else fn, include_extras=True)
    params: dict[str, Param] = {}
    for name, item in inspect.signature(fn).parameters.items():
        hint = hints.get(name)
        args = [a for a in getattr(hint, "__metadata__", ()) if isinstance(a, Arg)]
        if args:
            params[name] = _param(name, typing.get_args(hint)[0], item.default, args[0])
    return params


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
