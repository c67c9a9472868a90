"""Races: settings side by side, of which the worse half stops at each rung."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import divided, killed_after, stage
from small_exhibits import file_of

from fedrepro.core import evaluation_schedule_and_successive_halving as halving
from fedrepro.core.checkpoint_and_model_files import load_state
from fedrepro.core.checksummed_files import read_table
from fedrepro.core.registry import parse_token
from fedrepro.data import prepared
from fedrepro.numbers.tables_and_selection import summarise
from fedrepro.planning.config_files import Config
from fedrepro.planning.forecast import whole_settings
from fedrepro.planning.plan import Plan


def test_the_rungs_are_shares_of_the_declared_rounds_and_who_stops_when():
    found = {rounds: halving.rungs(rounds) for rounds in (800, 100, 4, 0)}
    assert found == {800: (100, 200, 400), 100: (13, 25, 50), 4: (1, 1, 2), 0: ()}
    costs = {1: 1, 2: 2 / 8 + 7 / 8, 3: 3 / 8 + 2 / 8 + 6 / 8, 16: 2 + 1 + 1 + 1}
    assert {settings: halving.whole_runs(settings) for settings in costs} == costs
    numbers = {0: [0.1, 0, 0], 1: [0.5, 0.6, 0.2], 2: [0.9, 0.2, 0], 3: [0.4, 0.7, 0.9]}
    numbers |= {4: [0.3, 0, 0], 5: [math.nan, 1, 1]}
    at = halving.rungs(80)
    found = halving.successive_halving(
        6, 80, lambda setting, rung: numbers[setting][at.index(rung)]
    )
    assert found == {0: 10, 4: 10, 5: 10, 2: 20, 1: 40}


@pytest.mark.parametrize(
    ("scores", "left"),
    [
        *(([0.5] * count, list(range((count + 1) // 2))) for count in range(2, 5)),
        ([0.1, 0.5, 0.4, 0.3], [1, 2]),
        ([0.1, 0.5, 0.4], [1, 2]),
        ([0.1 + 0.2, 0.3], [0]),  # equal but for rounding
        ([math.nan, 0.0], [1]),
        ([math.nan] * 3, [0, 1]),
    ],
)
def test_the_better_half_rounded_up_goes_on_and_ties_go_to_the_first(scores, left):
    stopped = halving.successive_halving(len(scores), 8, lambda setting, _: scores[setting])
    assert [setting for setting in range(len(scores)) if stopped.get(setting) != 1] == left


@given(st.integers(1, 20), st.integers(1, 2000), st.randoms())
def test_a_race_halves_at_each_rung_and_asks_nothing_of_who_is_out(settings, rounds, random):
    asked: list[tuple[int, int]] = []

    def score(setting, rung):
        asked.append((setting, rung))
        return random.random()

    stopped = halving.successive_halving(settings, rounds, score)
    left = settings
    for _ in (8, 4, 2):
        left = math.ceil(left / 2)
    assert settings - len(stopped) == left
    assert set(stopped.values()) <= set(halving.rungs(rounds))
    assert all(rung <= stopped.get(setting, rounds) for setting, rung in asked)


METHOD = "fedavg+fraction~0.5+rounds~16"
LRS = "0.003@0.2@1e30@0.03@0.01"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    words = divided(tmp_path_factory.mktemp("race"), "iid+clients~4+validation~200")
    return [*words, "--model", "mlp+hidden~10"]


def federate(made, out, lr, every, *words, method=METHOD):
    files = ["--out", out / "m", "--timings", out / "t", "--global-model", out / "g"]
    what = ["--method", method, "--training", f"sgd+epochs~1+lr~{lr}", "--measure-every", every]
    return stage("federate", *made, *files, *what, *words)


def rows_of(path):
    return read_table(path / "m", "metrics").to_pandas()


@pytest.fixture(scope="module")
def raced(made, tmp_path_factory):
    """Five rates, one of which diverges: 5, 3, 2 and 1 of them are left."""
    out = tmp_path_factory.mktemp("raced")
    assert federate(made, out, LRS, "3+race~16", "--evaluate", "server_validation") == 0
    return out


def same(one, two):
    assert one.keys() == two.keys()
    assert all(np.array_equal(value, two[name]) for name, value in one.items())


def stopped(frame):
    own = frame[frame["metric"] == "stopped_at"]
    return dict(zip(own["setting"], own["value"].astype(int), strict=False))


def test_the_worse_half_of_the_mean_over_trials_stops_at_each_rung_and_keeps_its_curve(raced):
    frame = rows_of(raced)
    out = stopped(frame)
    assert sorted(out.values()) == [2, 2, 4, 8]
    assert out[f"{METHOD};training+lr~1e30"] == 2
    assert frame["setting"].nunique() == 5
    for setting, at in out.items():
        own = frame[(frame["setting"] == setting) & (frame["round"].notna())]
        assert own["round"].max() == at
        assert set(own["trial"]) == {0, 1}
    server = frame[(frame["split"] == "server_validation") & frame["round"].notna()]
    assert set(server["round"]) == {1, 2, 3, 4, 6, 8, 9, 12, 15, 16}
    assert set(frame[(frame["split"] == "test")]["round"].dropna()) == {1, 3, 6, 9, 12, 15, 16}
    assert set(frame["training_lr"]) == {0.003, 0.2, 1e30, 0.03, 0.01}
    left = 5
    own = frame[(frame["split"] == "server_validation") & (frame["metric"] == "accuracy")]
    for rung in halving.rungs(16):
        there = own[own["round"] == rung]
        means = there.groupby("setting")["value"].apply(lambda v: v.mean(skipna=False))
        racing = [s for s in frame["setting"].unique() if out.get(s, 99) >= rung]
        assert len(racing) == left
        going = [s for s in racing if out.get(s, 99) > rung]
        worst = min(means[s] for s in going)
        assert all(not means.get(s, math.nan) > worst for s in set(racing) - set(going))
        left = len(going)


def test_a_setting_that_is_left_has_the_rows_of_a_run_of_its_own(made, raced, tmp_path):
    frame = rows_of(raced)
    (winner,) = set(frame["setting"]) - set(stopped(frame))
    rate = winner.partition("lr~")[2]
    assert federate(made, tmp_path, rate, "3", "--follow", "server_validation") == 0
    own = frame[frame["setting"] == winner]
    unmeasured = own["round"].isin(halving.rungs(16)) & ~own["round"].isin(range(3, 16, 3))
    own = own[~unmeasured].reset_index(drop=True).drop(columns="setting")
    assert own.equals(rows_of(tmp_path).drop(columns="setting"))
    states = [load_state(path / "g")["trials"] for path in (raced, tmp_path)]
    for trial in ("0", "1"):
        same(states[0][f"{trial};{winner}"], states[1][trial])


@pytest.mark.parametrize("after", [1, 23])
def test_a_race_that_was_killed_ends_with_the_same_bytes(made, raced, tmp_path, capsys, after):
    given = [made, tmp_path, LRS, "3+race~16", "--evaluate", "server_validation"]
    with killed_after(after):
        assert federate(*given, "--checkpoint-seconds", 0) == 130
    capsys.readouterr()
    assert federate(*given) == 0
    assert "going on from round" in capsys.readouterr().err
    for name in ("m", "g"):
        assert (tmp_path / name).read_bytes() == (raced / name).read_bytes()


@pytest.mark.parametrize("every", ["3+race~16", "1+until~0.55+race~16"])
def test_test_labels_change_no_weight_and_no_choice(made, tmp_path, monkeypatch, every):
    rates = "0.03@0.1@0.003"
    assert federate(made, tmp_path / "a", rates, every) == 0
    labels = prepared.Prepared.labels

    def in_another_order(self, split):
        found = labels(self, split)
        return np.random.default_rng(0).permutation(found) if split == "test" else found

    monkeypatch.setattr(prepared.Prepared, "labels", in_another_order)
    assert federate(made, tmp_path / "b", rates, every) == 0
    one, two = rows_of(tmp_path / "a"), rows_of(tmp_path / "b")
    assert stopped(one) == stopped(two)
    place = ["setting", "trial", "round", "value"]
    at_server = f"split == 'server_validation' and round in {halving.rungs(16)[:2]}"
    chosen = [f.query(at_server)[place].reset_index(drop=True) for f in (one, two)]
    assert chosen[0].equals(chosen[1])
    assert not chosen[0].empty
    if "until" not in every:
        states = [load_state(tmp_path / name / "g")["trials"] for name in "ab"]
        assert states[0].keys() == states[1].keys()
        for key, state in states[0].items():
            same(state, states[1][key])
    accuracies = [f[(f["split"] == "test") & f["round"].isna()]["value"].max() for f in (one, two)]
    assert accuracies[0] > 0.5 > accuracies[1]


def test_a_setting_at_its_target_stays_in_the_race_and_its_run_ends_there(made, tmp_path):
    """The second reaches the target before the first rung, at round 5."""
    method = "fedavg+fraction~1+rounds~40"
    rates, every = "0.001@0.2@0.002", "1+until~0.3+race~40"
    assert federate(made, tmp_path, rates, every, method=method) == 0
    frame = rows_of(tmp_path)
    winner = f"{method};training+lr~0.2"
    assert winner not in stopped(frame)
    own = frame[frame["setting"] == winner]
    for trial in (0, 1):
        one = own[own["trial"] == trial]
        end = one[one["round"].isna()].set_index("metric")["value"]
        assert end["rounds"] < 5
        assert end["rounds_to_target"] <= end["rounds"]
        assert one[one["split"] == "test"]["round"].max() == end["rounds"]
        server = one[(one["split"] == "server_validation") & (one["round"] > end["rounds"])]
        assert set(server["round"]) <= {5, 10}
        assert 5 in set(server["round"])
        sent = one[(one["metric"] == "bytes_up") & (one["round"] == end["rounds"])]["value"]
        assert end["bytes_up"] == sent.item()


RATES = {"lr": [0.05, 0.1, 0.2]}


def fedavg(**entry):
    given = {"name": "fedavg", "label": "F", "rounds": 40, "training": RATES, "choose": "race"}
    return [{**given, **entry}]


def planned(scale="quick", **settings) -> Plan:
    return Plan(Config(), {"small": file_of(**{"methods": fedavg(), **settings})}, scale)


def test_shown_settings_race_over_the_rounds_of_their_own():
    each = [{"fraction": 0.1, "rounds": 40}, {"fraction": 0.5, "rounds": 8}]
    (entry,) = fedavg(settings=each, show=["fraction"])
    for rounds in ({"rounds": 40}, {}):  # of the entry, or of each setting alone
        own = [{k: v for k, v in entry.items() if k != "rounds"} | rounds]
        runs = planned(methods=own).exhibit("small/x").trials
        found = {(run.method["fraction"], run.method["rounds"], run.every.race) for run in runs}
        assert found == {(0.1, 40, 40), (0.5, 8, 8)}
        assert {run.scenario.training.token for run in runs} == {"adam+lr~0.05@0.1@0.2"}
    assert {run.is_race for run in planned(methods=fedavg(training={"lr": 0.1})).splits} == {False}


def test_a_race_is_one_job_of_all_settings_and_trials_at_each_point():
    plan = planned(trials=7)
    runs = plan.exhibit("small/x").trials
    assert [run.scenario.training.token for run in runs] == ["adam+lr~0.05@0.1@0.2"] * 2
    assert {run.every for run in runs} == {halving.EvaluationSchedule(1, None, 40)}
    for run, trials in runs.items():
        (path,) = plan.run_files(run, trials)
        assert path.endswith("-trials-0-6/metrics.parquet")
        job = plan.job(path.removesuffix("/metrics.parquet"))
        assert job.every == halving.EvaluationSchedule(1, None, 40)
        assert (job.evaluate, job.follow) == (("server_validation", "test"), ("server_validation",))
        assert whole_settings(run) == halving.whole_runs(3)
    assert set(planned(trials=2).exhibit("small/x").trials) == set(runs)


@pytest.mark.parametrize(
    ("entry", "tokens"),
    [
        ({"training": {}, "steps": [5, 10]}, ["fedavg+rounds~40+steps~5@10"]),
        (
            {"training": {}, "settings": [{"steps": 20}, {"steps": 30, "last_lr": 0.01}]},
            ["fedavg+last_lr~none@0.01+rounds~40+steps~20@30+paired~2"],
        ),
        (
            {"steps": [5, 10], "show": ["steps"]},
            ["fedavg+rounds~40+steps~5", "fedavg+rounds~40+steps~10"],
        ),
        ({"steps": [5, 10], "show": ["lr"]}, ["fedavg+rounds~40+steps~5@10"] * 3),
    ],
)
def test_methods_race_in_their_parameters_and_each_shown_value_has_a_race(entry, tokens):
    plan = planned(methods=fedavg(**entry), sweep={"partition.clients": [2]})
    exhibit = plan.exhibit("small/x")
    assert [run.method.token for run in exhibit.trials] == tokens
    (point,) = exhibit.points
    for (_, setting), run in point.runs.items():
        assert parse_token("method", run.method.token) == run.method
        own = [run.rows_of(s) for (_, s), r in point.runs.items() if r == run]
        assert len(set(own)) == len(own)
        assert whole_settings(run) == halving.whole_runs(len(own))
        assert run.rows_of(setting) in own


def test_the_winner_of_a_race_stands_in_the_tables(made, tmp_path):
    """Through planning, stage and summary, as an exhibit with a target has it."""
    rates = [0.003, 0.1, 0.03]
    entry = fedavg(rounds=16, fraction=0.5, training={"lr": rates}, until=0.6)
    plan = planned(
        methods=entry,
        sweep={"partition.clients": [4]},
        partition={"name": "iid", "validation": 200},
        model={"name": "mlp", "hidden": [10]},
        training={"name": "sgd", "epochs": 1},
    )
    exhibit = plan.exhibit("small/x")
    (run,) = exhibit.trials
    given = ["@".join(map(str, rates)), run.every, "--evaluate", "server_validation"]
    assert federate(made, tmp_path, *given, method=run.method.token) == 0
    table = read_table(tmp_path / "m", "metrics")
    found = summarise(exhibit, {run: table})
    winner = found.choice[found.choice["chosen"] == "true"].iloc[0]
    assert math.isnan(winner["stopped_at"])
    assert sorted(found.choice["stopped_at"].dropna()) == [2, 4]
    assert winner["value"] == "0.1"
    numbers = found.numbers.set_index(["metric", "split"])
    assert set(numbers["setting"]) == {winner["setting"]}
    frame = table.to_pandas()
    final = frame[(frame["setting"] == winner["setting"]) & frame["round"].isna()]
    for metric in ("messages", "bytes_up", "bytes_down", "rounds", "rounds_to_target"):
        own = final[final["metric"] == metric]["value"]
        assert len(own) == 2
        assert [float(v) for v in numbers.loc[(metric, ""), "by_trial"].split()] == (
            pytest.approx(list(own), rel=1e-9)
        )


def test_auto_measures_early_rounds_and_rounds_to_target_are_read_off_the_monotone_curve() -> None:
    due = [done for done in range(1, 1001) if halving.EvaluationSchedule(None).is_due(done, 1000)]
    # after round 50 the first one beyond each further two percent
    assert due == sorted({*range(1, 51), *(math.ceil(50 * 1.02**k) for k in range(1, 152)), 1000})
    curve = [1, 2, 3, 4], [0.2, 0.6, 0.4, 0.9]
    assert halving.rounds_to_target(*curve, 0.4) == pytest.approx(1.5)
    assert halving.rounds_to_target(*curve, 0.6) == 2
    # the dip at round 3 is passed over: from (3, .6) to (4, .9)
    assert halving.rounds_to_target(*curve, 0.75) == pytest.approx(3.5)
    assert halving.rounds_to_target(*curve, 0.1) == 1
    assert halving.rounds_to_target(*curve, 0.95) == math.inf
