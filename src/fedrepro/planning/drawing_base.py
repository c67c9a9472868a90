"""The interface of drawings, which are ways to show a figure or table, such as curves or bars.

A drawing is a class decorated with `@drawing("name")`; its fields are its options. A figure that
cannot be drawn is refused before it is computed: functions yield the reasons why, as sentences.
Their argument `shown` is that figure or table. pandas and matplotlib are imported to draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, model_serializer

from fedrepro.core.metrics import all_metrics
from fedrepro.core.registry import DRAWING, register

if TYPE_CHECKING:
    import pandas as pd

    from fedrepro.planning.exhibit import Exhibit
    from fedrepro.planning.exhibit_methods import ExhibitMethod

CASE, ROUND = "case", "round"  # columns of an exhibit's numbers
PANELS = 8  # letters and columns that a figure has room for
TABLE = "table"  # the one drawing that is written rather than drawn
D = TypeVar("D", bound="type[Drawing]")
About = Mapping[str, Any]  # the content of an exhibit's json
Paths = Sequence[Path | str]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def one_of(names: Callable[[], Iterable[str]], sentence: str) -> AfterValidator:
    """Return a pydantic check that a text is in `names()`, listed at {} in the error `sentence`."""

    def check(name: str) -> str:
        if name not in (known := dict.fromkeys(names())):
            raise ValueError(sentence.format(", ".join(known)))
        return name

    return AfterValidator(check)


MetricName = Annotated[str, one_of(lambda: all_metrics(), "the metrics are {}")]


@dataclass(frozen=True)
class Planned:
    """The methods and points of a figure or table, to check before it is computed.

    measures: its methods. points: for each combination of values of the swept parameters a dict
    {parameter: value}. If the figure compares several scenarios, "case" in each dict names one.
    """

    measures: Sequence[ExhibitMethod]
    points: Sequence[Mapping[str, Any]]

    @property
    def axis(self) -> list[str]:
        return [key for key in self.points[0] if key != CASE]

    @property
    def cases(self) -> int:
        return len(self.values(CASE))

    def values(self, key: str) -> list[Any]:
        """Return the different values of the swept parameter `key`, in the order of the figure."""
        return list(dict.fromkeys(point[key] for point in self.points if key in point))

    @property
    def varied(self) -> list[str]:
        return [key for key in self.axis if len(self.values(key)) > 1]


class Drawing(Strict):
    """A way to show a figure or table, such as curves; fields of a subclass are its options.

    by_rounds: whether the csv needs rows after single rounds. of_rounds: metrics of cost in those
    rows, such as "bytes_up". shows_pairs: whether it can show methods that have fewer trials than
    others. suffix: the ending of the file that people look at.
    """

    name: ClassVar[str]
    by_rounds: ClassVar[bool] = False
    of_rounds: ClassVar[tuple[str, ...]] = ()
    shows_pairs: ClassVar[bool] = False
    suffix: ClassVar[str] = ".svg"

    def reasons(self, shown: Planned) -> Iterator[str]:
        """Yield a sentence for each reason why the figure `shown` cannot be drawn this way."""
        yield from ()

    @property
    def number(self) -> tuple[str, str]:
        """Return (metric, example set) shown, as ("accuracy", "test"); ("", "") if several are."""
        return "", ""

    def further(
        self, metrics: Paths, setting: str, measure: ExhibitMethod, trials: int, where: str
    ) -> Mapping[tuple[str, str], Sequence[float]]:
        """Return {(metric, split): a number per trial} that only this drawing needs; by default {}.

        A subclass reads them from files next to the files `metrics`: rows of method `measure` with
        the text `setting` as setting, in the first `trials` trials. Errors call the figure `where`.
        """
        return {}

    def files(self, exhibit: Exhibit, about: About, numbers: pd.DataFrame) -> dict[str, bytes]:
        """Draw the figure or table; return the files that people look at, as bytes by suffix.

        `about` is the content of its json (provenance, notes), `numbers` the rows of its csv.
        """
        raise NotImplementedError

    @model_serializer(mode="wrap")
    def _told(self, write: Any) -> dict[str, Any]:
        return {"name": self.name, **write(self)}


def drawing(name: str) -> Callable[[D], D]:
    """Return a class decorator that registers a subclass of Drawing under this name."""

    def keep(cls: D) -> D:
        cls.name = name
        return register(DRAWING, name, version=1)(cls)

    return keep


def one_axis(shown: Planned) -> Iterator[str]:
    """Yield a sentence if no single swept parameter with numbers as values can be the x axis."""
    several = shown.varied or shown.axis[:1]
    if len(several) != 1:
        said = f"it is drawn against one swept parameter, but {len(several)} of its sweep vary;"
        yield f"{said} sweep one, or draw it as a table"
        return
    (key,) = several
    values = [str(value) for value in shown.values(key)]
    depths = {text.count("@") for text in values}
    if not (key == "hidden" and len(depths) > 1) and not all(map(is_number, values)):
        yield f"it is drawn along '{key}', whose values are not numbers; draw it as a table"


def nothing_shown(shown: Planned) -> Iterator[str]:
    """Yield a sentence for each method that is to show several results, one per parameter value."""
    for measure in shown.measures:
        if measure.show:
            said = f"method '{measure.spec.name}' shows every value of {measure.show[0]},"
            yield f"{said} which has no place in this drawing; choose one, or draw it as a table"


def numbers_shown(measure: ExhibitMethod) -> Iterator[str]:
    """Yield a sentence for each parameter in `measure.show` with values that are not numbers."""
    for key in measure.show:
        if not all(is_number(str(setting[key])) for setting in measure.settings):
            yield f"it is drawn along '{key}' of '{measure.spec.name}', which is not a number"


def a_rival(shown: Planned) -> Iterator[str]:
    """Yield a sentence if all methods are bounds to compare with, such as pooled training."""
    if all(measure.reference for measure in shown.measures):
        yield "all its methods are references; one at least must be a rival"


def final(numbers: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a figure's csv with values at the end, not those of single rounds."""
    return numbers[numbers[ROUND].isna()] if ROUND in numbers else numbers


def select_series(numbers: pd.DataFrame, metric: str, split: str) -> pd.DataFrame:
    """Return the csv's rows on one `metric`, measured on the examples `split`, such as test."""
    return numbers[(numbers["metric"] == metric) & (numbers["split"] == split)]


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
