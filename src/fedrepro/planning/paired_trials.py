"""Methods with fewer trials than the others of an exhibit, and the methods they are paired with.

Means over different trials depend on which trials were drawn. So all methods of a point have one
number of trials, or the exhibit says `paired: true`: a method with fewer trials is then shown as
the mean of another method over all trials plus the difference in the trials that both have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import DRAWING, components

Trials = Mapping[str, int]  # label -> trials at a point


@dataclass(frozen=True)
class Pair:
    """A method with fewer trials, the method that it is paired with, and the trials of both."""

    label: str
    beside: str
    trials: tuple[int, ...]  # at any point
    of: tuple[int, ...]  # those of the other

    @property
    def name(self) -> str:
        """Return the method's name in legends."""
        return f"{self.label} (paired)"

    @property
    def sentence(self) -> str:
        """Say in a sentence how it is shown, for captions and footnotes."""
        few, word = _counts(self.trials), "trial" if self.trials == (1,) else "trials"
        return (
            f"{self.label}, with {few} {word}, is shown as {self.beside} over all "
            f"{_counts(self.of)} plus the difference between the two in the {few} that both have."
        )


def _counts(numbers: Sequence[int]) -> str:
    return " or ".join(map(str, numbers))


def pairs_of(measures: Sequence[Any], trials: Sequence[Trials]) -> dict[str, Pair]:
    """Return the pair of every method that has fewer trials than another at some point, by label.

    Args:
        measures: the methods of an exhibit.
        trials: of each of its points.
    """
    pairs = {}
    for measure in measures:
        points = [point for point in trials if point.get(measure.label, 0)]
        few = [point for point in points if point[measure.label] < max(point.values())]
        if few and measure.paired_with:
            of = (point.get(measure.paired_with, 0) for point in few)
            mine = (point[measure.label] for point in few)
            pair = tuple(sorted(set(mine))), tuple(sorted(set(of)))
            pairs[measure.label] = Pair(measure.label, measure.paired_with, *pair)
    return pairs


def require_comparable(
    where: str, settings: Any, measures: Sequence[Any], trials: Sequence[Trials]
) -> None:
    """Refuse means over different trials, and a pair without its other method.

    Raises:
        FedreproError: the first reason.
    """
    for reason in _reasons(settings, measures, trials):
        raise FedreproError(f"{where}: {reason}")


def _reasons(settings: Any, measures: Sequence[Any], trials: Sequence[Trials]) -> Iterator[str]:
    labels = [measure.label for measure in measures]
    for point in trials:
        most = max(point.values())
        for measure in measures:
            few = point.get(measure.label, most)
            if few == most:
                continue
            if not settings.paired:
                yield (
                    f"'{measure.label}' has {few} trials where others have {most}, so their means "
                    "are of other trials; give all one number, or say `paired: true` and what it "
                    "is set beside (`paired_with`)"
                )
            beside = measure.paired_with
            if not beside or point.get(beside, 0) < most:
                yield (
                    f"'{measure.label}' has {few} of {most} trials; say by `paired_with` which "
                    f"method with all of them it is set beside, of {', '.join(labels)}"
                )
    if settings.paired and not settings.drawing.shows_pairs:
        able = [n for n, item in components(DRAWING).items() if item.fn.shows_pairs]  # type: ignore
        yield f"`paired` is for the drawings {', '.join(able)}, not {settings.drawing.name}"
