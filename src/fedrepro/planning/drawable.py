"""What a drawing needs of an exhibit, asked before anything is computed for it.

A figure is drawn last, from numbers that took hours; what cannot be drawn is refused when the
exhibit is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fedrepro.core.errors import FedreproError
from fedrepro.core.kinds import METHOD_KINDS
from fedrepro.core.metrics import OF_CLIENTS, TIMES, metrics_of

CASE = "case"
PANELS = 8  # letters and columns that a figure has room for
# what a method that adapts its hyper-parameters reports of single rounds
ADAPTED = ("mean_lr", "mean_steps", "sampled_lr", "sampled_steps", "reward")
# what a simulation of a theorem tells, and the parameter along which it is drawn
BOUNDS, NEEDED, NODES = ("bound_printed", "bound_corrected"), "samples_needed", "nodes"
PANELLED = ("numbers-against-steps",)
COMMON_POINT = "common_point"  # what a method reports that looks for a model in several spaces
LOOKS = 10  # lines that can be told apart in a drawing of sizes

Method = Any  # a `Measure`
Settings = Any  # the `ExhibitSettings`
Points = Sequence[Mapping[str, Any]]  # the swept values of each point


def require_drawable(
    where: str,
    settings: Settings,
    measures: Sequence[Method],
    points: Points,
    axis: Sequence[str],
) -> None:
    """Errors: FedreproError with the first reason why these settings cannot be drawn so.

    points: the values of each point; axis: the swept parameters, without the case.
    """
    table = settings.drawing == "table"
    arranged = _arranged(settings, measures, points) if table else ()
    timed = _timed(settings, measures) if table else ()
    panels = _panels_of(settings, measures)
    for words in (*DRAWINGS[settings.drawing](measures, points, axis), *arranged, *timed, *panels):
        raise FedreproError(f"{where}: {words}")


def _lines(measures: Sequence[Method], points: Points, axis: Sequence[str]) -> Iterator[str]:
    """One line a method, against one swept parameter."""
    yield from _one_axis(points, axis)
    yield from _nothing_shown(measures)


def _one_axis(points: Points, axis: Sequence[str]) -> Iterator[str]:
    several = [key for key in axis if len(_values(points, key)) > 1] or list(axis)[:1]
    if len(several) != 1:
        yield (
            f"it is drawn against one swept parameter, but {len(several)} of its sweep vary; "
            "sweep one, or draw it as a table"
        )
        return
    (key,) = several
    found = [str(value) for value in _values(points, key)]
    depths = {text.count("@") for text in found}
    if not (key == "hidden" and len(depths) > 1) and not all(map(_is_number, found)):
        given = ", ".join(found)
        yield f"it is drawn along '{key}', but {given} are no numbers; draw it as a table"


def _nothing_shown(measures: Sequence[Method]) -> Iterator[str]:
    for measure in measures:
        if measure.show:
            yield (
                f"method '{measure.spec.name}' shows every value of {measure.show[0]}, which has "
                "no place in this drawing; choose one, or draw it as a table"
            )


def _one_scenario(measures: Sequence[Method], points: Points, axis: Sequence[str]) -> Iterator[str]:
    if CASE in points[0]:
        yield "it has cases; draw it as accuracy-panels, a panel for each, or as a table"
    yield from _lines(measures, points, axis)


def _panels(measures: Sequence[Method], points: Points, axis: Sequence[str]) -> Iterator[str]:
    count = len(_values(points, CASE))
    if not 1 <= count <= PANELS:
        yield f"it has a panel for each of its cases, 1 to {PANELS} of them, not {count}"
    yield from _lines(measures, points, axis)


def _rounds(measures: Sequence[Method], points: Points, axis: Sequence[str]) -> Iterator[str]:
    count = len(_values(points, CASE))
    if count > PANELS:
        yield f"it has a panel for each of its cases, at most {PANELS} of them, not {count}"
    if len(points) > max(1, count):
        yield "it is drawn against rounds, so its sweep has one value"
    yield from _nothing_shown(measures)
    yield from _a_rival(measures)


def _against_size(measures: Sequence[Method], points: Points, axis: Sequence[str]) -> Iterator[str]:
    yield from _one_axis(points, axis)
    for measure in measures:
        if len(measure.show) > 1:
            yield f"method '{measure.spec.name}' shows more than one parameter along its path"
        yield from _numbers_shown(measure)


def _common_points(
    measures: Sequence[Method], points: Points, axis: Sequence[str]
) -> Iterator[str]:
    showing = [measure for measure in measures if measure.show]
    if len(showing) != 1 or len(showing[0].show) != 2 or len(points) > 1:
        yield (
            "it is a map over two parameters of one method, both shown (show: [...]), at one point "
            "of its sweep"
        )
        return
    (measure,) = showing
    if COMMON_POINT not in metrics_of(measure.spec):
        yield f"whether spaces have a common point is not known: '{measure.spec.name}' does not say"
    yield from _numbers_shown(measure)


def _clients(measures: Sequence[Method], points: Points, axis: Sequence[str]) -> Iterator[str]:
    if len(points) > 1 or len(measures) > PANELS:
        yield f"it has a panel for each of at most {PANELS} methods, at one point of its sweep"
    for measure in measures:
        if len(measure.show) != 1:
            yield f"'{measure.label}' has to show the values of one parameter (show: [...])"
        if OF_CLIENTS[0] not in metrics_of(measure.spec):
            yield f"'{measure.label}' does not tell the accuracy of its model at single clients"
        yield from _numbers_shown(measure)


def _heat_maps(measures: Sequence[Method], points: Points, axis: Sequence[str]) -> Iterator[str]:
    showing = [measure for measure in measures if measure.show]
    if len(showing) != 1 or CASE in points[0]:
        yield (
            "heat maps are of one method that shows every value of a parameter (show: [...]), "
            f"without cases; {len(showing)} of its methods do"
        )
        return
    (measure,) = showing
    several = [key for key in axis if len(_values(points, key)) > 1]
    if len(several) + len(measure.show) < 2:
        yield "heat maps need two parameters that vary; show one more, or sweep one"
    if "train" not in measure.evaluate:
        yield f"heat maps show training accuracy, and '{measure.spec.name}' is not measured for it"
    for key in several:
        if not all(_is_number(str(value)) for value in _values(points, key)):
            yield f"heat maps are drawn along numbers, which those of '{key}' are not"
    yield from _numbers_shown(measure)


def _hyper_parameters(
    measures: Sequence[Method], points: Points, axis: Sequence[str]
) -> Iterator[str]:
    if len(measures) != 1:
        yield f"the hyper-parameters of one method are drawn, not of {len(measures)}"
    for measure in measures:
        if not set(ADAPTED) <= set(metrics_of(measure.spec)):
            yield (
                f"the hyper-parameters that '{measure.spec.name}' chooses are not known: it does "
                f"not report {', '.join(ADAPTED)}"
            )
    count = len(_values(points, CASE))
    if count != len(points):
        yield (
            "it has a line for each of its cases and sweeps nothing else, but it has "
            f"{count} cases and {len(points)} points"
        )
    yield from _nothing_shown(measures)


def _confusion(measures: Sequence[Method], points: Points, axis: Sequence[str]) -> Iterator[str]:
    if len(points) > 1 or CASE in points[0]:
        yield f"confusion is drawn at one point and without cases, not at {len(points)}"
    if len(measures) > PANELS:
        yield f"it has a map for each of at most {PANELS} methods, not {len(measures)}"
    for measure in measures:
        if measure.node is None or measure.belief is None:
            yield f"'{measure.label}' needs a node and a belief, of which the confusion is drawn"
    yield from _nothing_shown(measures)


def _graph(measures: Sequence[Method], points: Points, axis: Sequence[str]) -> Iterator[str]:
    if CASE not in points[0] or any(len(_values(points, key)) > 1 for key in axis):
        yield "its points are cases, each with a graph and a number of nodes; it sweeps nothing"
    if len(measures) > 2:
        yield f"two methods can be told apart in it, not {len(measures)}"
    yield from _nothing_shown(measures)


def _steps(measures: Sequence[Method], points: Points, axis: Sequence[str]) -> Iterator[str]:
    if len(points) > 1 or CASE in points[0]:
        yield f"it is drawn against steps, so it has one point and no cases, not {len(points)}"
    yield from _nothing_shown(measures)


def _bounds(measures: Sequence[Method], points: Points, axis: Sequence[str]) -> Iterator[str]:
    for measure in measures:
        if not {*BOUNDS, "error", NEEDED} <= set(metrics_of(measure.spec)):
            yield f"'{measure.spec.name}' tells neither errors nor bounds on samples"
        if measure.show != (NODES,):
            yield f"'{measure.spec.name}' has to show every number of nodes (show: [{NODES}])"
    count = len(_values(points, CASE))
    if len(measures) != 1 or count != len(points) or count > LOOKS:
        yield (
            f"it has a line for each of at most {LOOKS} cases of one method and sweeps nothing "
            f"else, but {len(measures)} methods, {count} cases and {len(points)} points"
        )


def _size(measures: Sequence[Method], points: Points, axis: Sequence[str]) -> Iterator[str]:
    yield from _lines(measures, points, axis)
    if measures[-1].spec.name != "concatenation":
        yield "sizes are shares of all clients' units, so its last method must be concatenation"
    count = len(measures) * max(1, len(_values(points, CASE)))
    if count > LOOKS:
        yield f"it has {count} lines, of which {LOOKS} can be told apart; show fewer"


def _table(measures: Sequence[Method], points: Points, axis: Sequence[str]) -> Iterator[str]:
    yield from _a_rival(measures)


def _panels_of(settings: Settings, measures: Sequence[Method]) -> Iterator[str]:
    """The numbers that `metrics` asks for are those of some method, where panels are drawn."""
    if settings.drawing not in PANELLED:
        if settings.metrics:
            yield f"'{settings.drawing}' has its own panels; leave out `metrics`"
        return
    if not 1 <= len(settings.metrics) <= PANELS:
        yield f"it has a panel for each of `metrics`, 1 to {PANELS}, not {len(settings.metrics)}"
    known = {name for measure in measures for name in metrics_of(measure.spec)}
    for name in settings.metrics:
        if name not in known:
            yield f"none of its methods reports {name}, which `metrics` asks for"


def _timed(settings: Settings, measures: Sequence[Method]) -> Iterator[str]:
    """Times are of single rounds, and of one setting each."""
    for measure in measures if settings.table.metric in TIMES else ():
        in_rounds = METHOD_KINDS[measure.spec.component.meta["kind"]].in_rounds
        if not in_rounds or len(measure.settings) > 1:
            yield (
                f"times are of rounds of one setting of a method; '{measure.spec.name}' has "
                + ("several settings" if in_rounds else "no rounds")
            )


def _arranged(settings: Settings, measures: Sequence[Method], points: Points) -> Iterator[str]:
    """Everything that takes several values goes down or across, once."""
    shown = [key for measure in measures for key in measure.show]
    known = dict.fromkeys(["method", *points[0], *shown])
    rows = settings.table.rows or ["method", *dict.fromkeys(shown)]
    columns = settings.table.columns or [key for key in points[0] if key not in rows]
    placed = [*rows, *columns]
    for key in placed:
        if key not in known:
            yield f"its table has '{key}' in rows or columns; what it has is {', '.join(known)}"
        if placed.count(key) > 1:
            yield f"its table has '{key}' twice in rows and columns; take one out"
    varied = ["method"] if len(measures) > 1 else []
    varied += [key for key in points[0] if len(_values(points, key)) > 1]
    for key in (*varied, *shown):
        if key not in placed:
            yield f"'{key}' takes several values, but its table has it in neither rows nor columns"


def _a_rival(measures: Sequence[Method]) -> Iterator[str]:
    if all(measure.reference for measure in measures):
        yield "all its methods are references; one at least must be a rival"


def _numbers_shown(measure: Method) -> Iterator[str]:
    for key in measure.show:
        values = [str(setting[key]) for setting in measure.settings]
        if not all(map(_is_number, values)):
            yield f"it is drawn along '{key}' of '{measure.spec.name}', which is no number"


def _values(points: Points, key: str) -> list[Any]:
    return list(dict.fromkeys(point[key] for point in points if key in point))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


Reasons = Callable[[Sequence[Method], Points, Sequence[str]], Iterator[str]]

DRAWINGS: dict[str, Reasons] = {
    "accuracy-and-graph": _graph,
    "accuracy-and-size": _one_scenario,
    "accuracy-close-up": _one_scenario,
    "accuracy-of-clients": _clients,
    "accuracy-panels": _panels,
    "accuracy-against-rounds": _rounds,
    "accuracy-against-size": _against_size,
    "common-points": _common_points,
    "confusion": _confusion,
    "errors-and-bounds": _bounds,
    "heat-maps": _heat_maps,
    "hyper-parameters": _hyper_parameters,
    "numbers-against-steps": _steps,
    "size": _size,
    "table": _table,
}
