"""Stages by themselves, without Snakemake: `fedrepro job` on the digits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from jobs import divided, stage
from killed import killed_after

from fedrepro.core.artifacts import read_provenance, read_table
from fedrepro.core.provenance import origin
from fedrepro.core.state_and_model_files import load_state, read_models
from fedrepro.data.prepared import load_prepared
from fedrepro.stages import federate, rounds_job
from fedrepro.stages.trial_data import examples_of

ROOT = Path(__file__).parents[2]
SCENARIO = [
    "--dataset", "digits", "--partition", "dirichlet+clients~3",
    "--model", "mlp+hidden~10", "--training", "adam+epochs~2",
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Prepared digits and a partition of two trials."""
    folder = tmp_path_factory.mktemp("digits")
    divided(folder, "dirichlet+clients~3")
    return folder


def compute(name, data, out, *words, scenario=SCENARIO, trials="0-1"):
    return stage(
        name, *scenario, "--data", data / "data", "--members", data / "members",
        "--trials", trials, "--timings", out / "timings.parquet", *words,
    )  # fmt: skip


def train(data, out, name="local.parquet", trials="0-1", clients="0-2", scenario=SCENARIO):
    words = ["--clients", clients, "--out", out / name]
    return compute("train", data, out, *words, scenario=scenario, trials=trials)


def aggregated(data, out, method, *words, local=None, **given):
    """The metrics of a one-shot method or a control."""
    place = out / method.replace("~", "-")
    words = ["--local", local or data / "local.parquet", "--method", method, "--out", place, *words]
    assert compute("aggregate", data, out, *words, **given) == 0
    return read_table(place, "metrics").to_pandas()


@pytest.fixture(scope="module")
def local(data):
    assert train(data, data) == 0
    return data / "local.parquet"


def test_a_job_per_client_and_trial_trains_the_same_bytes(data, local, tmp_path):
    parts = []
    for trial in range(2):
        for client in range(3):
            name = f"{trial}-{client}.parquet"
            block = {"trials": str(trial), "clients": str(client)}
            assert train(data, tmp_path, name, **block) == 0
            parts.append(tmp_path / name)
    one, two = read_models([local], [0, 1]), read_models(parts, [0, 1])
    for trial in (0, 1):
        assert np.array_equal(one[trial].examples, two[trial].examples)
        for name, value in one[trial].tensors.items():
            assert value.tobytes() == two[trial].tensors[name].tobytes()


def test_after_how_many_epochs_clients_stopped_is_kept_and_measured(data, local, tmp_path):
    assert read_models([local], [0])[0].epochs is None  # all took all of them
    assert "epochs" not in read_table(local, "local_models").column_names
    early = [*SCENARIO[:-1], "adam+epochs~30+patience~1"]
    assert train(data, tmp_path, scenario=early) == 0
    found = read_models([tmp_path / "local.parquet"], [0, 1])
    done = np.concatenate([found[trial].epochs for trial in (0, 1)])
    assert ((done >= 2) & (done <= 30)).all()
    assert (done < 30).any()
    frame = aggregated(data, tmp_path, "local", local=tmp_path / "local.parquet", scenario=early)
    rows = frame.query("metric == 'epochs'")
    assert rows.dropna(subset="client")["value"].tolist() == done.tolist()
    assert rows[rows["client"].isna()]["value"].tolist() == [
        found[trial].epochs.mean() for trial in (0, 1)
    ]


def test_a_job_says_what_it_took(data, local):
    took = read_provenance(read_table(data / "timings.parquet", "timings"))
    assert took["cpu_seconds"] > 0
    assert took["peak_bytes"] > 2**20


def test_metrics_hold_the_parsed_parameters_as_typed_columns(data, local, tmp_path):
    frame = aggregated(data, tmp_path, "pfnm+sigma2~0.1@1")
    assert set(frame["method_sigma2"]) == {0.1, 1.0}
    assert set(frame["partition_clients"]) == {3}
    assert set(frame["model_hidden"]) == {"10"}
    assert set(frame["method"]) == {"pfnm", "pfnm+sigma2~0.1"}
    size = frame.query("metric == 'hidden_units' and method == 'pfnm'")["value"]
    assert ((size >= 10) & (size <= 30)).all()
    kinds = {"dataset", "partition", "model", "training", "methods", "trials", "clients", "seed"}
    assert not kinds & set(frame.columns)


def test_a_setting_that_a_method_cannot_give_is_left_out(data, local, tmp_path):
    frame = aggregated(data, tmp_path, "whole_clients+units~15@20")
    without = frame[frame["method"] == "whole_clients+units~15"]
    assert without[["trial", "metric", "value"]].values.tolist() == [
        [0, "left_out", 1], [1, "left_out", 1],
    ]  # fmt: skip
    size = frame.query("method == 'whole_clients+units~20' and metric == 'hidden_units'")
    assert size["value"].tolist() == [20, 20]


def test_alone_are_all_clients_with_their_mean_and_worst_and_the_best_is_one_of_them(
    data, local, tmp_path
):
    frame = aggregated(data, tmp_path, "local", trials="1")
    frame = frame[frame["metric"].str.startswith("accuracy")]
    each = frame[frame["client"].notna()]["value"]
    assert len(each) == 3
    whole = frame[frame["client"].isna()].set_index("metric")["value"]
    assert whole["accuracy"] == pytest.approx(each.mean())
    assert whole["accuracy_worst"] == each.min()
    best = aggregated(data, tmp_path, "best_clients", trials="1")
    (accuracy,) = best.query("metric == 'accuracy' and split == 'test'")["value"]
    assert accuracy in set(each)  # of one client's width, its own model


def test_what_clients_answer_is_measured(data, local, tmp_path):
    """Each setting of a sweep is charged for what was asked once for all of them."""
    frame = aggregated(data, tmp_path, "regmean+alpha~0.1@0.5", trials="0")
    values = frame.set_index("metric")["value"]
    assert values["passes"].tolist() == [1, 1]
    assert values["rounds"].tolist() == [1, 1]
    inputs = [64 + 1, 10 + 1]
    numbers = sum(n * (n + 1) // 2 for n in inputs) + 64 * 10 + 10 + 10 * 10 + 10
    assert values["bytes_up"].tolist() == [3 * 4 * numbers] * 2
    times = read_table(tmp_path / "timings.parquet", "timings").to_pandas()
    assert times["client_seconds"][0] == times["client_seconds"][1] > 0
    assert (times["server_seconds"] > 0).all()


def test_running_statistics_are_measured_again_by_the_clients(data, tmp_path):
    norm = [*SCENARIO[:5], "resnet8+norm~batch+width~2", *SCENARIO[6:-1], "sgd+epochs~1"]
    given = {"scenario": norm, "trials": "0"}
    assert train(data, tmp_path, **given) == 0
    found = [
        aggregated(data, tmp_path, method, local=tmp_path / "local.parquet", **given)
        for method in ("average", "average+batchnorm~recalibrate")
    ]
    averaged, again = (frame.set_index("metric")["value"] for frame in found)
    assert (averaged["rounds"], again["rounds"]) == (1, 2)
    assert again["passes"] == 1
    assert again["bytes_down"] > averaged["bytes_down"] == 0
    assert again["accuracy"] > 0


def test_the_common_start_is_handed_over(data, tmp_path):
    """So a step of 1 along the mean of task vectors ends at the mean of the models."""
    shared = [*SCENARIO[:-1], "adam+epochs~2+shared_init~true"]
    assert train(data, tmp_path, trials="1", scenario=shared) == 0
    given = {"local": tmp_path / "local.parquet", "scenario": shared, "trials": "1"}
    found = [
        aggregated(data, tmp_path, method, **given).set_index("metric")["value"]["accuracy"]
        for method in ("task_arithmetic", "average+weighted~false", "task_arithmetic+scale~2")
    ]
    assert found[0] == found[1] != found[2]


def test_inputs_of_another_data_set_are_handed_over_or_missed(data, local, tmp_path, capsys):
    method, public = "feddf+public_data~digits", ["--public", data / "data"]
    rows = aggregated(data, tmp_path, method, *public, trials="0").set_index("metric")["value"]
    assert rows["accuracy"] > 0.3
    words = ["--local", local, "--method", method, "--out", tmp_path / "m"]
    assert compute("aggregate", data, tmp_path, *words, trials="0") == 2
    assert "has inputs of another data set at the server" in capsys.readouterr().err


@pytest.mark.parametrize("prior", ["", "+prior_sd~0.5"])
def test_beliefs_alone_have_the_models_prior_and_predict_by_draws(data, tmp_path, prior):
    model = f"variational_mlp+hidden~10{prior}+spread~0.01"
    scenario = [*SCENARIO[:5], model, *SCENARIO[6:-1], "adam+epochs~20"]
    assert train(data, tmp_path, trials="0", scenario=scenario) == 0
    local = tmp_path / "local.parquet"
    spread = read_models([local], [0])[0].tensors["weight0_spread"]
    assert (np.median(np.logaddexp(0, spread)) > 0.02) == bool(prior)
    frame = aggregated(data, tmp_path, "local", local=local, trials="0", scenario=scenario)
    whole = frame[frame["client"].isna()].set_index("metric")["value"]
    assert whole["forward_passes"] == 10
    assert whole["accuracy"] > 0.3
    assert abs(whole["accuracy"] - whole["accuracy_of_means"]) < 0.2


def rounds(data, out, *words, method="downpour_sgd+rounds~4"):
    return compute(
        "federate", data, out, "--method", method, *words,
        "--out", out / "m.parquet", "--global-model", out / "global.pt",
    )  # fmt: skip


def measured(data, out, *words, **given):
    """The metrics of a method in rounds."""
    assert rounds(data, out, *words, **given) == 0
    return read_table(out / "m.parquet", "metrics").to_pandas()


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """The files of a run that nobody stopped."""
    folder = tmp_path_factory.mktemp("whole")
    assert rounds(data, folder) == 0
    return folder


def same_files(whole, stopped):
    for name in ("m.parquet", "global.pt"):
        assert (whole / name).read_bytes() == (stopped / name).read_bytes()


def test_rounds_are_measured_one_by_one(whole):
    frame = read_table(whole / "m.parquet", "metrics").to_pandas()
    each = frame[frame["round"].notna()]
    assert sorted(set(each["round"])) == [1, 2, 3, 4]
    accuracy = frame[frame["metric"] == "accuracy"].set_index("trial")
    final, last = (
        accuracy[rows]["value"] for rows in (accuracy["round"].isna(), accuracy["round"] == 4)
    )
    assert final.equals(last)
    costs = frame[frame["round"].isna()].groupby("metric")["value"].first()
    assert costs["messages"] == 4 * 2 * 3
    parameters = 64 * 10 + 10 + 10 * 10 + 10
    assert costs["bytes_up"] == costs["bytes_down"] == 4 * 3 * parameters * 4
    assert set(load_state(whole / "global.pt")["trials"]) == {"0", "1"}
    assert not (whole / "checkpoints").exists()


def test_rounds_may_be_measured_seldom_without_another_result(data, whole, tmp_path):
    each = read_table(whole / "m.parquet", "metrics").to_pandas()
    seldom = measured(data, tmp_path, "--measure-every", 3)
    # the first and the last are always measured
    assert sorted(set(seldom["round"].dropna())) == [1, 3, 4]
    kept = each[each["round"].isna() | each["round"].isin([1, 3, 4])]
    assert kept.reset_index(drop=True).equals(seldom.reset_index(drop=True))


def test_a_stream_is_measured_on_training_data_at_its_end(data, tmp_path):
    frame = measured(data, tmp_path, method="pfnm_streaming+steps~2")
    final = frame[frame["round"].isna()]
    assert {"accuracy", "accuracy_clients"} <= set(final[final["split"] == "train"]["metric"])
    assert set(frame[frame["round"].notna()]["split"].dropna()) == {"test"}


def test_communication_counts_the_rounds_within_a_step_of_a_stream(data, tmp_path):
    frame = measured(data, tmp_path, method="downpour_streaming+rounds~3+steps~2")
    costs = frame[frame["round"].isna()].groupby("metric")["value"].first()
    assert costs["rounds"] == 2 * 3
    assert costs["messages"] == 2 * 3 * 2 * 3


def test_a_stopped_run_goes_on_from_its_checkpoint_with_the_same_bytes(
    data, whole, tmp_path, capsys
):
    stopped = tmp_path / "stopped"
    with killed_after(6):  # in the second trial, after two of four rounds
        assert rounds(data, stopped, "--checkpoint-seconds", 0) == 130
    assert not (stopped / "m.parquet").exists()
    capsys.readouterr()
    assert rounds(data, stopped) == 0
    said = capsys.readouterr().err
    assert "going on from round 4 of trial-0.pt" in said
    assert "going on from round 2 of trial-1.pt" in said
    same_files(whole, stopped)


@pytest.mark.parametrize("name", ["save_state", "write_measured"])
def test_a_run_that_is_stopped_between_its_files_is_made_whole(
    data, whole, tmp_path, monkeypatch, name
):
    """All rounds are done: the file of the model comes first, then times and numbers."""
    stopped = tmp_path / "stopped"
    place = federate if name == "save_state" else rounds_job

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as late:
        late.setattr(place, name, stop)
        assert rounds(data, stopped) == 130
    assert not (stopped / "m.parquet").exists()
    assert rounds(data, stopped) == 0
    same_files(whole, stopped)
    assert {path.name for path in whole.iterdir()} == {path.name for path in stopped.iterdir()}


@pytest.mark.parametrize("part", ["digest", "device", "versions", "damaged"])
def test_a_checkpoint_of_other_sources_or_a_damaged_one_is_not_continued(
    data, whole, tmp_path, monkeypatch, capsys, part
):
    stopped = tmp_path / "stopped"
    with monkeypatch.context() as earlier, killed_after(1):
        earlier.setattr(rounds_job, "origin", lambda device: origin(device) | {part: "earlier"})
        assert rounds(data, stopped, "--checkpoint-seconds", 0) == 130
    if part == "damaged":
        (stopped / "checkpoints/trial-0.pt").write_bytes(b"half a checkpoint")
    capsys.readouterr()
    assert rounds(data, stopped) == 0
    said = capsys.readouterr().err
    other = "trial-0.pt is of other sources, settings or another device; starting again"
    assert ("starting this trial again" if part == "damaged" else other) in said
    assert "going on from" not in said
    same_files(whole, stopped)


def test_a_diverging_client_is_one_sentence(data, tmp_path, capsys):
    scenario = [*SCENARIO[:-1], "sgd+epochs~2+lr~1e20"]
    assert train(data, tmp_path, scenario=scenario) == 2
    said = capsys.readouterr().err.strip().split("\n")[-1]
    assert said.startswith("fedrepro: the loss of client ")
    assert "is not finite at step" in said
    assert "lower the learning rate" in said
    assert not (tmp_path / "local.parquet").exists()


def test_a_gpu_that_is_not_there_is_one_sentence(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = ["--clients", "0-2", "--out", tmp_path / "x.parquet", "--device", "cuda"]
    assert compute("train", data, tmp_path, *words) == 2
    assert "device is cuda, but PyTorch finds no GPU here" in capsys.readouterr().err


def test_debug_shows_the_traceback(data, tmp_path, capsys):
    words = ["partition", "--partition", "dirichlet+clients~9999", "--data", data / "data"]
    assert stage(*words, "--trials", "0", "--out", tmp_path / "p.parquet", "--debug") == 2
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "fedrepro: " in said


def test_compute_stages_need_neither_pydantic_nor_typer_nor_snakemake(data, local, tmp_path):
    """The packages of a bare GPU machine are enough."""
    code = (
        "import sys\n"
        "for name in ('pydantic', 'typer', 'snakemake'): sys.modules[name] = None\n"
        "import json\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "import jobs\n"
        "for job in json.loads(sys.argv[1]):\n"
        "    assert jobs.stage(*job) == 0, job\n"
    )
    common = [
        *SCENARIO, "--data", data / "data", "--members", data / "members", "--trials", "0",
        "--timings", tmp_path / "t.parquet",
    ]  # fmt: skip
    made = [
        ["prepare", "--dataset", "digits", "--out", tmp_path / "d"],
        ["partition", "--partition", "pooled", "--data", data / "data", "--trials", "0",
         "--out", tmp_path / "p"],
        ["train", *common, "--clients", "0-2", "--out", tmp_path / "l"],
        *(["aggregate", *common, "--method", method, "--local", local, "--out", tmp_path / "m"]
          for method in ("pfnm", "average")),
        ["federate", *common, "--method", "downpour_sgd+rounds~1", "--out", tmp_path / "f",
         "--global-model", tmp_path / "g"],
        ["peer", *common, "--graph", "ring", "--method", "gossip_sgd+rounds~1",
         "--out", tmp_path / "q", "--confusion", tmp_path / "c", "--nodes", tmp_path / "n"],
    ]  # fmt: skip
    texts = json.dumps([list(map(str, job)) for job in made])
    words = [sys.executable, "-c", code, texts, str(Path(__file__).parent)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_component_modules_load_no_heavy_package():
    code = (
        "import sys\n"
        "from fedrepro.core.registry import KINDS, components\n"
        "[components(kind) for kind in KINDS]\n"
        "heavy = ('torch', 'torchvision', 'sklearn', 'scipy', 'pandas', 'pydantic')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_clients_train_on_inputs_with_the_noise_of_their_partition(data, tmp_path):
    """`feature_noise` splits as `homogeneous` does, so only the noise can make models differ."""
    found = []
    for name in ("homogeneous", "feature_noise"):
        folder = tmp_path / name
        words = ["--partition", f"{name}+clients~2", "--data", data / "data", "--trials", "0"]
        assert stage("partition", *words, "--out", folder / "p.parquet") == 0
        words += ["--dataset", "digits", "--model", "mlp", "--training", "adam+epochs~1"]
        words += ["--clients", "0-1", "--members", folder / "p.parquet"]
        outputs = ["--out", folder / "m.parquet", "--timings", folder / "t.parquet"]
        assert stage("train", *words, *outputs) == 0
        found.append(read_models([folder / "m.parquet"], [0])[0].tensors)
    assert any(not np.array_equal(found[0][key], found[1][key]) for key in found[0])


def test_a_job_maps_the_inputs_and_copies_only_the_minibatches_it_takes(data):
    prepared = load_prepared(data / "data")
    examples = examples_of(prepared, "train", "cpu")
    assert examples.inputs.dtype == torch.uint8
    assert examples.inputs.data_ptr() == prepared.raw("train").ctypes.data
    assert isinstance(prepared.raw("train"), np.memmap)
