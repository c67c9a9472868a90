"""Metrics: the named numbers that are measured, and the tables that hold them."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from fedrepro.core.errors import unknown
from fedrepro.core.literature_names_and_setting_tokens import setting_token
from fedrepro.core.params import render
from fedrepro.core.registry import components
from fedrepro.core.spec import Spec

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Traffic:
    """Counts and bytes of messages: up, sent by clients or graph nodes; down, received by them."""

    messages_up: int = 0
    messages_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*map(operator.add, vars(self).values(), vars(other).values()))


FLOAT_BYTES = 4  # of a parameter, in memory and in messages


@dataclass(frozen=True)
class Metric:
    """The meaning of a metric: title, unit, least and largest value (None: unbounded), direction.

    better: 1 if larger values are better, -1 if smaller values are, 0 if neither.
    """

    title: str
    unit: str
    least: float | None
    most: float | None
    better: int

    def holds(self, value: float) -> bool:
        """Return whether the metric can be `value`; infinity (target never reached) is allowed."""
        low = -math.inf if self.least is None else self.least
        high = math.inf if self.most is None else self.most
        return low <= value <= high or math.isinf(value)


SHARE, NATS = "share of examples", "nats an example"
METRICS = {
    "accuracy": Metric("accuracy", SHARE, 0, 1, 1),
    "accuracy_scatter": Metric("sd of the accuracy over the last measured rounds", SHARE, 0, 1, -1),
    "accuracy_worst": Metric("accuracy of the worst client's model", SHARE, 0, 1, 1),
    "confusion": Metric(
        "examples of a class that are taken for one", "share of a class's examples", 0, 1, 0
    ),
    "accuracy_clients": Metric(
        "mean over clients of the accuracy on their own examples", SHARE, 0, 1, 1
    ),
    "hidden_units": Metric("hidden units, all layers", "units", 0, None, -1),
    "parameters": Metric("parameters held for prediction", "numbers", 0, None, -1),
    "forward_passes": Metric("forward passes per prediction", "passes", 0, None, -1),
    "rounds": Metric("communication rounds", "rounds", 0, None, -1),
    "messages": Metric("messages between clients and server", "messages", 0, None, -1),
    "bytes_up": Metric("sent by all clients", "bytes", 0, None, -1),
    "bytes_down": Metric("received by all clients", "bytes", 0, None, -1),
    "passes": Metric(
        "passes of clients over their examples besides training", "passes", 0, None, -1
    ),
    "rounds_to_target": Metric("rounds to the target accuracy", "rounds", 0, None, -1),
    "train_loss": Metric("mean minibatch loss of the clients in a round", "nats", 0, None, -1),
    "clients_selected": Metric("clients that trained in a round", "clients", 0, None, 0),
    "updates_rejected": Metric("updates so far that were not finite", "updates", 0, None, -1),
    "seconds": Metric("measured time", "s", 0, None, -1),
    "server_seconds": Metric("measured time at the server", "s", 0, None, -1),
    "client_seconds": Metric("measured time of all clients besides training", "s", 0, None, -1),
    "overhead": Metric("time beyond that of plain averaging", "%", None, None, -1),
    "matched_share": Metric(
        "local hidden units that share their global unit with another client", "share", 0, 1, 0
    ),
    "stopped_at": Metric("round at which a race stopped it", "rounds", 0, None, 0),
    "epochs": Metric("epochs of a client's training", "epochs", 0, None, 0),
    "left_out": Metric("trials in which there is no such model", "share of trials", 0, 1, -1),
    "failed": Metric("trials in which the method failed", "share of trials", 0, 1, -1),
    "nll": Metric("negative log-likelihood", NATS, 0, None, -1),
    "nll_worst": Metric("negative log-likelihood at the worst node", NATS, 0, None, -1),
    "calibration_error": Metric("expected calibration error", SHARE, 0, 1, -1),
    "calibration_error_worst": Metric(
        "expected calibration error at the worst node", SHARE, 0, 1, -1
    ),
    "accuracy_of_means": Metric("accuracy with the means for weights", SHARE, 0, 1, 1),
    "spread_q05": Metric("5 % quantile of the weights' standard deviations", "weight", 0, None, 0),
    "spread_q50": Metric("median of the weights' standard deviations", "weight", 0, None, 0),
    "spread_q95": Metric("95 % quantile of the weights' standard deviations", "weight", 0, None, 0),
    "edges": Metric("directed edges of the graph", "edges", 0, None, -1),
    "spectral_gap": Metric("one less the second largest modulus of the weights", "", 0, 1, 0),
    "bytes_per_edge": Metric("of a message along one edge", "bytes", 0, None, -1),
}


# Measured times have tables of their own, since nothing else may depend on them.
TIMES = ("seconds", "overhead")

# Kept of every measured round; bytes are those of all rounds so far.
OF_ROUNDS = ("train_loss", "clients_selected", "updates_rejected", "bytes_up", "bytes_down")


def metrics_of(method: Spec) -> Mapping[str, Metric]:
    """Return the metrics that `method` may report, by name: METRICS and those that it declares."""
    return METRICS | dict(method.component.meta.get("metrics", {}))


def all_metrics() -> Mapping[str, Metric]:
    """Import all methods; return, by name, METRICS (of any model) and metrics of single methods."""
    declared = (method.meta.get("metrics", {}) for method in components("method").values())
    return METRICS | {name: metric for own in declared for name, metric in own.items()}


def require_metric(name: str, method: Spec) -> None:
    """Raise FedreproError if the metric `name` is neither in METRICS nor declared by `method`."""
    if name not in metrics_of(method):
        raise unknown("metric", name, metrics_of(method), f"what method '{method.name}' reports")


# metrics of a model's size that figures and tables may show, with their units
SIZES = {"hidden_units": "units", "parameters": "parameters"}


class Number(NamedTuple):
    """One measured value of a metric.

    split: the examples measured on. round: None at a run's end. client: None for all together.
    """

    metric: str
    value: float
    split: str | None = None
    round: int | None = None
    client: int | None = None


@dataclass(frozen=True)
class MetricRow:
    """A `Number` of a trial of `method`, measured after fine-tuning by `tune` if that is given.

    training: the clients', if not the scenario's. repetition: the number of tune's public sample.
    """

    trial: int
    method: Spec
    metric: str
    value: float
    split: str | None = None
    round: int | None = None
    client: int | None = None
    training: Spec | None = None
    tune: Spec | None = None
    repetition: int | None = None


# the first columns of every table of metrics, in this order
PLACE = ("trial", "method", "setting", "client", "round", "phase")
LEADING = (*PLACE, "split", "metric", "value")
FINAL, IN_ROUND, TUNED = "final", "round", "tuned"
REPETITION = "repetition"  # a column of tables in which models are tuned


@dataclass
class Table:
    """A job's measurements, `rows`, and `scenario`: Specs of its data set, partition, model, …."""

    scenario: Sequence[Spec]
    rows: list[MetricRow] = field(default_factory=list)

    def add(self, rows: Iterable[MetricRow]) -> None:
        for row in rows:
            require_metric(row.metric, row.method)
            self.rows.append(row)

    def arrow(self) -> pa.Table:
        """Return the measurements as a pyarrow table, with parameters as typed columns.

        The columns are trial, method, setting (a text, see `setting_token`), client, round, phase
        (final, round or tuned), split, metric and value; then <kind>_name and <kind>_<parameter> of
        data set, partition, …, method.
        """
        import pyarrow as pa

        rows = self.rows
        swept = [key for spec in self.scenario if spec.kind == "training" for key in spec.swept]
        listed: dict[str, list[Any]] = {
            "method": [r.method.token for r in rows],
            "setting": [
                setting_token(r.method, [(k, r.training[k]) for k in swept if r.training], r.tune)
                for r in rows
            ],
            "phase": [TUNED if r.tune else FINAL if r.round is None else IN_ROUND for r in rows],
            "value": [float(r.value) for r in rows],
        }
        types = dict.fromkeys(("trial", "client", "round"), pa.int32()) | {"value": pa.float64()}
        columns: dict[str, Any] = {}
        for key in LEADING:
            values = listed.get(key) or [getattr(r, key) for r in rows]
            columns[key] = pa.array(values, types.get(key, pa.string()))
        for spec in self.scenario:
            is_training = spec.kind == "training"
            columns |= _parameters(spec.kind, [(is_training and r.training) or spec for r in rows])
        columns |= _parameters("method", [r.method for r in rows])
        if any(r.tune for r in rows):
            columns[REPETITION] = pa.array([r.repetition for r in rows], pa.int32())
            columns |= _parameters("tune", [r.tune for r in rows])
        return pa.table(columns)


def _parameters(kind: str, specs: Sequence[Spec | None]) -> dict[str, Any]:
    """Return {"<kind>_name" or "<kind>_<parameter>": column}, a row per Spec; None gives nulls."""
    import pyarrow as pa

    types = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
    names = [spec.name if spec else None for spec in specs]
    columns: dict[str, Any] = {f"{kind}_name": pa.array(names, pa.string())}
    known: dict[str, pa.DataType] = {}
    for spec in filter(None, specs):
        params = spec.component.params
        for key in spec.recorded_values:
            known[key] = pa.string() if params[key].many else types[params[key].type]
    for key in sorted(known):
        values = [spec.values.get(key) if spec else None for spec in specs]
        cells = [render(value) if isinstance(value, tuple) else value for value in values]
        columns[f"{kind}_{key}"] = pa.array(cells, known[key])
    return columns
