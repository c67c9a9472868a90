"""A mistake in a file of one's own is told as such: file, line, source line, and the trace."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fedrepro.cli import main as entry
from fedrepro.cli.main import FAULT, MENDABLE, main
from fedrepro.cli.workflow_and_slurm import take_failed
from fedrepro.core import plugins, registry
from fedrepro.numbers.trial_statistics import by_metric
from fedrepro.stages.job_log_and_gpu_lock import Failures

MINE = """
import helper_beside
from fedrepro.api import method

@method("mine", kind="one_shot")
def mine(clients, info, *, rng):
    \"\"\"Fail.\"\"\"
    return {made}
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Writes a method of one's own, and models to combine."""

    def write(made: str) -> list[str]:
        (tmp_path / "mine.py").write_text(MINE.replace("{made}", made))
        (tmp_path / "helper_beside.py").write_text("def half(x):\n    return x['half']\n")
        monkeypatch.setenv(plugins.NAMED, str(tmp_path / "mine.py"))
        for client in range(2):
            model = torch.nn.Sequential(torch.nn.Linear(4, 3))
            torch.save(model.state_dict(), tmp_path / f"{client}.pt")
        models = [str(tmp_path / f"{client}.pt") for client in range(2)]
        return ["combine", "mine", *models, "--out", str(tmp_path / "out.pt")]

    monkeypatch.chdir(tmp_path)
    sys.modules.pop("helper_beside", None)
    yield write
    monkeypatch.setenv(plugins.NAMED, "")
    registry.components("method")


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("clients.tensor", "mine.py, line 8, `return clients.tensor`: AttributeError: 'Local"),
        ("helper_beside.half({})", "beside.py, line 2, `return x['half']`: KeyError: 'half'"),
        (
            "__import__('torch').ones(2) @ __import__('torch').ones(3)",
            "mine.py, line 8, `return __",
        ),
        ("__import__('sys').exit(0)", "mine.py, line 8, `return __import__('sys').exit(0)`: Sys"),
    ],
)
def test_it_is_mine_and_shows_my_line(own, capsys, made, told):
    command = own(made)
    assert main(command) == MENDABLE
    said = capsys.readouterr().err
    assert told in said
    assert "fault of the program" not in said
    assert main([*command, "--debug"]) == MENDABLE
    assert "Traceback" in capsys.readouterr().err


def test_a_job_keeps_the_trace_in_its_log(own, capsys, monkeypatch):
    command = own("clients.tensor")
    # a job differs from a command in its first word alone here
    monkeypatch.setattr(entry, "_there_or_here", lambda words: entry._here(command))
    assert main(["job", "{}"]) == MENDABLE
    trace, _, sentence = capsys.readouterr().err.rpartition("fedrepro: ")
    assert trace.startswith("Traceback")
    assert re.search(r"mine\.py.*the log of the job", sentence)


def test_a_fault_of_the_package_stays_one(own, capsys, monkeypatch):
    command = own("clients.tensor")

    def broken(*_, **__):
        raise KeyError("ours")

    monkeypatch.setattr("fedrepro.stages.user_models.combine.run", broken)
    assert main(command) == FAULT
    assert "this is a fault of the program (KeyError: 'ours'" in capsys.readouterr().err


def test_a_method_that_failed_in_a_trial_is_not_a_number_there():
    trials = [(0, "accuracy", "test", 0.5), (1, "failed", "", 1.0), (2, "accuracy", "test", 0.75)]
    rows = pd.DataFrame(trials, columns=["trial", "metric", "split", "value"])
    series = by_metric(rows, "mine", 3, "here")
    assert series["failed", ""] == [0.0, 1.0, 0.0]
    np.testing.assert_equal(series["accuracy", "test"], [0.5, math.nan, 0.75])
    alone = by_metric(rows[rows["trial"] == 1].assign(trial=0), "mine", 1, "here")
    np.testing.assert_equal(dict(alone), {("accuracy", "test"): [math.nan], ("failed", ""): [1.0]})


def test_what_the_machine_lacks_is_no_failure_of_a_method(capsys):
    failures = Failures()
    with pytest.raises(MemoryError):
        failures.note("mine", 0, MemoryError())
    assert not failures.diagnostics
    failures.note("mine", 1, KeyError("weight9"))
    failures.note("mine", 2, KeyError("weight8"))
    assert failures.diagnostics == {"failed": ["mine failed in trial 1: KeyError: 'weight9'"]}
    assert "KeyError" in capsys.readouterr().err  # the trace is in the log


def test_what_failed_is_said_and_tried_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drawn_in = Path("results/drawn/tiny/mine")
    metrics = drawn_in / "metrics.parquet"
    drawn_in.mkdir(parents=True)
    for path in (metrics, *(drawn_in / name for name in ("a.json", "a.csv", "b.json"))):
        path.write_text("{}")
    failed = {str(metrics): ["m failed in trial 0: KeyError: 1"]}
    (drawn_in / "a.json").write_text(json.dumps({"failed": failed}))
    sentences, drawn = take_failed("tiny")
    assert sentences == ["reports/tiny/mine/a: m failed in trial 0: KeyError: 1"]
    assert not metrics.exists()
    assert sorted(path.name for path in drawn) == ["a.csv", "a.json"]
    assert {path.stat().st_mtime for path in drawn} == {1}
    assert take_failed("quick") == ([], [])
