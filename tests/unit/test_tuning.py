"""Models tuned on a public sample: the same sample for all; and exhibits that show them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise, product

import jobs
import numpy as np
import pandas as pd
import plain
import pytest
import torch
from contract import METHODS, ONE_SHOT, call, each, probabilities_of
from problems import CLASSES, FEATURES, problem
from small_exhibits import file_of, small

from fedrepro.api import GlobalModel
from fedrepro.core.checksummed_files import read_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import TUNE, components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.data.partitions_populations_and_holdouts import PartitionIndices, read_partition
from fedrepro.data.prepared import load_prepared
from fedrepro.numbers.tables_and_selection import read_metrics, summarise, tidy
from fedrepro.numbers.trial_statistics import as_shown
from fedrepro.numbers.verdicts.verdicts_on_printed_values import PrintedValue, printed_rows
from fedrepro.planning.config_files import Config
from fedrepro.planning.plan import Plan
from fedrepro.planning.scenarios_runs_and_jobs import read_job
from fedrepro.stages.trial_data import TrialData
from fedrepro.training.minibatches_and_augmentation import Task
from fedrepro.training.training_examples import Examples

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


def test_a_sample_follows_from_trial_size_and_repetition_and_is_no_larger_than_there_is(folder):
    def rows(name, trial, size, repetition):
        return trial_data(folder, name, trial).public_sample(size, repetition).inputs.numpy()

    assert rows("few", 0, 50, 0).shape == (50, 64)
    assert np.array_equal(rows("few", 0, 50, 1), rows("one", 0, 50, 1))
    others = [rows("few", *place) for place in ((0, 50, 0), (1, 50, 0), (0, 50, 1))]
    assert len({part.tobytes() for part in others}) == 3
    whole, held = rows("few", 0, 200, 3), load_prepared(folder / "data").raw("validation")
    assert len(np.unique(whole, axis=0)) == len(np.unique(held, axis=0))
    with pytest.raises(FedreproError, match="201 public examples are asked for"):
        trial_data(folder, "few").public_sample(201, 0)
    own = trial_data(folder, "few")
    members = PartitionIndices(own.members.train, [np.empty(0, np.int64)] * 3)
    with pytest.raises(FedreproError, match="works on validation examples of clients"):
        replace(own, members=members).public_sample(5, 0)


def test_a_job_measures_what_came_and_what_tuning_made_of_it_as_it_is_written(folder, tmp_path):
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
    spec = components(TUNE)[TUNE].spec({"examples": [100, 200], "lr": [0.01, 0.001]})
    job = read_job({"stage": "aggregate", "tune": spec.entry, "out": "here"})
    assert job.tune == spec
    assert [one.token for one in spec.expand()] == [
        "tune+examples~100", "tune+examples~100+lr~0.001",
        "tune+examples~200", "tune+examples~200+lr~0.001",
    ]  # fmt: skip


def test_clients_alone_are_tuned_one_by_one_and_a_setting_is_left_out_tuned_as_well(
    folder, tmp_path
):
    words = ["--method", "local", "--tune", "tune+examples~50"]
    frame = rows_of(folder, tmp_path, *words).query("phase == 'tuned' and metric == 'accuracy'")
    each_client, mean = frame.dropna(subset="client"), frame[frame["client"].isna()]
    assert len(each_client) == 2 * 3
    for trial in (0, 1):
        own = each_client[each_client["trial"] == trial]["value"].mean()
        assert mean[mean["trial"] == trial]["value"].item() == pytest.approx(own)
    words = ["--method", "whole_clients+units~15", "--tune", "tune+examples~50"]
    frame = rows_of(folder, tmp_path, *words)
    assert frame["metric"].tolist() == ["left_out"] * 4
    assert frame["phase"].tolist() == ["final", "tuned"] * 2


DIGITS = {"name": "digits", "validation": 200}
RAW = {"name": "raw", "label": "raw", "tune": {"epochs": 9, "patience": 3}}
PLAIN = {"name": "average", "label": "A"}
TUNED = {"name": "average", "label": "A tuned", "tune": {"repetitions": 2}}
LINE = {"name": "local", "label": "L", "tune": {"lr": 0.001}}
SIZES = [50, 100]
ONCE = {"partition.clients": [3]}
SWEEP = {**ONCE, "tune.examples": SIZES}


def exhibit(**settings):
    given = {"dataset": DIGITS, "partition": {"name": "by_label"}, "sweep": SWEEP}
    return small(**{**given, "methods": [PLAIN, TUNED, LINE, RAW], **settings})


def test_a_size_is_a_point_a_job_tunes_at_all_and_what_is_shown_twice_is_computed_once():
    found = exhibit()
    assert [point.values["examples"] for point in found.points] == SIZES
    assert len(found.trials) == 3
    for point, size in zip(found.points, SIZES, strict=True):
        for (label, setting), run in point.runs.items():
            assert run.tune["examples"] == (50, 100)
            assert setting.tune is None if label == "A" else setting.tune["examples"] == size
    (first, _) = exhibit().points
    runs = {label: run for (label, _), run in first.runs.items()}
    assert runs["A"] is runs["A tuned"]
    (alone,) = exhibit(methods=[PLAIN], sweep=ONCE).points
    assert all(run.tune is None for run in alone.runs.values())
    needs = {measure.label: "public_sample" in measure.needs for measure in exhibit().measures}
    assert (needs["A"], needs["A tuned"]) == (False, True)


def test_tuned_runs_have_folders_of_their_own_and_files_without_tuning_do_not_speak_of_it():
    file = file_of(dataset=DIGITS, partition={"name": "by_label"}, sweep=SWEEP, methods=[TUNED])
    plan = Plan(Config(), {"small": file}, "quick")
    (run,) = plan.splits
    folder = plan.run(run, range(2))
    job = plan.job(folder)
    assert job.tune.token == "tune+examples~50@100+repetitions~2"
    assert job.evaluate == ("test",)
    assert folder != plan.run(replace(run, tune=None), range(2))


def computed(made, folder):
    """The rows of every run, by its job."""
    found = {}
    for place, run in enumerate(made.trials):
        words = [*SCENARIO, "--local", folder / "local.parquet", "--method", run.method.token]
        words += ["--tune", run.tune.token] if run.tune else []
        words += ["--evaluate", *sorted({split for one in made.measures for split in one.evaluate})]
        assert compute("aggregate", folder, [*words, "--out", folder / f"{place}.m"]) == 0
        found[run] = read_metrics([folder / f"{place}.m"])[0]
    return found


SMALL = {
    "model": {"name": "mlp", "hidden": [10]},
    "training": {"name": "adam", "epochs": 2},
    "trials": 2,
}


def value(frame, method, examples, metric="accuracy", split="test"):
    own = frame[(frame["method"] == method) & (frame["examples"] == examples)]
    (row,) = own[(own["metric"] == metric) & (own["split"] == split)].to_dict("records")
    return row


def test_a_number_is_the_mean_over_the_samples_of_a_size(folder):
    made = exhibit(**SMALL)
    tables = computed(made, folder)
    frame = summarise(made, tables).numbers
    (run,) = {run for (label, _), run in made.points[0].runs.items() if label == "A tuned"}
    rows = tables[run].to_pandas().query("metric == 'accuracy' and split == 'test'")
    for size in SIZES:
        shown = value(frame, "A tuned", size)
        own = rows[(rows["phase"] == "tuned") & (rows["tune_examples"] == size)]
        assert len(own) == 4
        by_trial = own.groupby("trial")["value"].mean()
        assert [float(v) for v in shown["by_trial"].split()] == pytest.approx(list(by_trial))
        assert shown["mean"] == pytest.approx(by_trial.mean())
        assert shown["setting"] == f"average;tune+examples~{size}+repetitions~2"
        final = rows[rows["phase"] == "final"]["value"].mean()
        assert value(frame, "A", size)["mean"] == pytest.approx(final)
    assert value(frame, "raw", 100)["mean"] > 0.3
    kept = tidy(made, tables).to_pandas()
    assert set(kept["phase"]) == {"final", "tuned"}
    assert kept["repetition"].max() == 1


def test_a_way_of_tuning_is_chosen_like_any_setting_or_shown_side_by_side(folder):
    entry = {**TUNED, "tune": {"lr": [1e-06, 0.01], "examples": 100}, "choose": "pooled_train"}
    made = exhibit(methods=[entry], sweep=ONCE, **SMALL)
    assert made.measures[0].chosen == ("lr",)
    found = summarise(made, computed(made, folder))
    assert found.choice[found.choice["chosen"] == "true"]["value"].tolist() == ["0.01"]
    assert set(found.numbers["setting"]) == {"average;tune+examples~100"}
    entry = {**TUNED, "tune": {"layers": ["all", "last"], "examples": 100}, "show": ["layers"]}
    table = {"rows": ["layers"], "columns": ["clients"]}
    made = exhibit(methods=[entry], sweep=ONCE, drawing=table, **SMALL)
    frame = summarise(made, computed(made, folder)).numbers
    found = frame[(frame["metric"] == "accuracy") & (frame["split"] == "test")]
    assert found["layers"].tolist() == ["all", "last"]
    assert found["mean"].nunique() == 2


def test_a_spread_may_be_over_clients(folder):
    """The sample sd over clients of their means over trials; of the others all is as ever."""
    tuned = {**LINE, "spread": "clients", "tune": {"examples": 50, "repetitions": 2}}
    local = {"name": "local", "label": "Local", "spread": "clients"}
    made = exhibit(methods=[local, tuned, PLAIN], sweep=ONCE, **SMALL)
    tables = computed(made, folder)
    frame = summarise(made, tables).numbers
    accuracy = frame[(frame["metric"] == "accuracy") & (frame["split"] == "test")]
    found = accuracy.set_index("method")
    (run,) = [run for run in made.trials if run.method.name == "local"]
    rows = tables[run].to_pandas()
    own = rows[rows["client"].notna() & (rows["metric"] == "accuracy")]
    for label, phase in (("Local", "final"), ("L", "tuned")):
        means = own[own["phase"] == phase].groupby("client")["value"].mean()
        assert found.loc[label, "clients_sd"] == pytest.approx(means.std(ddof=1))
        assert found.loc[label, "sd"] != found.loc[label, "clients_sd"]
    assert np.isnan(found.loc["A", "clients_sd"])
    shown = as_shown(accuracy).set_index("method")["sd"]
    assert shown["Local"] == found.loc["Local", "clients_sd"]
    assert shown["A"] == found.loc["A", "sd"]
    assert made.caption.endswith("The spread of Local and L is over clients.")


def test_a_printed_spread_over_clients_is_no_error_of_a_mean():
    """Beside its like it is shown; by it a verdict would be milder than the trials allow."""
    made = small(methods=[{"name": "local", "label": "L", "spread": "clients"}], sweep=ONCE)
    row = {"clients": 3, "method": "L", "metric": "accuracy", "split": "test", "mean": 0.25}
    given = PrintedValue("x", {}, "L", "accuracy", "test", 0.2, 0.1, 5, "", 0.01, "here")
    for spread, verdict, shown in ((0.2, "better", 0.2), (math.nan, "reproduced", 0.001)):
        ours = pd.DataFrame([{**row, "sd": 0.001, "trials": 5, "clients_sd": spread}])
        (found,) = printed_rows(made, [given], ours, {}).to_dict("records")
        assert (found["verdict"], found["sd"]) == (verdict, shown)


def test_spread_over_clients_and_tuning_leave_no_trace_where_none_is_asked_for(folder):
    made = exhibit(methods=[PLAIN, {"name": "local"}], sweep=ONCE, **SMALL)
    tables = computed(made, folder)
    assert "clients_sd" not in summarise(made, tables).numbers
    assert made.caption == "a caption"
    names = {name for one in tables.values() for name in one.column_names}
    assert not {name for name in names if "tune" in name or name == "repetition"}
    made = exhibit(methods=[{**PLAIN, "spread": "clients"}], sweep=ONCE, **SMALL)
    with pytest.raises(FedreproError, match="average has no numbers of single clients, so it has"):
        summarise(made, computed(made, folder))
