"""Components, which are functions with annotated parameters (`params.py`), such as methods.

A `Spec` is a component with a value for each parameter; its text is a token. Errors begin with
`where`, which says in words where a user wrote what is wrong.
"""

from __future__ import annotations

import inspect
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.method_kinds import METHOD_KINDS, MODULE, MethodKind
from fedrepro.core.params import PAIRED, Param, Value, read_signature, render
from fedrepro.core.params import Arg as Arg  # components need no more than this module
from fedrepro.core.user_component_files import MODULES as OUTSIDE
from fedrepro.core.user_component_files import opened_files, opened_within, own_fault

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Component:
    """A registered function `fn`, such as a method or partition, with its parameters.

    kind: such as "method" or "partition". version: a number that changes with results; for a user's
    own file, a text that changes with the file. meta: further properties, which depend on the kind;
    by `reads` a user's component declares files that it reads. common: a function whose parameters
    the component has too; they are not passed to `fn`. digest: a hash of the file of `fn`.
    """

    kind: str
    name: str
    version: int | str
    fn: Callable[..., Any]
    meta: Mapping[str, Any] = field(default_factory=dict)
    common: Callable[..., Any] | None = None
    digest: str = ""

    @property
    def file(self) -> str:
        """Return the path of the Python file that defines the component; empty if there is none."""
        return getattr(sys.modules.get(self.fn.__module__), "__file__", None) or ""

    @cached_property
    def own_params(self) -> dict[str, Param]:
        try:
            return read_signature(self.fn)
        except (NameError, TypeError, AttributeError, SyntaxError) as error:
            raise FedreproError(f"{self.kind} '{self.name}' of {self.file}: {error}") from error

    @cached_property
    def common_params(self) -> dict[str, Param]:
        return read_signature(self.common) if self.common else {}

    @cached_property
    def params(self) -> dict[str, Param]:
        """Return all parameters of the component by name: those of `fn`, and those of `common`."""
        return self.own_params | self.common_params

    @property
    def doc(self) -> str:
        """Return the first paragraph of the component's docstring, on one line."""
        return " ".join((inspect.getdoc(self.fn) or "").split("\n\n")[0].split())

    def where(self, where: str = "") -> str:
        """Return how an error on this component begins: "<where>: method 'fedavg'"."""
        return f"{where}{': ' if where else ''}{self.kind} '{self.name}'"

    def make(self, expected: type[T], /, *args: Any, **values: Any) -> T:
        """Call `fn`; raise FedreproError if a user's fails, or for a result not of `expected`."""
        try:
            with opened_files() as files:
                result = self.fn(*args, **values)
        except Exception as error:
            if isinstance(error, FedreproError) or not (fault := own_fault(error)):
                raise
            raise FedreproError(f"{self.kind} '{self.name}' fails: {fault}") from error
        self.require_declared(files, *(str(one) for one in args if isinstance(one, os.PathLike)))
        if not isinstance(result, expected):
            what = "nothing" if result is None else f"a {type(result).__name__}"
            said = f"{self.kind} '{self.name}' returns {what}: let it return {expected.__name__},"
            raise FedreproError(f"{said} in {os.path.basename(self.file) or 'its function'}")
        return result

    def require_declared(self, files: Iterable[str], *folders: str) -> None:
        """Raise FedreproError if a user component without `reads` read `files` not in `folders`."""
        path = next((file for file in files if not opened_within(file, *folders)), "")
        own = self.fn.__module__.startswith(OUTSIDE) and self.kind != "method"
        if path and own and "reads" not in self.meta:
            near = os.path.dirname(path) == os.path.dirname(os.path.abspath(self.file))
            name = f'__file__).with_name("{os.path.basename(path)}"' if near else f'"{path}"'
            decorator = "@module" if self.meta.get(MODULE) else "@register"
            said = f"{self.kind} '{self.name}' reads {path} and does not say so, so that nothing"
            said = f"{said} would be computed again after a change of it: add to its {decorator}"
            fix = f"reads=lambda values: input_checksum(Path({name})), from fedrepro.data.user_data"
            raise FedreproError(f"{said} {fix}")

    def spec(self, values: Mapping[str, Any] | None = None, where: str = "") -> Spec:
        """Return this component with these parameter values, as in YAML, and defaults for others.

        A list, for a parameter that takes one value, holds values to try. Raises FedreproError,
        which begins with `where`, for values that do not fit.
        """
        where, given = self.where(where), values or {}
        full: dict[str, Value] = {}
        for key in given:
            if key not in self.params:
                raise unknown("parameter", key, self.params, where)
        for key, param in self.params.items():
            if key not in given:
                if param.required:
                    raise FedreproError(f"{where} needs a value for its parameter '{key}'")
                full[key] = param.default
            elif isinstance(value := given[key], list | tuple) and value and not param.many:
                swept = tuple(param.scalar(item, where) for item in value)
                if len(set(swept)) != len(swept):
                    raise FedreproError(f"{where}: '{key}' lists a value twice: {render(swept)}")
                full[key] = swept[0] if len(swept) == 1 else swept
            else:
                full[key] = param.check(value, where)
        return Spec(self, full)

    def paired(
        self, values: Mapping[str, Any], settings: Sequence[Mapping[str, Any]], where: str = ""
    ) -> Spec:
        """Return one Spec to try `settings`: each has its own values, and the common `values`.

        Unlike lists in `spec`, items of `settings` are not combined. `where` begins errors.
        """
        specs = [self.spec({**values, **setting}, where).single(where) for setting in settings]
        where = self.where(where)
        if len(set(specs)) != len(specs):
            raise FedreproError(f"{where} lists a setting twice; take one out")
        columns: dict[str, Any] = {k: tuple(spec[k] for spec in specs) for k in self.params}
        differing = [key for key, column in columns.items() if len(set(column)) > 1]
        for key in differing:
            if self.params[key].many:
                said = f"{where}: '{key}' is a list itself"
                raise FedreproError(f"{said}, so that it cannot differ between settings")
        full = {k: column if k in differing else column[0] for k, column in columns.items()}
        return Spec(self, full, len(specs) if len(differing) > 1 else 0)

    def listing(self, values: Mapping[str, Any], where: str = "") -> Spec:
        """Return a Spec whose setting i takes item i of lists in `values`; errors name `where`."""
        many = {name for name, param in self.params.items() if param.many}
        lists = {k: v for k, v in values.items() if isinstance(v, list) and k not in many}
        if len(set(map(len, lists.values()))) != 1:
            fix = "give each parameter a list of as many values"
            raise FedreproError(f"{self.where(where)}: {fix}")
        same = {key: value for key, value in values.items() if key not in lists}
        rows = zip(*lists.values(), strict=True)
        return self.paired(same, [dict(zip(lists, row, strict=True)) for row in rows], where)


@dataclass(frozen=True)
class Spec:
    """A component with a value, or a list of values to try, for each parameter.

    A Spec with lists stands for several settings, sets of one value per parameter. paired: their
    number, if setting i takes item i of every list; 0 if all combinations of items are tried.
    """

    component: Component
    values: Mapping[str, Value]
    paired: int = 0

    @property
    def kind(self) -> str:
        return self.component.kind

    @property
    def name(self) -> str:
        return self.component.name

    @property
    def method_kind(self) -> MethodKind:
        return METHOD_KINDS[self.component.meta["kind"]]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def __hash__(self) -> int:
        return hash(self.token)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and (self.kind, self.token) == (other.kind, other.token)

    @property
    def own(self) -> dict[str, Value]:
        return {key: self.values[key] for key in self.component.own_params}

    @property
    def common(self) -> dict[str, Value]:
        return {key: self.values[key] for key in self.component.common_params}

    @property
    def recorded_values(self) -> dict[str, Value]:
        """Return values by parameter, without defaults of parameters newer than stored results."""
        return {
            key: self.values[key]
            for key, param in self.component.params.items()
            if not param.arg.later or self.values[key] != param.default
        }

    @cached_property
    def swept(self) -> tuple[str, ...]:
        """Return the names of the parameters for which several values are to be tried."""
        lists = (key for key, value in self.values.items() if isinstance(value, tuple))
        return tuple(key for key in lists if not self.component.params[key].many)

    def single(self, where: str = "") -> Spec:
        """Return this Spec; raise an error that begins with `where` if it has several settings."""
        if self.swept:
            key = self.swept[0]
            said = f"'{key}' lists several values, {render(self.values[key])}, where one is needed"
            fix = f"an exhibit lists them under sweep, as {self.kind}.{key}"
            raise FedreproError(f"{self.component.where(where)}: {said}; {fix}")
        return self

    @property
    def _explicit(self) -> dict[str, Value]:
        return {
            key: self.values[key]
            for key, param in self.component.params.items()
            if param.required or self.values[key] != param.default
        }

    def _text(self, values: Mapping[str, Value]) -> str:
        paired = [f"{PAIRED}~{self.paired}"] if self.paired else []
        pairs = (f"{key}~{render(value)}" for key, value in sorted(values.items()))
        return "+".join([*pairs, *paired])

    @cached_property
    def token(self) -> str:
        """Return name and values other than defaults as text: dirichlet+alpha~0.1+clients~25."""
        return "+".join(filter(None, [self.name, self._text(self._explicit)]))

    @property
    def _read(self) -> str:  # the digest of files that a component reads besides data sets
        reads = self.component.meta.get("reads")
        return f";{reads(self.values)}" if reads else ""

    @property
    def resolved(self) -> str:
        """Return name, version and `recorded_values` as text, as results state what they are of."""
        stated = self._text(self.recorded_values)
        return f"{self.name};v{self.component.version};{stated}{self._read}"

    @cached_property
    def entry(self) -> dict[str, Any]:
        """Return name and values other than defaults as a dict, the form of YAML files."""
        lists = {k: list(v) if isinstance(v, tuple) else v for k, v in self._explicit.items()}
        return {"name": self.name, **lists, **({PAIRED: self.paired} if self.paired else {})}

    @cached_property
    def fingerprint(self) -> str:
        """Return a text of parameters, version, file hash; results are outdated once it changes."""
        return f"{self.token};v{self.component.version};{self.component.digest}{self._read}"

    def expand(self) -> Iterator[Spec]:
        """Yield a Spec for each set of values to try, one value per parameter, in written order."""
        lists: list[Any] = [self.values[key] for key in self.swept]
        for values in zip(*lists, strict=True) if self.paired else itertools.product(*lists):
            changes = dict(zip(self.swept, values, strict=True))
            yield Spec(self.component, {**self.values, **changes}) if changes else self
