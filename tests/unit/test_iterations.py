"""FedAvg's family through the stage: what it reads, and how it gives up."""

from __future__ import annotations

import jobs
import numpy as np
import pytest

from fedrepro.core.artifacts import read_table
from fedrepro.data.prepared import Prepared
from fedrepro.stages.trial_rounds import TrialRounds
from fedrepro.training.federation.clients import Clients

TRAINING = "sgd+batch_size~64"
HUGE = "adaptive_fedavg+fraction~0.5+lrs~1e29@1e30+rounds~50"
METHODS = [
    "fedavg+fraction~0.5+last_lr~0.01+rounds~12+server_momentum~0.5",
    "fedadam+fraction~0.5+rounds~12",
    "adaptive_matching+fraction~0.5+lrs~0.05@0.1@0.2+meta_lr~0.3+rounds~12+step_counts~2@4@8",
]


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


@pytest.mark.parametrize("method", METHODS)
def test_no_test_number_has_a_part_in_the_weights(job, method, monkeypatch):
    """With shuffled test labels every round has the same weights, and another accuracy."""
    seen, found = [], []
    step, labels = TrialRounds._next, Prepared.labels

    def watched(self, before, rng):
        after = step(self, before, rng)
        seen.append({k: v.tobytes() for k, v in after.state["weights"].items()})
        return after

    def shuffled(self, split):
        made = labels(self, split)
        return np.random.default_rng(0).permutation(made) if split == "test" else made

    monkeypatch.setattr(TrialRounds, "_next", watched)
    for read in (labels, shuffled):
        monkeypatch.setattr(Prepared, "labels", read)
        job.run(method)
        own = job.frame.query("metric == 'accuracy' and split == 'test'")["value"]
        found.append((list(seen), own.to_numpy()))
        seen.clear()
    (weights, right), (others, wrong) = found
    assert len(weights) == 2 * 12
    assert weights == others
    assert right[-1] > wrong[-1] + 0.1


# -------------------------------------------------------------------------------- nobody is left


def final(frame, metric):
    return frame[frame["round"].isna() & (frame["metric"] == metric)]["value"].tolist()


def rejected(frame, done):
    return frame.query(f"round == {done} and metric == 'updates_rejected'")["value"].tolist()


def test_a_run_in_which_nobody_has_numbers_ends_and_says_so(job, capsys):
    for method in ("fedavg+fraction~0.5+rounds~50", HUGE):
        job.run(method, "--measure-every", "30", training="sgd+lr~1e30")
        said = "20 rounds, no finite update of any client in 20 rounds in a row"
        assert capsys.readouterr().err.count(said) == 2
        assert final(job.frame, "rounds") == [20, 20]
        assert rejected(job.frame, 20) == [40, 40]
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
    assert final(job.frame, "rounds") == [49, 49]
    assert rejected(job.frame, 49) == [94, 94]
