"""Stages by themselves, without Snakemake: `fedrepro job` on the digits."""

from __future__ import annotations

import dataclasses
from itertools import product
from types import SimpleNamespace

import jobs
import numpy as np
import pytest
import torch
from jobs import divided, killed_after, stage

from fedrepro.api import GlobalModel, Report
from fedrepro.core.checkpoint_and_model_files import load_state, read_models
from fedrepro.core.checksummed_files import read_provenance, read_source, read_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.provenance import origin
from fedrepro.core.registry import components
from fedrepro.core.spec import Component
from fedrepro.data.prepared import load_prepared
from fedrepro.stages import federate_and_peer as federate
from fedrepro.stages.trial_data import examples_of, require_codes
from fedrepro.training import engine
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.minibatches_and_augmentation import Task

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
    given = ["--data", data / "data", "--members", data / "members", "--trials", trials]
    return stage(name, *scenario, *given, "--timings", out / "timings.parquet", *words)


def train(data, out, name="local.parquet", trials="0-1", clients="0-2", scenario=SCENARIO):
    words = ["--clients", clients, "--out", out / name]
    return compute("train", data, out, *words, scenario=scenario, trials=trials)


def aggregated(data, out, method, *words, local=None, **given):
    """The metrics of a one-shot method or a control."""
    place = out / method.replace("~", "-")
    words = ["--local", local or data / "local.parquet", "--method", method, "--out", place, *words]
    assert compute("aggregate", data, out, *words, **given) == 0
    return read_table(place, "metrics").to_pandas()


def whole_trial(*given, **more):
    """The numbers of one trial that are of no single client."""
    frame = aggregated(*given, trials="0", **more)
    return frame[frame["client"].isna()].set_index("metric")["value"]


def with_training(training, model="mlp+hidden~10"):
    return [*SCENARIO[:4], "--model", model, "--training", training]


@pytest.fixture(scope="module")
def local(data):
    assert train(data, data) == 0
    return data / "local.parquet"


def test_a_job_per_client_and_trial_trains_the_same_bytes(data, local, tmp_path):
    parts = []
    for trial, client in product(range(2), range(3)):
        name = f"{trial}-{client}.parquet"
        assert train(data, tmp_path, name, trials=str(trial), clients=str(client)) == 0
        parts.append(tmp_path / name)
    one, two = read_models([local], [0, 1]), read_models(parts, [0, 1])
    for trial in (0, 1):
        assert np.array_equal(one[trial].examples, two[trial].examples)
        for name, value in one[trial].tensors.items():
            assert value.tobytes() == two[trial].tensors[name].tobytes()
    took = read_provenance(read_table(data / "timings.parquet", "timings"))
    assert (took["cpu_seconds"] > 0, took["peak_bytes"] > 2**20) == (True, True)


def test_after_how_many_epochs_clients_stopped_is_kept_and_measured(data, local, tmp_path):
    assert read_models([local], [0])[0].epochs is None  # all took all of them
    assert "epochs" not in read_table(local, "local_models").column_names
    early = with_training("adam+epochs~30+patience~1")
    assert train(data, tmp_path, scenario=early) == 0
    found = read_models([tmp_path / "local.parquet"], [0, 1])
    done = np.array([found[trial].epochs for trial in (0, 1)])
    assert ((done >= 2) & (done <= 30)).all()
    assert (done < 30).any()
    frame = aggregated(data, tmp_path, "local", local=tmp_path / "local.parquet", scenario=early)
    rows = frame.query("metric == 'epochs'")
    assert rows.dropna(subset="client")["value"].tolist() == done.ravel().tolist()
    assert rows[rows["client"].isna()]["value"].tolist() == done.mean(1).tolist()


def test_alone_are_all_clients_with_their_mean_and_worst_and_the_best_is_one_of_them(
    data, local, tmp_path
):
    frame = aggregated(data, tmp_path, "local", trials="0")
    each = frame[(frame["metric"] == "accuracy") & frame["client"].notna()]["value"]
    assert len(each) == 3
    whole = whole_trial(data, tmp_path, "local")
    assert whole["accuracy"] == pytest.approx(each.mean())
    assert whole["accuracy_worst"] == each.min()
    best = aggregated(data, tmp_path, "best_clients", trials="0")
    (accuracy,) = best.query("metric == 'accuracy' and split == 'test'")["value"]
    assert accuracy in set(each)  # of one client's width, its own model


def test_what_clients_answer_is_measured(data, local, tmp_path):
    """Each setting of a sweep is charged for what was asked once for all of them."""
    values = whole_trial(data, tmp_path, "regmean+alpha~0.1@0.5")
    inputs = [64 + 1, 10 + 1]
    numbers = sum(n * (n + 1) // 2 for n in inputs) + 64 * 10 + 10 + 10 * 10 + 10
    for metric, value in (("passes", 1), ("rounds", 1), ("bytes_up", 3 * 4 * numbers)):
        assert values[metric].tolist() == [value] * 2
    times = read_table(tmp_path / "timings.parquet", "timings").to_pandas()
    assert times["client_seconds"][0] == times["client_seconds"][1] > 0
    assert (times["server_seconds"] > 0).all()


def test_the_common_start_is_handed_over(data, tmp_path):
    """So a step of 1 along the mean of task vectors ends at the mean of the models."""
    shared = with_training("adam+epochs~2+shared_init~true")
    assert train(data, tmp_path, trials="0", scenario=shared) == 0
    given = {"local": tmp_path / "local.parquet", "scenario": shared}
    found = [
        whole_trial(data, tmp_path, method, **given)["accuracy"]
        for method in ("task_arithmetic", "average+weighted~false", "task_arithmetic+scale~2")
    ]
    assert found[0] == found[1] != found[2]


def test_inputs_of_another_data_set_are_handed_over_or_missed(data, local, tmp_path, capsys):
    method, public = "feddf+public_data~digits", ["--public", data / "data"]
    assert whole_trial(data, tmp_path, method, *public)["accuracy"] > 0.3
    known, prepared = read_source(tmp_path / method.replace("~", "-")), load_prepared(data / "data")
    resolved = prepared.info["provenance"]["resolved"]
    assert known["public_data"] == {"resolved": resolved, "data": prepared.checksum}
    words = ["--local", local, "--method", method, "--out", tmp_path / "m"]
    assert compute("aggregate", data, tmp_path, *words, trials="0") == 2
    assert "has inputs of another data set at the server" in capsys.readouterr().err


@pytest.mark.parametrize("prior", ["", "+prior_sd~0.5"])
def test_beliefs_alone_have_the_models_prior_and_predict_by_draws(data, tmp_path, prior):
    model = f"variational_mlp+hidden~10{prior}+spread~0.01"
    scenario, local = with_training("adam+epochs~20", model), tmp_path / "local.parquet"
    assert train(data, tmp_path, trials="0", scenario=scenario) == 0
    spread = read_models([local], [0])[0].tensors["weight0_spread"]
    assert (np.median(np.logaddexp(0, spread)) > 0.02) == bool(prior)
    whole = whole_trial(data, tmp_path, "local", local=local, scenario=scenario)
    assert whole["forward_passes"] == 10
    assert whole["accuracy"] > 0.3
    assert abs(whole["accuracy"] - whole["accuracy_of_means"]) < 0.2


def rounds(data, out, *words, method="downpour_sgd+rounds~4"):
    files = ["--out", out / "m.parquet", "--global-model", out / "global.pt"]
    return compute("federate", data, out, "--method", method, *files, *words)


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


def goes_on(data, whole, stopped, capsys):
    """What a run says that was stopped and ends with the same bytes."""
    assert not (stopped / "m.parquet").exists()
    capsys.readouterr()
    assert rounds(data, stopped) == 0
    for name in ("m.parquet", "global.pt"):
        assert (whole / name).read_bytes() == (stopped / name).read_bytes()
    assert {path.name for path in whole.iterdir()} == {path.name for path in stopped.iterdir()}
    return capsys.readouterr().err


def test_rounds_are_measured_one_by_one_or_seldom_without_another_result(data, whole, tmp_path):
    each = read_table(whole / "m.parquet", "metrics").to_pandas()
    assert sorted(set(each["round"].dropna())) == [1, 2, 3, 4]
    accuracy = each[each["metric"] == "accuracy"].set_index("trial")
    final, last = accuracy[accuracy["round"].isna()], accuracy[accuracy["round"] == 4]
    assert final["value"].equals(last["value"])
    costs = each[each["round"].isna()].groupby("metric")["value"].first()
    parameters = 64 * 10 + 10 + 10 * 10 + 10
    assert costs["bytes_up"] == costs["bytes_down"] == 4 * 3 * parameters * 4
    assert set(load_state(whole / "global.pt")["trials"]) == {"0", "1"}
    assert not (whole / "checkpoints").exists()
    seldom = measured(data, tmp_path, "--measure-every", 3)
    # the first and the last are always measured
    assert sorted(set(seldom["round"].dropna())) == [1, 3, 4]
    kept = each[each["round"].isna() | each["round"].isin([1, 3, 4])]
    assert kept.reset_index(drop=True).equals(seldom.reset_index(drop=True))


def test_a_stream_is_measured_on_training_data_at_its_end_and_counts_rounds_within_a_step(
    data, tmp_path
):
    frame = measured(data, tmp_path / "a", method="pfnm_streaming+steps~2")
    own = frame[frame["split"] == "train"]
    assert {"accuracy", "accuracy_clients"} <= set(own["metric"])
    assert own["round"].isna().all()
    costs = frame[frame["round"].isna()].groupby("metric")["value"].first()
    assert costs["bytes_down"] > 0
    assert costs["messages"] == 3 * 3  # nothing is received before the first step
    frame = measured(data, tmp_path / "b", method="downpour_streaming+rounds~3+steps~2")
    costs = frame[frame["round"].isna()].groupby("metric")["value"].first()
    assert (costs["rounds"], costs["messages"]) == (2 * 3, 2 * 3 * 2 * 3)


def test_a_partition_of_another_seed_is_not_taken(data, tmp_path, capsys):
    assert rounds(data, tmp_path, "--seed", 1) == 2
    assert "was made with seed 0, not 1" in capsys.readouterr().err


def test_a_stopped_run_goes_on_from_its_checkpoint_with_the_same_bytes(
    data, whole, tmp_path, capsys
):
    with killed_after(6):  # in the second trial, after two of four rounds
        assert rounds(data, tmp_path, "--checkpoint-seconds", 0) == 130
    said = goes_on(data, whole, tmp_path, capsys)
    assert "going on from round 4 of trial-0.pt" in said
    assert "going on from round 2 of trial-1.pt" in said


SOURCES = ("digest", "device", "versions", "arithmetic")


@pytest.mark.parametrize("part", [*SOURCES, "damaged", "method", "measured", "data"])
def test_a_checkpoint_of_other_sources_settings_or_data_or_a_damaged_one_is_not_continued(
    data, whole, tmp_path, monkeypatch, capsys, part
):
    words = ["--measure-every", 2] if part == "measured" else []
    method = "downpour_sgd+rounds~4" + "+messages~averaged" * (part == "method")
    of = federate.ScenarioData.of

    def other(job, device):
        given = of(job, device)
        prepared = dataclasses.replace(given.prepared, checksum="of other data")
        return dataclasses.replace(given, prepared=prepared) if part == "data" else given

    with monkeypatch.context() as earlier, killed_after(1):
        more = {part: "earlier"} if part in SOURCES else {}
        earlier.setattr(federate, "origin", lambda device: origin(device) | more)
        earlier.setattr(federate.ScenarioData, "of", staticmethod(other))
        assert rounds(data, tmp_path, "--checkpoint-seconds", 0, *words, method=method) == 130
    if part == "damaged":
        (tmp_path / "checkpoints/trial-0.pt").write_bytes(b"half a checkpoint")
    said = goes_on(data, whole, tmp_path, capsys)
    wanted = "trial-0.pt is of other sources, settings or another device; starting again"
    assert ("starting this trial again" if part == "damaged" else wanted) in said
    assert "going on from" not in said


def test_a_diverging_client_is_one_sentence_and_no_more_than_minibatches_is_copied(
    data, tmp_path, capsys
):
    assert train(data, tmp_path, scenario=with_training("sgd+epochs~2+lr~1e20")) == 2
    said = capsys.readouterr().err.strip().split("\n")[-1]
    assert said.startswith("fedrepro: the loss of client ")
    assert "is not finite" in said
    assert "lower the learning rate" in said
    assert not (tmp_path / "local.parquet").exists()
    prepared = load_prepared(data / "data")
    inputs = examples_of(prepared, "train", "cpu").inputs
    assert (inputs.dtype, type(prepared.raw("train"))) == (torch.uint8, np.memmap)
    assert inputs.data_ptr() == prepared.raw("train").ctypes.data


def test_clients_train_on_inputs_with_the_noise_of_their_partition(tmp_path):
    """`feature_noise` splits as `homogeneous` does, so only the noise can make models differ."""
    found = []
    for name in ("homogeneous", "feature_noise"):
        folder = tmp_path / name
        words = [*divided(folder, f"{name}+clients~2", "0"), "--model", "mlp", "--clients", "0-1"]
        words += ["--training", "adam+epochs~1", "--timings", folder / "t"]
        assert stage("train", *words, "--out", folder / "m.parquet") == 0
        found.append(read_models([folder / "m.parquet"], [0])[0].tensors)
    assert any(not np.array_equal(found[0][key], found[1][key]) for key in found[0])


class OneRound:
    """The uniform ensemble of networks that are trained as local training trains them."""

    rounds = 1

    def init(self, clients, info, rng):
        return {}

    def round(self, state, clients, info, rng):
        places = [rng.at(client=j, round=-1) for j in range(clients.count)]
        starts = initial_weights(clients.network, clients.settings, places)
        tasks = [Task(rows, place) for rows, place in zip(clients.data.rows, places, strict=True)]
        given = clients.network, clients.data.examples, tasks, clients.settings, starts
        trained = engine.train(*given)
        sent = Report(traffic=clients.models(up=clients.count, down=0))
        return {name: torch.from_numpy(value) for name, value in trained.tensors.items()}, sent

    def model(self, state, clients):
        tensors = {name: value.numpy() for name, value in state.items()}
        share = np.full((clients.count, clients.network.classes), 1.0 / clients.count)
        return GlobalModel(clients.model, tensors, share)


def test_one_network_has_one_training_accuracy(tmp_path, monkeypatch):
    """With noise on what clients hold, .60 and .44 were measured for the same network."""
    known = components("method")
    ensemble = known["uniform_ensemble"]
    meta = {**ensemble.meta, "evaluate": ("train", "test")}
    in_rounds = Component("method", "one_round", 1, OneRound, {**meta, "kind": "federated"})
    monkeypatch.setitem(known, "one_round", in_rounds)
    monkeypatch.setitem(known, "uniform_ensemble", dataclasses.replace(ensemble, meta=meta))
    made = jobs.divided(tmp_path, "feature_noise+clients~3+sigma~5+validation~400")
    made += ["--model", "mlp+hidden~10", "--training", "adam+epochs~2", "--timings", tmp_path / "t"]

    def stage(*words):
        assert jobs.stage(*words) == 0

    stage("train", *made, "--clients", "0-2", "--out", tmp_path / "local")
    words = ["--method", "uniform_ensemble", "--local", tmp_path / "local"]
    stage("aggregate", *made, *words, "--out", tmp_path / "one")
    words = ["--method", "one_round", "--global-model", tmp_path / "global"]
    stage("federate", *made, *words, "--out", tmp_path / "two")

    def accuracy(name):
        rows = read_table(tmp_path / name, "metrics").to_pandas()
        rows = rows[rows["metric"].str.startswith("accuracy") & rows["round"].isna()]
        return rows.set_index(["trial", "split", "metric"])["value"].to_dict()

    assert accuracy("one") == accuracy("two")
    right = 1037 * accuracy("one")[1, "train", "accuracy"]  # of 1,437, what clients train with
    assert right == pytest.approx(round(right), abs=1e-9)


@pytest.mark.parametrize(("scale", "largest"), [(1, 2), (1, 3), (1, -1), (1, 1.5), (20, 2)])
def test_a_network_of_letters_reads_codes_below_the_number_of_classes(scale, largest):
    codes = np.array([[0, largest]], np.float32)
    data = {"shape": (2,), "classes": "abc", "scale": scale, "token": "t", "raw": lambda _: codes}
    given = components("model")["char_lstm"].spec(), SimpleNamespace(**data)
    with pytest.raises(FedreproError, match="t has no classes for networks to tell apart"):
        require_codes(given[0], SimpleNamespace(**data | {"classes": ""}))
    if (scale, largest) == (1, 2):
        require_codes(*given)
    else:
        with pytest.raises(FedreproError, match="codes from 0 to 2, one a class"):
            require_codes(*given)
