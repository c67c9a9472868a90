"""Results of every component on a fixed input: they may change only together with the version.

Paths leave out defaults, so a component whose results change under the same version would go on
serving old files. `python tests/unit/test_golden.py` writes the numbers anew, after the version
was raised. Floating-point numbers are compared to 1e-3, so that other hardware passes; in
portable arithmetic all bytes are compared as well (`golden_bytes.json`). Nothing that computes
multiplies by MKL meanwhile, or takes exponentials by its vector functions.
"""

from __future__ import annotations

from dataclasses import replace

import exact
import numpy as np
import pytest
import torch
from asked import asked_of_mkl
from contract import made_of, problem_for
from mirror import IS_HERE, SLOW, real_arrays
from problems import CLASSES, FEATURES, peers_of, pictures, problem

from fedrepro.api import BELIEFS
from fedrepro.core.registry import KINDS, components
from fedrepro.core.rng import RngKey
from fedrepro.data.client_assignment_and_skew import TrainingLabels
from fedrepro.data.raw_files import raw_files
from fedrepro.training.engine import train
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.minibatches_and_augmentation import Task
from fedrepro.training.mixing_matrices import weights_of
from fedrepro.training.training_settings_and_procedures import settings_of

GOLDEN = "golden.json"
BLOCK = 1 << 16  # numbers that stay in the cache: whole data sets have a hundred million
ANGLE = 0.7


def summary(*arrays: np.ndarray) -> list[float]:
    """A few numbers that change if any entry does: sizes, means, and weighted sums."""
    found = [value for array in arrays for value in _summary(np.asarray(array).reshape(-1))]
    return [float(f"{value:.6g}") for value in found]


def _summary(flat: np.ndarray) -> tuple[float, ...]:
    """Size, mean, standard deviation, and the sum weighted by cos(0.7 i)."""
    starts = range(0, flat.size, BLOCK)

    def blocks():
        return (flat[at : at + BLOCK].astype(np.float64) for at in starts)

    mean = sum(block.sum() for block in blocks()) / flat.size
    squares = sum(((block - mean) ** 2).sum() for block in blocks())
    # a block's weights are those of the first one, turned by the angle that it starts at
    waves = (
        np.cos(ANGLE * at) * (COSINES[: block.size] @ block)
        - np.sin(ANGLE * at) * (SINES[: block.size] @ block)
        for at, block in zip(starts, blocks(), strict=True)
    )
    return flat.size, mean, np.sqrt(squares / flat.size), sum(waves)


COSINES, SINES = (wave(np.arange(BLOCK) * ANGLE) for wave in (np.cos, np.sin))


def of_dataset(item):
    arrays = real_arrays(item.name + SMALLER.get(item.name, ""))
    found = [array[split] for split in ("train", "test") for array in (arrays.x, arrays.y)]
    # some of the rows of an array that would be too large in float64
    return [array[:: 1 + array.size // 60_000_000] for array in found]


def of_feature(item):
    found = item.fn(pictures(), **item.spec().values)
    return [found["train"], found["test"]]


def of_partition(item):
    groups = (np.arange(600) % 13 - 1).astype(np.int32)
    examples = TrainingLabels(np.arange(600) * 7 % 10, 10, groups, tuple("abcdefghijkl"))
    values = {p.name: 4 for p in item.params.values() if p.required}
    split = item.fn(examples, RngKey(0), **item.spec(values).own)
    return [split.owner] if split.noise is None else [split.owner, split.noise]


def of_model(item):
    if is_module(item):
        torch.manual_seed(0)
        made = item.fn((3, 8, 8), 3, **item.spec().values)
        return [np.concatenate([v.numpy().ravel() for v in made.state_dict().values()])]
    network = item.fn((8, 8) if item.name == "cnn" else (5,), 3, **item.spec().values)
    return [*network.initial(RngKey(0), 0.1, 0.1).values()]


def of_training(item):
    given = problem().clients
    settings = settings_of(item.spec({"epochs": 2}))
    start = initial_weights(given.network, settings, [RngKey(0)])
    tasks = [Task(rows, RngKey(0, client=j)) for j, rows in enumerate(given.data.rows)]
    return [*train(given.network, given.data.examples, tasks, settings, start).tensors.values()]


def of_graph(item):
    values = {"rows": ["0.5_0.5_0", "0.5_0_0.5", "0_1_0"], "csv": "one-way"}
    required = {p.name: values[p.name] for p in item.params.values() if p.required}
    clients = {"matrix": 3, "file": 4}.get(item.name, 9)
    return [weights_of(item.spec(required), clients, RngKey(0))]


def of_simulation(item):
    found = item.fn(rng=RngKey(0), **item.spec({"steps": 40, "repeats": 4}).values)
    numbers = [*found.rounds.values(), found.ended]
    names = dict.fromkeys(name for one in numbers for name in one)
    return [*(np.stack([one[name] for one in numbers if name in one]) for name in names)]


def of_method(item):
    if item.meta["kind"] == "simulation":
        return of_simulation(item)
    given = problem_for(item.name, 1 if "partition" in item.meta["scenario"] else 4)
    values = item.spec().values
    if item.meta["kind"] == "peer":
        made, peers = item.fn(**values), peers_of(given.clients)
        state = made.init(peers, given.info, RngKey(0))
        state, _ = made.round(state, peers, given.info, RngKey(0).at(round=0))
        found = made.beliefs(state, peers)
        return [*(value for name in BELIEFS for value in found[name].values())]
    if item.meta["kind"] == "federated":
        made = item.fn(**values)
        state = made.init(given.clients, given.info, RngKey(0))
        state, _ = made.round(state, given.clients, given.info, RngKey(0).at(round=0))
        models = [made.model(state, given.clients)]
    else:
        # few epochs, because long training magnifies rounding
        short = given.info.training.component.spec({"epochs": 2, "batch_size": 8})
        info = replace(given.info, training=short)
        found = made_of(item, given.models, info, values)
        models = found if isinstance(found, list) else [found]
    return [*(value for model in models for value in model.tensors.values())]


SMALLER = {"shakespeare": "+stride~100", "ham10000": "+size~16"}
NUMBERS = {
    "dataset": of_dataset,
    "feature": of_feature,
    "partition": of_partition,
    "model": of_model,
    "training": of_training,
    "graph": of_graph,
    "method": of_method,
}
ALL = [(kind, name) for kind in KINDS for name in sorted(components(kind))]
# real data that take minutes to unpack or to make smaller
LONG = {("dataset", name): pytest.mark.nightly for name in (*SLOW, "speech_commands")}


def is_module(item):
    """Whether PyTorch computes what it is, whose bytes are those of one machine."""
    return bool(item.meta.get("module"))


def can_be_measured(kind: str, name: str) -> bool:
    return kind != "dataset" or IS_HERE or not raw_files(components(kind)[name].spec())


def measured(kind: str, name: str) -> tuple[dict[str, object], str]:
    """Version and numbers, and the digest of the arrays that they are of."""
    item = components(kind)[name]
    arrays = NUMBERS[kind](item)
    return {"version": item.version, "numbers": summary(*arrays)}, exact.digest(arrays)


def alike(kept: list[float], now: list[float]) -> bool:
    """Equal but for rounding: a weighted sum is held to what its terms add up to by chance."""
    if len(kept) != len(now):
        return False
    one, two = (np.array(numbers).reshape(-1, 4) for numbers in (kept, now))
    chance = one[:, 2] * np.sqrt(one[:, 0])
    sums = np.abs(one[:, 3] - two[:, 3]) <= 1e-3 * np.maximum(chance, np.abs(one[:, 3]) + 1)
    return bool(np.allclose(one[:, :3], two[:, :3], rtol=1e-3, atol=1e-3) and sums.all())


@pytest.mark.parametrize(
    ("kind", "name"), [pytest.param(*one, marks=LONG.get(one, ())) for one in ALL]
)
def test_results_change_only_with_the_version(kind, name):
    if not can_be_measured(kind, name):
        pytest.skip("the mirror of the real data is not here")
    with asked_of_mkl() as asked:
        now, digest = measured(kind, name)
    assert kind == "dataset" or asked == []
    kept = exact.read_kept(GOLDEN).get(f"{kind} {name}")
    hint = "raise its version, then run: python tests/unit/test_golden.py"
    assert kept is not None, f"{kind} '{name}' is new; {hint}"
    assert kept["version"] == now["version"], f"{kind} '{name}' has a new version; {hint}"
    assert alike(kept["numbers"], now["numbers"]), (
        f"results of {kind} '{name}' changed under version {now['version']}; {hint}"
    )
    if exact.PORTABLE and not is_module(components(kind)[name]):
        assert digest == exact.kept().get(f"{kind} {name}"), f"{kind} {name}; {exact.HINT}"


def test_nothing_golden_is_of_components_that_are_gone_and_the_summary_sees_an_entry():
    assert set(exact.read_kept(GOLDEN)) == {f"{kind} {name}" for kind, name in ALL}
    one = np.zeros((FEATURES, CLASSES))
    two = one.copy()
    two[2, 1] = 0.1
    assert not np.allclose(summary(one), summary(two), rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    lines = dict(exact.read_kept(GOLDEN))
    for kind, name in ALL:
        # without the real data its numbers stay as they are
        if can_be_measured(kind, name):
            lines[f"{kind} {name}"] = measured(kind, name)[0]
    lines = {key: lines[key] for key in (f"{kind} {name}" for kind, name in ALL)}
    exact.write_kept(GOLDEN, lines)
