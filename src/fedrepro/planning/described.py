"""Methods known by their description alone: all that planning and tables ask of one, and no code.

So the method of a stranger is planned for and shown without a line of it being run; only the
process that computes it loads its file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints

from fedrepro.api import NEEDS
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import METRICS, Metric
from fedrepro.core.params import NAME, Arg, Param
from fedrepro.core.registry import beside
from fedrepro.core.spec import Component
from fedrepro.planning.drawing import Strict

Words = Annotated[str, StringConstraints(max_length=400)]
Name = Annotated[str, StringConstraints(pattern=f"^{NAME.pattern}$", max_length=60)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Scalar = bool | int | Number | Annotated[str, StringConstraints(max_length=60)] | None
TYPES: dict[str, type[int] | type[float] | type[bool] | type[str]] = {
    kind.__name__: kind for kind in (int, float, bool, str)
}


def _need(name: str) -> str:
    if name not in NEEDS:
        raise ValueError(f"needs are {', '.join(NEEDS)}")
    return name


class ToldArg(Strict):
    """See `params.Arg`."""

    doc: Words
    unit: Words = ""
    above: Number | None = None
    least: Number | None = None
    most: Number | None = None
    later: bool = False


class ToldParam(Strict):
    """See `params.Param`."""

    name: Name
    type: Literal["int", "float", "bool", "str"]
    many: bool
    optional: bool
    default: Scalar | list[Scalar]
    required: bool
    arg: ToldArg
    choices: list[Words]

    def param(self) -> Param:
        default = tuple(self.default) if isinstance(self.default, list) else self.default
        arg, kind = Arg(**self.arg.model_dump()), TYPES[self.type]
        if kind is float and isinstance(default, int) and not isinstance(default, bool):
            default = float(default)
        return Param(
            self.name,
            kind,
            self.many,
            self.optional,
            default,
            self.required,
            arg,
            tuple(self.choices),
        )


class ToldMetric(Strict):
    """See `metrics.Metric`."""

    title: Words
    unit: Words
    least: Number | None
    most: Number | None
    better: Literal[-1, 0, 1]


class ToldMethod(Strict):
    """A method as data: what its decorator and its signature say."""

    name: Name
    version: int | Annotated[str, StringConstraints(pattern="^dev-[0-9a-f]{16}$")]
    doc: Words
    kind: Literal["one_shot", "federated", "peer", "control", "simulation"]
    label: Words
    needs: list[Annotated[str, AfterValidator(_need)]]
    models: list[Name]
    trainings: list[Name]
    evaluate: list[Name]
    paper: Words
    sends: Words
    one_start: bool
    better_of_one_start: bool
    any_width: bool
    merges: bool | Literal["matched"]
    prepares: bool
    grid: dict[Name, list[Scalar]]
    metrics: dict[Name, ToldMetric]
    params: list[ToldParam]

    def component(self) -> Component:
        """A component of which all may be asked but what it computes."""
        data = self.model_dump(include={"kind", "label", "paper", "sends", *ONCE})
        sets = {key: frozenset(getattr(self, key)) for key in SETS}
        meta = data | sets | {
            "evaluate": tuple(self.evaluate),
            "grid": {key: tuple(values) for key, values in self.grid.items()},
            "metrics": {k: Metric(**v.model_dump()) for k, v in self.metrics.items()},
            "prepare": None,
            "scenario": {},
        }  # fmt: skip
        params = {param.name: param.param() for param in self.params}
        return DescribedComponent(
            "method", self.name, self.version, _nothing, meta, told=params, text=self.doc
        )


SETS = ("needs", "models", "trainings")
ONCE = ("one_start", "better_of_one_start", "any_width", "merges")


def _nothing(*_: Any, **__: Any) -> None:
    """What such a method computes here."""


@dataclass(frozen=True, eq=False)
class DescribedComponent(Component):
    """A component whose function is not here."""

    told: Mapping[str, Param] = field(default_factory=dict)
    text: str = ""

    @cached_property
    def own_params(self) -> dict[str, Param]:
        """The parameters that it was described with."""
        return dict(self.told)

    @property
    def doc(self) -> str:
        """The first paragraph of its docstring, as it was described."""
        return self.text

    @property
    def file(self) -> str:
        """None is here."""
        return ""


def described(item: Component) -> ToldMethod:
    """A method as data.

    Errors: FedreproError for one that sets parts of its scenario itself, which no entry may.
    """
    meta = item.meta
    if meta["scenario"]:
        raise FedreproError(
            f"method '{item.name}' sets its own {', '.join(meta['scenario'])}: on a leaderboard "
            "all methods have the same clients and models"
        )
    params = []
    for param in item.params.values():
        data = dataclasses.asdict(param)
        params.append(data | {"type": param.type.__name__, "choices": list(param.choices)})
    return ToldMethod.model_validate(
        {
            **{key: meta[key] for key in ("kind", "label", "paper", "sends", *ONCE)},
            **{key: sorted(meta[key]) for key in SETS},
            "name": item.name,
            "version": item.version,
            "doc": item.doc[:400],
            "evaluate": list(meta["evaluate"]),
            "prepares": meta["prepare"] is not None,
            "grid": {key: list(values) for key, values in meta["grid"].items()},
            "metrics": {key: dataclasses.asdict(metric) for key, metric in meta["metrics"].items()},
            "params": params,
        }
    )


@contextmanager
def standing_in(told: ToldMethod) -> Iterator[Component]:
    """Meanwhile a described method is among the methods that there are.

    Errors: FedreproError for one with a name, or a metric, that fedrepro has.
    """
    taken = sorted(set(told.metrics) & set(METRICS))
    if taken:
        raise FedreproError(f"method '{told.name}' declares '{taken[0]}', which is a metric here")
    item = told.component()
    with beside(item):
        yield item
