"""Models are tuned on a public sample: the same sample for all, and by the same training."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import jobs
import numpy as np
import plain
import pytest
import torch
from contract import METHODS, ONE_SHOT, call, each, probabilities_of
from problems import CLASSES, FEATURES, problem

from fedrepro.api import GlobalModel
from fedrepro.core.artifacts import read_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import TUNE, components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.data.partition_files import PartitionIndices, read_partition
from fedrepro.data.prepared import load_prepared
from fedrepro.planning.jobs import read_job
from fedrepro.stages.trial_data import TrialData
from fedrepro.training.examples import Examples
from fedrepro.training.minibatches import Task

PLACE = RngKey(0).at(call=1)


def sample_of(given, dtype=torch.float32):
    own = given.clients.data.validated
    return Examples(own.inputs[:40].to(dtype), own.targets[:40])


def after(model, given, dtype=torch.float32, **values):
    sample, settings = sample_of(given, dtype), given.clients.settings
    spec = components(TUNE)[TUNE].spec({"examples": 40, **values})
    return spec.component.fn(
        model, sample, (FEATURES,), CLASSES, settings, PLACE, **spec.single().values
    )


@pytest.mark.parametrize("name", ONE_SHOT)
def test_every_one_shot_method_can_be_tuned(name):
    given = problem(count=1) if "partition" in METHODS[name].meta["scenario"] else problem()
    models = each(call(name, given))
    for model, layers in product(models, ["all", "last"]):
        new = after(model, given, layers=layers)
        assert {k: v.shape for k, v in new.tensors.items()} == {
            k: v.shape for k, v in model.tensors.items()
        }
        moved = {k for k in new.tensors if not np.array_equal(new.tensors[k], model.tensors[k])}
        last = f"{len(new.tensors) // 2 - 1}"
        assert moved == {k for k in new.tensors if layers == "all" or k.endswith(last)}
        assert torch.isfinite(probabilities_of(new, given)).all()
        assert (new.weights is None) == (model.weights is None)


@pytest.mark.parametrize("patience", [0, 1])
@pytest.mark.parametrize("layers", ["all", "last"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_tuning_is_a_plain_loop_from_the_models_weights(layers, dropout, patience):
    """On widths that are not the model's own."""
    given = problem(amsgrad=False)
    rng = np.random.default_rng(0)
    sizes = (FEATURES, 13, CLASSES)
    tensors = {
        f"{part}{i}": rng.standard_normal((2, *shape)).astype(np.float32)
        for i, pair in enumerate(pairwise(sizes))
        for part, shape in (("weight", pair), ("bias", pair[1:]))
    }
    spec = parse_token("model", "mlp+dropout~0.5+hidden~8" if dropout else "mlp+hidden~8")
    model = GlobalModel(spec, tensors)
    values = {"layers": layers, "lr": 0.02, "epochs": 6, "patience": patience}
    found = after(model, given, torch.float64, **values)
    settings = replace(given.clients.settings, lr=0.02, epochs=6, patience=patience)
    task = Task(np.arange(40), PLACE)
    for i in range(2):
        start = {k: v[i].astype(np.float64) for k, v in tensors.items()}
        free = start if layers == "all" else {k: start[k] for k in ("weight1", "bias1")}

        def predict(w, x, noise, start=start):
            whole = {**{k: torch.tensor(v) for k, v in start.items()}, **w}
            return plain.mlp(whole, x, noise, 2, dropout)

        own = plain.loop(
            predict, sample_of(given, torch.float64), task, settings, free, random=True
        )
        for key, value in own.items():
            assert np.abs(found.tensors[key][i] - value).max() < 1e-6, key


def test_a_diverged_model_stays_one_and_tensors_of_another_are_a_sentence():
    given = problem()
    (model,) = each(call("average", given))
    broken = {k: v * np.inf for k, v in model.tensors.items()}
    with np.errstate(invalid="ignore"):
        assert not after(replace(model, tensors=broken), given).finite
    strange = dict(model.tensors) | {"weight0": np.zeros((1, FEATURES + 1, 8), np.float32)}
    with pytest.raises(FedreproError, match="are not those of one dense network"):
        after(replace(model, tensors=strange), given)


# --------------------------------------------------------------------------------- the sample


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Digits with 200 validation examples among three clients by two partitions, and models."""
    found = tmp_path_factory.mktemp("tuned")
    for name, token in PARTITIONS.items():
        jobs.divided(found, token, dataset=DATA)
        (found / "members").rename(found / name)
    words = [*SCENARIO, "--clients", "0-2", "--out", str(found / "local.parquet")]
    assert compute("train", found, words) == 0
    return found


DATA = "digits+validation~200"
PARTITIONS = {"few": "by_label+clients~3", "one": "pooled"}
SCENARIO = [
    "--dataset", DATA, "--partition", PARTITIONS["few"],
    "--model", "mlp+hidden~10", "--training", "adam+epochs~2",
]  # fmt: skip


def compute(stage, folder, words):
    given = ["--data", folder / "data", "--members", folder / "few", "--trials", "0-1"]
    return jobs.stage(stage, *given, "--timings", folder / "t.parquet", *words)


def rows_of(folder, tmp_path, *words):
    out = tmp_path / "m.parquet"
    given = [*SCENARIO, "--local", folder / "local.parquet", "--out", out, *words]
    assert compute("aggregate", folder, given) == 0
    return read_table(out, "metrics").to_pandas()


def trial_data(folder, name, trial=0):
    members = read_partition(folder / name, trial)
    return TrialData(load_prepared(folder / "data"), members, RngKey(0, trial), "cpu")


def test_a_sample_follows_from_trial_size_and_repetition_alone(folder):
    def rows(name, trial, size, repetition):
        return trial_data(folder, name, trial).public_sample(size, repetition).inputs.numpy()

    assert rows("few", 0, 50, 0).shape == (50, 64)
    assert np.array_equal(rows("few", 0, 50, 1), rows("one", 0, 50, 1))
    others = [rows("few", *place) for place in ((0, 50, 0), (1, 50, 0), (0, 50, 1))]
    assert len({part.tobytes() for part in others}) == 3
    whole, held = rows("few", 0, 200, 3), load_prepared(folder / "data").raw("validation")
    assert len(np.unique(whole, axis=0)) == len(np.unique(held, axis=0))


def test_a_sample_larger_than_there_is_is_a_sentence(folder):
    with pytest.raises(FedreproError, match=r"sample of 201 examples .* clients have 200 valid"):
        trial_data(folder, "few").public_sample(201, 0)
    own = trial_data(folder, "few")
    members = PartitionIndices(own.members.train, [np.empty(0, np.int64)] * 3)
    with pytest.raises(FedreproError, match="works on validation examples of clients"):
        replace(own, members=members).public_sample(5, 0)


def test_a_job_measures_what_came_and_what_tuning_made_of_it(folder, tmp_path):
    token = "tune+examples~50@100+repetitions~2"
    frame = rows_of(folder, tmp_path, "--method", "average", "--tune", token)
    plain_rows = rows_of(folder, tmp_path, "--method", "average")
    final, after_all = frame[frame["phase"] == "final"], frame[frame["phase"] == "tuned"]
    assert final[plain_rows.columns].reset_index(drop=True).equals(plain_rows)
    assert final["repetition"].isna().all()
    assert set(after_all["tune_examples"]) == {50, 100}
    assert set(after_all["setting"]) == {
        f"average;tune+examples~{size}+repetitions~2" for size in (50, 100)
    }
    accuracy = after_all.query("metric == 'accuracy' and split == 'test'")
    assert len(accuracy) == 2 * 2 * 2
    assert accuracy["value"].nunique() > 1
    assert accuracy["value"].mean() > final.query("metric == 'accuracy'")["value"].mean()
    # the server tunes: the clients send nothing more
    assert frame[frame["metric"] == "bytes_up"]["value"].nunique() == 1


def test_clients_alone_are_tuned_one_by_one(folder, tmp_path):
    words = ["--method", "local", "--tune", "tune+examples~50"]
    frame = rows_of(folder, tmp_path, *words).query("phase == 'tuned' and metric == 'accuracy'")
    each_client, mean = frame.dropna(subset="client"), frame[frame["client"].isna()]
    assert len(each_client) == 2 * 3
    for trial in (0, 1):
        own = each_client[each_client["trial"] == trial]["value"].mean()
        assert mean[mean["trial"] == trial]["value"].item() == pytest.approx(own)


def test_a_setting_that_a_method_cannot_give_is_left_out_tuned_as_well(folder, tmp_path):
    words = ["--method", "whole_clients+units~15", "--tune", "tune+examples~50"]
    frame = rows_of(folder, tmp_path, *words)
    assert frame["metric"].tolist() == ["left_out"] * 4
    assert frame["phase"].tolist() == ["final", "tuned"] * 2


def test_a_tuning_is_read_as_it_is_written():
    spec = components(TUNE)[TUNE].spec({"examples": [100, 200], "lr": [0.01, 0.001]})
    job = read_job({"stage": "aggregate", "tune": spec.entry, "out": "here"})
    assert job.tune == spec
    assert [one.token for one in spec.expand()] == [
        "tune+examples~100", "tune+examples~100+lr~0.001",
        "tune+examples~200", "tune+examples~200+lr~0.001",
    ]  # fmt: skip
