"""FedAvg's family through the stage: what it reads, and how it gives up."""

from __future__ import annotations

import jobs
import pytest

from fedrepro.core.artifacts import read_table
from fedrepro.training.federation.clients import Clients

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
