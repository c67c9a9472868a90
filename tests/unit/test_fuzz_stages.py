"""Odd but legal-looking settings of stages: each job is done, or ends in one sentence.

The stages run as the workflow runs them, on a few digits.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import jobs
import pytest
from fuzz import LONGEST, WHOLE, settings_of, some
from hypothesis import event, given
from hypothesis import strategies as st

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components

DATA = "digits+test~1600"  # 197 examples to train on
PARTITION = "homogeneous+clients~3"
LOCAL = "models/local.parquet"  # in a folder where no other job writes
# nothing that takes long when it is legal
FEW = [value for value in WHOLE if value <= 3 or value > 10**6]
ODD_KINDS = ("partition", "model", "training", "graph")
KINDS = {kind: list(components(kind).values()) for kind in ODD_KINDS}
METHODS = list(components("method").values())
DATASETS = components("dataset")
GENERATED = [DATASETS[name] for name in ("digits", "p2p_nodes", "shapes") if name in DATASETS]


def stage(*words: object) -> None:
    """The stage does its job, or says why not in one line."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            status = jobs.stage(*words)
        except (FedreproError, ValueError, AttributeError):  # no token, which a job does not have
            event("no job")
            return
    lines = said.getvalue().splitlines()
    assert status in (0, 2)
    if status == 2:
        assert lines[-1].startswith("fedrepro: ")
        assert len(lines[-1]) < LONGEST
    event("done" if status == 0 else "said")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A data set, a partition of it, and local models."""
    made = tmp_path_factory.mktemp("stages")
    with contextlib.redirect_stderr(io.StringIO()):
        jobs.divided(made, PARTITION, dataset=DATA)
        words = ["train", *scenario(made), "--clients", "0-2", "--out", made / LOCAL]
        assert jobs.stage(*words) == 0
    return made


def scenario(made: Path, model: str = "mlp+hidden~3", training: str = "adam+epochs~1") -> list:
    return [
        "--dataset", DATA, "--partition", PARTITION, "--model", model, "--training", training,
        "--data", made / "data", "--members", made / "members", "--trials", "0-1",
        "--timings", made / "t.parquet",
    ]  # fmt: skip


def token_of(chosen) -> str | None:
    """The token of a component with these values, or None where planning refuses them."""
    component, values = chosen
    try:
        return component.spec(values).token
    except FedreproError:
        event("refused when planned")
        return None


@pytest.mark.nightly
@some(80)
@given(settings_of(GENERATED, WHOLE))
def test_odd_settings_of_data(folder, chosen):
    if token := token_of(chosen):
        stage("prepare", "--dataset", token, "--out", folder / "other")


@some(150)
@given(settings_of(KINDS["partition"], WHOLE))
def test_odd_settings_of_partitions(folder, chosen):
    if token := token_of(chosen):
        words = ["--partition", token, "--data", folder / "data", "--trials", "0-1"]
        stage("partition", *words, "--out", folder / "other.parquet")


@some(60)
@given(settings_of(KINDS["model"], FEW), settings_of(KINDS["training"], FEW, epochs=1))
def test_odd_settings_of_training(folder, model, training):
    names = token_of(model), token_of(training)
    if all(names):
        words = [*scenario(folder, *names), "--clients", "0-2"]
        stage("train", *words, "--out", folder / "other.parquet")


def of_peers(folder: Path) -> list:
    words = [*scenario(folder), "--out", folder / "m.parquet"]
    return [*words, "--confusion", folder / "c.parquet", "--nodes", folder / "n.pt"]


@some(60)
@given(settings_of(KINDS["graph"], FEW, rows=["0.5_0.5", "1_0"], csv="one-way"))
def test_odd_settings_of_graphs(folder, chosen):
    if token := token_of(chosen):
        stage("peer", *of_peers(folder), "--method", "gossip_sgd+rounds~1", "--graph", token)


@pytest.mark.nightly
@some(120)
@given(settings_of(METHODS, FEW, rounds=2, steps=2))
def test_odd_settings_of_methods(folder, chosen):
    if not (token := token_of(chosen)):
        return
    common = [*scenario(folder), "--out", folder / "m.parquet", "--method", token]
    if chosen[0].meta["kind"] == "federated":
        stage("federate", *common, "--global-model", folder / "g.pt")
    elif chosen[0].meta["kind"] == "peer":
        stage("peer", *of_peers(folder), "--method", token, "--graph", "ring")
    else:
        stage("aggregate", *common, "--local", folder / LOCAL)


ARGUMENTS = {
    "--trials": ["0-0", "1-1", "0-5", "7-9", "-1-0", "0--1", "a", "1-0", "0-1-2"],
    "--clients": ["0-0", "2-2", "0-5", "3-3", "-1-0", "x"],
    "--seed": ["0", "1", "-1", str(2**70)],
    "--measure-every": ["1", "5", "0", "-1"],
    "--model": ["mlp", "mlp+hidden~4", "cnn", "logistic", "", "x", "mlp+hidden~50+"],
    "--training": ["adam", "sgd", "adam+epochs~1@2", "\n"],
    "--partition": ["homogeneous+clients~3", "dirichlet+clients~3", "pooled", "dirichlet"],
    "--dataset": ["digits", DATA, "mnist", "digits+test~9"],
    "--method": [
        "downpour_sgd+rounds~3", "pfnm", "downpour_sgd+rounds~2@3", "gossip_sgd+rounds~1",
        "uniform_ensemble", "pooled", "average;local", "pfnm;", ";", "pfnm+sigma2~1@2",
    ],
    "--graph": ["ring", "ring+self_loops~false", "matrix+rows~1", "file+csv~x", "rign", ""],
    "--checkpoint-seconds": ["0", "nan", "-1"],
}  # fmt: skip
WRITTEN = {
    "federate": ["--global-model", "g.pt"],
    "peer": ["--confusion", "c.parquet", "--nodes", "n.pt"],
}
MADE = ["--out", "--timings", "--global-model", "--confusion", "--nodes"]
MADE += ["--data", "--members", "--local"]
NAMES = [
    "nowhere", "empty", "text", "inside", "data", "data/dataset.json", "data/train_x.npy",
    "members", LOCAL,
]  # fmt: skip
FILES = dict.fromkeys(("--data", "--members"), NAMES) | {"--out": ["text/a", "new/a"]}
STAGES = {
    "train": ["--clients", "0-2", "--out"],
    "aggregate": ["--method", "average", "--local", LOCAL, "--out"],
    "federate": ["--method", "downpour_sgd+rounds~2", "--measure-every", "1", "--out"],
    "peer": ["--method", "gossip_sgd+rounds~2", "--graph", "ring", "--measure-every", "1", "--out"],
}


@some(120)
@given(st.sampled_from(list(STAGES)), st.data())
def test_odd_arguments_of_stages(folder, name, data):
    """One argument is another than the scenario's, or names another file or none."""
    words = [*scenario(folder), *STAGES[name], "made.parquet", *WRITTEN.get(name, [])]
    for file in ("empty", "text", "inside/a"):
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text("text" if file == "text" else "")
    given = dict(zip(words[::2], words[1::2], strict=True))
    odd = data.draw(st.sampled_from([*ARGUMENTS, *FILES]))
    given[odd] = data.draw(st.sampled_from(FILES.get(odd) or ARGUMENTS[odd]))
    pairs = ((key, folder / text if key in MADE else text) for key, text in given.items())
    stage(name, *(word for pair in pairs for word in pair))
