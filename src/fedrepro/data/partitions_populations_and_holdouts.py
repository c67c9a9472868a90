"""From a partition component to `partition.parquet` and back: which client has which examples.

A partition component assigns every training example to a client. Here its result is checked,
validation examples are dealt to clients in like shares, and all trials become one table.

A data set whose component declares a `population` stores its first clients as arrays, and generates
the examples of any client from the client's number, so that there may be millions of clients. If
partition `natural` has more clients than are stored, a client is generated only when it is drawn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from fedrepro.core import checksummed_files as artifacts
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.data.client_assignment_and_skew import UNASSIGNED, Assignment, TrainingLabels
from fedrepro.data.prepared import Prepared
from fedrepro.data.stratified_samples_and_splits import apportion

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Holdout:
    """A kind of held-out examples: training examples on which no client trains.

    split: their name in files. need: the key that a method declares in `needs` to get them.
    parameter: the partition's parameter that sets their number. at: the value of the parameter
    `validation_at` that says who holds them; None for the public sample.
    """

    split: str
    need: str
    parameter: str
    at: str | None = None


HOLDOUTS = (
    Holdout("public", "public_examples", "public"),
    Holdout("server_validation", "server_validation", "validation", "server"),
    Holdout("client_validation", "client_validation", "validation", "clients"),
)

KIND = "partition"
# the second is the data set's own; what follows is drawn from the training examples
SPLITS = ("train", "validation", *(part.split for part in HOLDOUTS))
SERVER = -1  # in the column of clients


class ClientRows(Sequence[np.ndarray]):
    """The row numbers of each client's examples in a split: item j is int64 (n_j,), ascending.

    sizes: int64 (J,), examples per client. values: int32 (N,), the rows of all clients one after
    another; without `values` the rows of client 0 are 0 to n_0 - 1, client 1's follow, and so on.
    """

    def __init__(self, sizes: np.ndarray, values: np.ndarray | None = None) -> None:
        self.ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self.values = values

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, client: Any) -> Any:
        at = range(len(self))[client]
        first, last = int(self.ends[at]), int(self.ends[at + 1])
        if self.values is None:
            return np.arange(first, last)
        return self.values[first:last].astype(np.int64)

    @property
    def sizes(self) -> np.ndarray:
        """Return the number of examples of each client: int64 (J,)."""
        return np.diff(self.ends)


def sizes_of(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return the number of examples of each client, int64 (J,), from each client's row numbers."""
    return rows.sizes if isinstance(rows, ClientRows) else np.array([*map(len, rows)], np.int64)


class ClientGenerator(Protocol):
    """A generator of any client's examples by its index; files also hold the first `kept` clients.

    `sizes` returns the numbers of training examples, at least 1, of the first J `clients`: int64
    (J,). `examples` returns a client's training inputs (n, D), of the data set's dtype, and labels.
    """

    @property
    def kept(self) -> int: ...

    def sizes(self, clients: int) -> np.ndarray: ...

    def examples(self, client: int) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass(frozen=True)
class Population:
    """The first `clients` clients, often millions, of a generator `made`; no file has them all."""

    made: ClientGenerator
    clients: int

    @cached_property
    def train(self) -> ClientRows:
        """Return each client's row numbers, as if all examples were stored client after client."""
        return ClientRows(self.made.sizes(self.clients))


def population_of(dataset: Spec, partition: Spec) -> Population | None:
    """Return a partition's clients if their examples are generated on demand, else None.

    Raises FedreproError if `partition` also picks clients by their data, or sets examples aside.
    """
    make, clients = dataset.component.meta.get("population"), partition.values.get("clients")
    if not (make and partition.component.meta.get("by_group") and isinstance(clients, int)):
        return None
    made: ClientGenerator = make(dataset.values)
    if clients <= made.kept:
        return None
    plain = {"pick": "first", "min_examples": 1, "public": 0, "validation": 0}
    if keys := [key for key, value in plain.items() if partition[key] != value]:
        said = f"'{partition.token}' of '{dataset.token}' has clients that are made when they are"
        fix = f"leave it out, or take the {made.kept} clients that the data set keeps, or fewer"
        raise FedreproError(f"{said} drawn, and '{keys[0]}' would look at all of them: {fix}")
    return Population(made, clients)


@dataclass(frozen=True)
class PartitionIndices:
    """The examples of each client in one trial, as sorted int64 indices into the data set.

    train, validation, client_validation: item j is client j's. `validation` indexes the data set's
    own validation examples, all others its training examples. public, server_validation: held by no
    client. client_validation: not trained with. noise: float64 (clients,), variance of noise on
    each client's inputs, if any. population: the clients, if examples are generated on demand.
    """

    train: Sequence[np.ndarray]
    validation: Sequence[np.ndarray]
    noise: np.ndarray | None = None
    public: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    server_validation: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    client_validation: Sequence[np.ndarray] = ()
    population: Population | None = None

    def label_counts(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Count the training examples of each client and class, int64 (J, K); labels int64 (N,)."""
        counts = [np.bincount(labels[rows], minlength=classes) for rows in self.train]
        return np.array(counts, np.int64).reshape(len(self.train), classes)

    def with_feature_noise(
        self, inputs: np.ndarray, rng: RngKey, split: str = "train"
    ) -> np.ndarray:
        """Return all `inputs` (N, D) of a split, plus noise of variance noise[j] at client j."""
        if self.noise is None:
            return inputs
        held = inputs.copy()
        for part in ("train", "client_validation") if split == "train" else (split,):
            for client, rows in enumerate(getattr(self, part)):
                generator = rng.at(client=client).stream(f"feature-noise-{part}")
                drawn = generator.standard_normal((rows.size, inputs.shape[1]), np.float32)
                held[rows] += np.float32(np.sqrt(self.noise[client])) * drawn
        return held


def build_partition(
    spec: Spec, prepared: Prepared, trials: range, seed: int, population: Population | None = None
) -> pa.Table:
    """Divide `prepared` by partition `spec` in each trial: columns trial, client, split and index.

    index: a row of `prepared`; client: -1 for public and server_validation examples. Training
    examples to hold out are drawn first, uniformly, whatever else `spec` says. Validation examples
    are dealt to clients in proportion to training examples, by class or natural group. Metadata
    `noise`: variances by client for each trial, or None. With a `population` there are no rows.
    """
    import pyarrow as pa

    examples, others = (
        TrainingLabels(
            labels_of(prepared, split),
            max(1, len(prepared.classes)),
            np.asarray(prepared.groups(split)),
            prepared.group_names,
        )
        for split in ("train", "validation")
    )

    def owned(owner: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kept = owner != UNASSIGNED
        return owner[kept], rows[kept]

    parts: list[np.ndarray] = [np.empty((4, 0), np.int64)]
    noise: dict[int, list[float] | None] = dict.fromkeys(trials)
    for trial in () if population else trials:
        rng = RngKey(seed, trial=trial)
        aside, rest = draw_holdout(len(examples), spec, rng)
        left = examples.taken(rest)
        split = again = spec.component.make(Assignment, left, rng, **spec.own)
        if trial == trials[0] and not spec.component.fn.__module__.startswith("fedrepro."):
            again = spec.component.make(Assignment, left, rng, **spec.own)
        _require_sound(split, again, spec, trial, len(left))
        if split.noise is not None and prepared.kind == "text":
            said = f"partition '{spec.name}' adds noise to numbers, and inputs of {prepared.token}"
            raise FedreproError(f"{said} are letters: choose another partition or data set")
        followers = _followers(left, split, others, rng, "partition-validation")
        held = {
            "train": owned(split.owner, rest),
            "validation": owned(followers, np.arange(len(others))),
        }
        for name, rows in aside.items():
            held[name] = np.full(rows.size, SERVER), rows
            if name == "client_validation":
                withheld = examples.taken(rows)
                owner = _followers(left, split, withheld, rng, "partition-client-validation")
                held[name] = owned(owner, rows)
        parts += [
            np.stack(np.broadcast_arrays(trial, owner, SPLITS.index(name), rows))
            for name, (owner, rows) in held.items()
        ]
        noise[trial] = None if split.noise is None else split.noise.tolist()
    rows = np.concatenate(parts, axis=1)
    # indices ascend within each split already, and this sort is stable
    trial, client, code, index = rows[:, np.lexsort((rows[1], rows[0]))]
    names = pa.DictionaryArray.from_arrays(pa.array(code, pa.int8()), list(SPLITS))
    numbers = [pa.array(column, pa.int32()) for column in (trial, client, index)]
    columns = [*numbers[:2], names.cast(pa.string()), numbers[2]]
    table = pa.table(columns, names=["trial", "client", "split", "index"])
    about = json.dumps({"noise": [*noise.values()], "trials": [*trials]})
    return table.replace_schema_metadata({"fedrepro.provenance": about})


def write_partition(path: Path | str, table: pa.Table, provenance: Mapping[str, Any]) -> None:
    """Write a partition, a table from `build_partition`; add `provenance` to its metadata."""
    artifacts.write_table(path, table, KIND, {**provenance, **artifacts.read_provenance(table)})


def read_partition(
    path: Path | str, trial: int, population: Population | None = None
) -> PartitionIndices:
    """Return a trial's examples by client, read from `path`, or made by `population` of it."""
    import pyarrow.compute as pc

    table = artifacts.read_table(path, KIND)
    source = artifacts.read_provenance(table)
    if trial not in source.get("trials", ()):
        raise FedreproError(f"{path} has no trial {trial}: it was made for other trials")
    if population:
        return PartitionIndices(population.train, (), population=population)
    noise = source["noise"][source["trials"].index(trial)]
    rows, owned = table.filter(pc.equal(table["trial"], trial)), {}
    for name in SPLITS:
        part = rows.filter(pc.equal(rows["split"], name))
        owned[name] = part["client"].to_numpy(), part["index"].to_numpy()
    clients = max(int(client.max(initial=SERVER)) for client, _ in owned.values()) + 1

    def held(name: str) -> ClientRows:
        client, index = owned[name]
        return ClientRows(np.bincount(client, minlength=clients), index)

    train = held("train")
    if clients == 0 or train.sizes.min() == 0:
        why = f"a client of trial {trial} has no training examples"
        raise artifacts.corrupt_file_error(path, why)
    public, aside = (owned[name][1].astype(np.int64) for name in ("public", "server_validation"))
    validation = held("client_validation") if owned["client_validation"][1].size else ()
    own = None if noise is None else np.array(noise)
    return PartitionIndices(train, held("validation"), own, public, aside, validation)


def draw_holdout(count: int, spec: Spec, rng: RngKey) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Draw which of `count` training examples a partition `spec` sets aside, not to be trained on.

    Returns ({"public": rows, "server_validation" or "client_validation": rows}, other rows), rows
    sorted int64. The public sample does not depend on the number of validation examples. Raises
    FedreproError if no other rows are left.
    """
    public = cast(int, spec.values.get("public", 0))
    validation = cast(int, spec.values.get("validation", 0))
    if public + validation >= count:
        said = f"sets {public + validation} of {count} training examples aside"
        raise FedreproError(f"partition '{spec.token}' {said}: lower `public` or `validation`")
    order = rng.stream("set-aside").permutation(count)
    drawn, kept, rest = (np.sort(part) for part in np.split(order, [public, public + validation]))
    at_clients = spec.values.get("validation_at") == "clients"
    return {"public": drawn, f"{'client' if at_clients else 'server'}_validation": kept}, rest


def labels_of(prepared: Prepared, split: str) -> np.ndarray:
    """Return the labels of examples `split`, such as train: int64 (N,); zeros for regression."""
    labels = np.asarray(prepared.labels(split))
    return labels if prepared.classes else np.zeros(labels.size, np.int64)


def _require_sound(
    split: Assignment, again: Assignment, spec: Spec, trial: int, examples: int
) -> None:
    """Raise if owners in `split` are invalid, a client is empty, or `again`, a redraw, differs."""
    owner, clients, wrong = np.asarray(split.owner), split.clients, ""
    count = spec.component.meta.get("clients", lambda values: values.get("clients", 1))
    planned = count(spec.values)
    numbers = isinstance(split.owner, np.ndarray) and owner.shape == (examples,)
    numbers &= owner.dtype.kind in "iu"
    noise = split.noise if isinstance(split.noise, np.ndarray) else np.full(clients, -1.0)
    if not (numbers and ((owner >= UNASSIGNED) & (owner < clients)).all()):
        fix = f"({examples},) and whole, from 0 to {clients - 1}, or {UNASSIGNED} for nobody"
        wrong = f" gives owners {owner.dtype} {owner.shape}: let them be {fix}"
    elif planned not in (None, clients):
        fix = "let it have the parameter `clients`, or say clients=… in @register"
        wrong = f" makes {clients} clients, and {planned} were planned: {fix}"
    elif split.noise is not None and not (noise.shape == (clients,) and np.min(noise) >= 0):
        wrong = f" gives noise that is not an array of {clients} variances, 0 or more"
    elif not np.array_equal(split.owner, again.owner):
        wrong = " deals other owners when it is drawn once more: draw from rng.stream alone"
    elif (empty := np.flatnonzero(split.sizes == 0)).size:
        wrong = f", trial {trial}: client {empty[0]} has no training examples ({empty.size} of"
        wrong += f" {clients} clients are empty): lower `clients`, or take another partition"
    if wrong:
        raise FedreproError(f"partition '{spec.token}'{wrong}")


def _followers(
    examples: TrainingLabels, split: Assignment, others: TrainingLabels, rng: RngKey, stream: str
) -> np.ndarray:
    """Deal `others` as `split` does `examples`, by rng.stream(stream); return owners int32 (M,)."""
    if split.groups is not None:  # each to the client that is its group, if there is one
        last = max(split.groups.max(), others.groups.max(initial=-1))
        client_of = np.full(last + 2, UNASSIGNED, np.int32)
        client_of[split.groups] = np.arange(split.groups.size)
        # the last entry is never a group, so that group -1 finds nobody
        return np.asarray(client_of[others.groups])
    # per class in proportion to training examples; of a class that nobody holds to nobody
    owner, generator = np.full(others.labels.size, UNASSIGNED, np.int32), rng.stream(stream)
    for label in range(examples.classes):
        holders = split.owner[(examples.labels == label) & (split.owner != UNASSIGNED)]
        rows = generator.permutation(np.flatnonzero(others.labels == label))
        if holders.size:
            held = np.bincount(holders, minlength=split.clients)
            shares = apportion(rows.size, held, generator)
            owner[rows] = np.repeat(np.arange(split.clients, dtype=np.int32), shares)
    return owner


def missing_holdout_error(who: str, part: Holdout, partition: str = "") -> FedreproError:
    """Return the error: `who` ("method 'x'") needs held-out `part`, but `partition` has none."""
    holder = f", with validation_at: {part.at}" if part.at else ""
    named = f" '{partition}'" if partition else ""
    said = f"{who} reads the examples of '{part.split}', and the partition{named} sets none aside"
    return FedreproError(f"{said}: give it {part.parameter}, a number{holder}")


def validation_count(dataset: Spec, partition: Spec) -> int | None:
    """Return how many validation examples all clients have together at most; None if unknown."""
    at_clients = partition.values.get("validation_at") == "clients" and partition["validation"]
    return cast("int | None", at_clients or dataset.values.get("validation"))


def missing_validation_error(who: str, who_has: str = "they have") -> FedreproError:
    """Return the error: `who` needs clients' validation data; `who_has` ("client 3 has") none."""
    said = f"{who} works on validation examples of clients, and {who_has} none: give the data set"
    return FedreproError(f"{said} validation, or the partition, with validation_at: clients")
