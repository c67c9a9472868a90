"""The harness of methods in rounds, on a small FedAvg of its own; how FedAvg's family gives up."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import jobs
import numpy as np
import pytest
from problems import problem

from fedrepro.api import ClientInfo, GlobalModel, LocalModels, Report, Traffic
from fedrepro.core.checksummed_files import read_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import Metric
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg, Component
from fedrepro.training.federation.clients import Clients, initial_weights


class Averaging:
    """FedAvg with two clients a round; reports the distance that each of them moved."""

    def __init__(self, rounds=4):
        self.rounds = rounds

    def init(self, clients, info, rng):
        return initial_weights(clients.network, clients.settings, [rng.at(client=-1)])

    def round(self, state, clients, info, rng):
        chosen = np.sort(rng.stream("clients").choice(clients.count, 2, replace=False))
        counts = info.example_counts[chosen]
        trained = clients.train(state, rng, epochs=1, chosen=chosen)
        share = counts / counts.sum()
        new = {k: np.tensordot(share, v, 1)[None].astype("f") for k, v in trained.tensors.items()}
        moved = np.full(clients.count, np.nan)
        moved[chosen] = [np.abs(v - state["weight0"][0]).sum() for v in trained.tensors["weight0"]]
        return new, Report({"drift": np.nanmean(moved)}, {"drift": moved})

    def model(self, state, clients):
        return GlobalModel(clients.model, state)


Client = Annotated[int, Arg("who", least=0)]
DRIFT = Metric("distance from the global weights", "L1", 0, None, 0)
META = {
    "kind": "federated",
    "needs": frozenset({"rounds", "example_counts"}),
    "models": frozenset(),
    "merges": False,
    "paper": "",
    "label": "averaging",
    "evaluate": ("test",),
    "scenario": {},
    "metrics": {"drift": DRIFT},
    "prepare": None,
}
ONE_SHOT = {**META, "kind": "one_shot", "needs": frozenset(), "metrics": {}}


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    """Runs stages on digits at four clients, with examples set aside."""
    partition = "iid+clients~4+public~60+validation~100"
    made = jobs.divided(tmp_path_factory.mktemp("rounds"), partition)
    made += ["--model", "mlp+hidden~10", "--training", "adam+epochs~2"]
    return lambda *words: jobs.stage(*words[:1], *made, *words[1:])


@pytest.fixture
def federate(stages, tmp_path, monkeypatch):
    """Runs a class as a method, and returns what was measured."""

    def run(fn, *words, **meta):
        item = Component("method", "averaging", 1, fn, {**META, **meta})
        monkeypatch.setitem(components("method"), "averaging", item)
        files = {"--out": "m", "--timings": "t", "--global-model": "g"}
        out = [part for key, name in files.items() for part in (key, tmp_path / name)]
        if stages("federate", "--method", "averaging", *out, *words):
            return None
        return read_table(tmp_path / "m", "metrics").to_pandas()

    return run


@pytest.fixture
def aggregate(stages, tmp_path, monkeypatch):
    """Runs a function as a one-shot method with some of its settings, after local training."""

    def run(fn, settings, **meta):
        item = Component("method", "mine", 1, fn, {**ONE_SHOT, **meta})
        monkeypatch.setitem(components("method"), "mine", item)
        local, times = tmp_path / "local", ["--timings", tmp_path / "t"]
        assert stages("train", *times, "--clients", "0-3", "--out", local) == 0
        words = ["--method", f"mine+{settings}", "--local", local, "--out", tmp_path / "m"]
        assert stages("aggregate", *words, *times) == 0
        return read_table(tmp_path / "m", "metrics").to_pandas()

    return run


def final(frame, metric, split=None):
    own = frame[frame["round"].isna() & (frame["metric"] == metric)]
    return own[own["split"] == split if split else own["split"].isna()]["value"].to_numpy()


def in_round(frame, done, metric):
    own = frame[(frame["round"] == done) & (frame["metric"] == metric) & frame["client"].isna()]
    return own["value"].to_numpy()


def test_a_round_reports_what_happened_at_the_clients_that_took_part(federate, capsys):
    with jobs.killed_after(2):
        assert federate(Averaging, "--checkpoint-seconds", 0) is None
    frame = federate(Averaging)
    assert "going on from round 2 of trial-0.pt" in capsys.readouterr().err
    assert list(in_round(frame, 3, "clients_selected")) == [2, 2]
    assert list(final(frame, "messages")) == [4 * 4, 4 * 4]
    assert list(final(frame, "rounds")) == [4, 4]
    up = final(frame, "bytes_up")
    assert np.array_equal(up, final(frame, "bytes_down"))
    for done, share in ((4, 1), (2, 0.5)):
        assert list(in_round(frame, done, "bytes_up")) == list(share * up)
    losses = [in_round(frame, done, "train_loss").mean() for done in (1, 4)]
    assert losses[1] < losses[0]
    each = frame[frame["client"].notna()]
    assert set(each["metric"]) == {"drift"}
    assert (each.groupby(["trial", "round"]).size() == 2).all()


def test_splits_that_no_client_holds_are_measured_and_those_that_are_missing_said(federate, capsys):
    frame = federate(Averaging, "--evaluate", "public", "--follow", "server_validation")
    for split in ("public", "server_validation"):
        assert final(frame, "accuracy", split).size == 2
    rounds = frame[frame["round"].notna() & (frame["metric"] == "accuracy")]
    assert set(rounds["split"]) == {"test", "server_validation"}
    assert federate(Averaging, "--evaluate", "client_validation") is None
    assert "reads the examples of 'client_validation'" in capsys.readouterr().err


def test_what_clients_do_before_the_first_round_is_counted(federate):
    class Warm(Averaging):
        def init(self, clients, info, rng):
            start = super().init(clients, info, rng)
            return clients.average(start, rng.at(round=0, call=1), [0.25] * 4, epochs=1).tensors

    class Hot(Averaging):
        """An update of it is not finite."""

        def init(self, clients, info, rng):
            start = super().init(clients, info, rng)
            clients.train(start, rng.at(round=0, call=1), epochs=1, chosen=[0], lr=1e38)
            return start

    cold, warm = federate(Averaging), federate(Warm)
    for name, more in (("messages", 2 * 4), ("rounds", 1)):
        assert list(final(warm, name)) == list(final(cold, name) + more)
    assert (in_round(warm, 1, "bytes_up") > in_round(cold, 1, "bytes_up")).all()
    assert list(in_round(federate(Hot), 4, "updates_rejected")) == [1, 1]


def test_a_run_ends_at_its_target_and_says_so(federate, capsys):
    frame = federate(lambda: Averaging(30), "--measure-every", "1+until~0.5")
    done = final(frame, "rounds")
    assert (done < 30).all()
    assert "rounds, reached" in capsys.readouterr().err
    needed = final(frame, "rounds_to_target")
    assert ((needed > done - 1) & (needed <= done)).all()
    frame = federate(lambda: Averaging(2), "--measure-every", "auto+until~0.999")
    assert np.isinf(final(frame, "rounds_to_target")).all()


def test_a_run_that_diverges_or_reports_what_nobody_declared_has_no_accuracy(federate, capsys):
    class Exploding(Averaging):
        def round(self, state, clients, info, rng):
            new, report = super().round(state, clients, info, rng)
            return ({k: v * np.inf for k, v in new.items()} if rng.round == 1 else new), report

    frame = federate(Exploding)
    assert list(final(frame, "rounds")) == [2, 2]
    assert np.isnan(final(frame, "accuracy", "test")).all()
    assert np.isfinite(in_round(frame, 1, "accuracy")).all()
    assert "2 rounds, diverged" in capsys.readouterr().err
    frame = federate(Averaging, metrics={"drift2": DRIFT})
    assert np.isnan(final(frame, "accuracy", "test")).all()
    said = "unknown metric 'drift' in what method 'averaging' reports: did you mean 'drift2'?"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("act", "need"),
    [
        (lambda c, s, rng: c.train(s, rng, epochs=1), "rounds"),
        (lambda c, s, rng: c.average(s, rng, [0.25] * 4, epochs=1), "rounds"),
        (lambda c, s, rng: c.with_subset(lambda *_: np.arange(5)).gradients(s), "rounds"),
        (lambda c, s, rng: c.evaluate(s), "client_evaluation"),
        (lambda c, s, rng: c.evaluate(s, on="validation"), "client_validation"),
        (lambda c, s, rng: c.validation(0), "client_validation_examples"),
        (lambda c, s, rng: c.example_counts, "example_counts"),
        (lambda c, s, rng: c.label_counts, "label_counts"),
    ],
)
def test_clients_do_what_is_declared_and_nothing_else(act, need):
    clients = problem().clients
    state = Averaging().init(clients, None, RngKey(0))
    nobody = dataclasses.replace(clients, method="mine", needs=frozenset())
    with pytest.raises(FedreproError, match=rf"method 'mine' wants to .*'{need}'"):
        act(nobody, state, RngKey(0).at(round=0))
    act(dataclasses.replace(nobody, needs=frozenset({need})), state, RngKey(0).at(round=0))


def test_examples_at_the_server_are_handed_to_who_declares_them(federate):
    seen = []

    class Looking(Averaging):
        def init(self, clients, info, rng):
            seen.append(info)
            return super().init(clients, info, rng)

    assert federate(Looking, needs=META["needs"] | {"public_examples"}) is not None
    assert seen[0].public_inputs.shape == (60, 64)
    assert seen[0].public_labels.shape == (60,)
    assert seen[0].validation_inputs is seen[0].label_counts is None
    assert not np.array_equal(seen[0].public_inputs, seen[1].public_inputs)


def test_candidates_are_evaluated_where_the_examples_are():
    given = problem()
    models = given.models.tensors
    found = given.clients.evaluate(models, chosen=[3, 1])
    assert found.accuracy.shape == found.loss.shape == (4, 2)
    alone = given.clients.evaluate({k: v[2:3] for k, v in models.items()})
    for some, one in ((found.accuracy, alone.accuracy), (found.loss, alone.loss)):
        assert np.allclose(some[2], one[0, [3, 1]])
    for j, rows in enumerate(given.rows):
        hidden = np.maximum(given.inputs[rows] @ models["weight0"][2] + models["bias0"][2], 0)
        right = (hidden @ models["weight1"][2] + models["bias1"][2]).argmax(1) == given.labels[rows]
        assert alone.accuracy[0, j] == pytest.approx(right.mean())
    assert given.clients.ledger.traffic.messages_down == 4 * 2 + 1 * 4
    assert np.isnan(given.clients.evaluate({k: models[k] * np.nan for k in models}).accuracy).all()


@pytest.mark.parametrize("empty", [0, 2, 3])
def test_a_client_without_validation_examples_has_no_number(empty):
    given = problem()
    held = [rows[:5] for rows in given.rows]
    fewer = [rows[:0] if j == empty else rows for j, rows in enumerate(held)]
    data = given.clients.data
    there, found = (
        dataclasses.replace(
            given.clients, data=dataclasses.replace(data, validation=rows, validation_examples=None)
        ).evaluate(given.models.tensors, on="validation")
        for rows in (held, fewer)
    )
    others = [j for j in range(4) if j != empty]
    for whole, some in ((there.accuracy, found.accuracy), (there.loss, found.loss)):
        assert np.isnan(some[:, empty]).all()
        assert np.array_equal(some[:, others], whole[:, others])


def test_what_is_costly_is_made_once_for_all_settings_that_share_it(aggregate):
    made = []

    def prepare(clients, info, *, rng, seed):
        made.append((rng.trial, seed))
        return clients.tensors

    def one_of_them(
        clients: LocalModels, info: ClientInfo, *, rng: RngKey, prepared: object,
        client: Client = 0, seed: Annotated[int, Arg("of what is prepared", least=0)] = 0,
    ) -> GlobalModel:  # fmt: skip
        return GlobalModel(clients.model, {k: v[[client]] for k, v in prepared.items()})

    frame = aggregate(one_of_them, "client~0@2+seed~3@4", prepare=prepare)
    assert made == [(0, 3), (0, 4), (1, 3), (1, 4)]
    assert frame["method"].nunique() == 4


@pytest.mark.parametrize(
    ("kind", "prepared", "declared"),
    [("one_shot", False, False), ("one_shot", True, False), ("control", False, False),
     ("one_shot", True, True), ("control", True, True)],
)  # fmt: skip
def test_what_clients_do_for_a_one_shot_method_is_a_cost(aggregate, kind, prepared, declared):
    handed = set()
    said = {"traffic": Traffic(5, 6, 70, 80), "exchanges": 3} if declared else {}

    def ask(clients, info, *, rng):
        return info.clients.evaluate({k: v[:1] for k, v in clients.tensors.items()})

    def asking(
        clients: LocalModels, info: ClientInfo, *, rng: RngKey, prepared: object = None,
        client: Client = 0,
    ) -> GlobalModel:  # fmt: skip
        if prepared is None:
            ask(clients, info, rng=rng)
        handed.update(name for name, value in vars(info).items() if value is not None)
        tensors = {k: v[[client]] for k, v in clients.tensors.items()}
        return GlobalModel(clients.model, tensors, **said)

    needs = frozenset({"client_evaluation"})
    given = {"needs": needs, "kind": kind, "prepare": ask if prepared else None}
    frame = aggregate(asking, "client~0@2", **given)
    assert handed == {"training", "device", "clients"}  # what it declared, and where it computes
    names = ("messages", "rounds", "bytes_up", "bytes_down")
    found = set(zip(*(final(frame, name) for name in names), strict=True))
    ours = kind == "one_shot"  # a control's exchanges do not count
    if declared:  # the method knows better
        assert found == {(5 + 6, ours * 3, 70, 80)}
        return
    # four models up; and one down to each client, which sends two numbers back
    ((messages, rounds, up, down),) = found
    assert (messages, rounds, up - down) == (ours * (4 + 4 + 4), ours * 2, ours * 4 * 2 * 4)


def test_a_setting_that_gives_no_numbers_is_a_failed_candidate(aggregate):
    def broken(
        clients: LocalModels, info: ClientInfo, *, rng: RngKey,
        scale: Annotated[float, Arg("of the weights")] = 1.0,
    ) -> GlobalModel:  # fmt: skip
        with np.errstate(over="ignore", invalid="ignore"):
            made = {k: v[:1] * np.float32(scale) ** 2 for k, v in clients.tensors.items()}
        return GlobalModel(clients.model, made)

    frame = aggregate(broken, "scale~1@1e30").query("metric == 'accuracy' and split == 'test'")
    failed = frame["value"].isna().groupby(frame["method"]).all().to_dict()
    assert failed == {"mine": False, "mine+scale~1e30": True}


TRAINING = "sgd+batch_size~64"
HUGE = "adaptive_fedavg+fraction~0.5+lrs~1e29@1e30+rounds~50"


class Job:
    """Federating on digits in a folder: two trials, checkpoints after every round."""

    def __init__(self, folder):
        self.folder = folder
        divided = jobs.divided(folder, "iid+clients~4+validation~100")
        self.given = [*divided, "--model", "mlp+hidden~10"]

    def run(self, method, *words, training=TRAINING):
        out = ["--out", self.folder / "metrics", "--timings", self.folder / "timings"]
        out += ["--global-model", self.folder / "model.pt", "--checkpoint-seconds", "1e-9"]
        out += ["--training", training, "--method", method]
        assert jobs.stage("federate", *self.given, *out, *words) == 0

    @property
    def frame(self):
        return read_table(self.folder / "metrics", "metrics").to_pandas()


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return Job(tmp_path_factory.mktemp("iterations"))


def test_a_run_in_which_nobody_has_numbers_ends_and_says_so(job, capsys):
    for method in ("fedavg+fraction~0.5+rounds~50", HUGE):
        job.run(method, "--measure-every", "30", training="sgd+lr~1e30")
        said = "20 rounds, no finite update of any client in 20 rounds in a row"
        assert capsys.readouterr().err.count(said) == 2
        assert list(final(job.frame, "rounds")) == [20, 20]
        assert list(in_round(job.frame, 20, "updates_rejected")) == [40, 40]
        # the weights are those of the start, which predict something
        accuracy = job.frame.query("split == 'test' and metric == 'accuracy'")
        assert accuracy.groupby("trial")["value"].nunique().tolist() == [1, 1]
        assert accuracy["value"].notna().all()


def test_rounds_without_an_update_count_only_in_a_row(job, monkeypatch):
    average = Clients.average

    def often_lost(self, start, rng, *words, lr=None, **values):
        lr = 0.1 if rng.round in (10, 29) else 1e30
        return average(self, start, rng, *words, lr=lr, **values)

    monkeypatch.setattr(Clients, "average", often_lost)
    job.run("fedavg+fraction~0.5+rounds~49")
    assert list(final(job.frame, "rounds")) == [49, 49]
    assert list(in_round(job.frame, 49, "updates_rejected")) == [94, 94]
