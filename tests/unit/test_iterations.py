"""FedAvg's family through the stage: killed and resumed, what it reads, and how it gives up."""

from __future__ import annotations

import dataclasses
import inspect

import jobs
import numpy as np
import pytest

from fedrepro.core.artifacts import read_table
from fedrepro.core.registry import components
from fedrepro.core.state_and_model_files import from_plain, load_state
from fedrepro.stages import rounds_job
from fedrepro.stages.rounds_job import TrialRounds
from fedrepro.training.federation.clients import Clients

SPLIT = ["--partition", "iid+clients~4+validation~100"]
SCENARIO = ["--dataset", "digits", "--model", "mlp+hidden~10"]
TRAINING = "sgd+batch_size~64"
GRID = "+fraction~0.5+lrs~0.05@0.1@0.2+meta_lr~0.3+rounds~12+step_counts~2@4@8"
HUGE = "adaptive_fedavg+fraction~0.5+lrs~1e29@1e30+rounds~50"
METHODS = {
    "fedavg": "fedavg+fraction~0.5+last_lr~0.01+rounds~12+server_momentum~0.5",
    "fedadam": "fedadam+fraction~0.5+rounds~12",
    "matching": "representation_matching+fraction~0.5+rounds~12",
    "adaptive": f"adaptive_fedavg{GRID}",
    "both": f"adaptive_matching{GRID}",
}


class Job:
    """Federating on digits in a folder: two trials, checkpoints after every round."""

    def __init__(self, folder):
        self.folder = folder
        assert self.stage("prepare", "--dataset", "digits", "--out", folder / "data") == 0
        given = [*SPLIT, "--trials", "0-1", "--data", folder / "data"]
        assert self.stage("partition", *given, "--out", folder / "p") == 0
        self.given = [*given, *SCENARIO, "--members", folder / "p"]

    def stage(self, *words):
        return jobs.stage(*words)

    def run(self, method, *words, training=TRAINING):
        made = {name: self.folder / name for name in ("metrics", "timings", "model.pt")}
        out = ["--out", made["metrics"], "--timings", made["timings"]]
        out += ["--global-model", made["model.pt"], "--checkpoint-seconds", "1e-9"]
        out += ["--training", training, "--method", method]
        assert self.stage("federate", *self.given, *out, *words) == 0
        return made["metrics"].read_bytes(), made["model.pt"].read_bytes()

    @property
    def frame(self):
        return read_table(self.folder / "metrics", "metrics").to_pandas()


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return Job(tmp_path_factory.mktemp("iterations"))


@pytest.mark.parametrize("name", ["matching", "both"])
def test_a_finished_run_keeps_the_global_network_and_a_checkpoint_all(job, name, monkeypatch):
    kept = []
    save = rounds_job.save_state
    monkeypatch.setattr(rounds_job, "save_state", lambda *a: kept.append(a[1]) or save(*a))
    job.run(METHODS[name])
    saved = load_state(job.folder / "model.pt")["trials"]
    assert set(saved) == {"0", "1"}
    for trial in saved.values():
        (tensors,) = from_plain(trial).values()
        assert {k: v.shape for k, v in tensors.items()} == {
            "weight0": (1, 64, 10), "bias0": (1, 10), "weight1": (1, 10, 10), "bias1": (1, 10),
        }  # fmt: skip
    private = from_plain(kept[0]["state"])["private"]
    assert {own["match0_weight"].shape for own in private.values()} == {(10, 64)}


@pytest.mark.parametrize("name", METHODS)
def test_no_test_number_has_a_part_in_the_weights(tmp_path, name, monkeypatch):
    """With shuffled test labels every round has the same weights, and another accuracy."""
    seen, step = [], TrialRounds._next

    def watched(self, before, rng):
        after = step(self, before, rng)
        seen.append({k: v.tobytes() for k, v in after.state["weights"].items()})
        return after

    def shuffled(raw, **values):
        made = digits.fn(raw, **values)
        labels = np.random.default_rng(0).permutation(made.y["test"])
        return dataclasses.replace(made, y={**made.y, "test": labels})

    monkeypatch.setattr(TrialRounds, "_next", watched)
    digits, found = components("dataset")["digits"], []
    shuffled.__signature__ = inspect.signature(digits.fn)
    for fn in (digits.fn, shuffled):
        item = dataclasses.replace(digits, fn=fn)
        monkeypatch.setitem(components("dataset"), "digits", item)
        folder = tmp_path / fn.__name__
        folder.mkdir()
        one = Job(folder)
        one.run(METHODS[name])
        own = one.frame.query("metric == 'accuracy' and split == 'test'")["value"]
        found.append((list(seen), own.to_numpy()))
        seen.clear()
    (weights, right), (others, wrong) = found
    assert len(weights) == 2 * 12
    assert weights == others
    assert right[-1] > wrong[-1] + 0.1


# -------------------------------------------------------------------------------- nobody is left


def final(frame, metric):
    own = frame[frame["round"].isna() & (frame["metric"] == metric)]
    return own["value"].tolist()


def test_a_run_in_which_nobody_has_numbers_ends_and_says_so(job, capsys):
    for method in ("fedavg+fraction~0.5+rounds~50", HUGE):
        job.run(method, "--measure-every", "30", training="sgd+lr~1e30")
        said = "20 rounds, no finite update of any client in 20 rounds in a row"
        assert capsys.readouterr().err.count(said) == 2
        frame = job.frame
        assert final(frame, "rounds") == [20, 20]
        own = frame[(frame["round"] == 20) & (frame["metric"] == "updates_rejected")]
        assert own["value"].tolist() == [40, 40]
        # the weights are those of the start, which predict something
        accuracy = frame[frame["split"].eq("test") & frame["metric"].eq("accuracy")]
        assert accuracy.groupby("trial")["value"].nunique().tolist() == [1, 1]
        assert accuracy["value"].notna().all()


def test_rounds_without_an_update_count_only_in_a_row(job, monkeypatch):
    average = Clients.average

    def often_lost(self, start, rng, *words, lr=None, **values):
        lr = 0.1 if rng.round in (10, 29) else 1e30
        return average(self, start, rng, *words, lr=lr, **values)

    monkeypatch.setattr(Clients, "average", often_lost)
    job.run("fedavg+fraction~0.5+rounds~49")
    assert final(job.frame, "rounds") == [49, 49]
    own = job.frame[(job.frame["round"] == 49) & (job.frame["metric"] == "updates_rejected")]
    assert own["value"].tolist() == [94, 94]
