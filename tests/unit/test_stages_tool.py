"""Jobs on a machine without Snakemake: what reads what, going on, and what is cut off."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools/stages.py"
DATA = "results/tiny/datasets/dataset=digits"
PREPARED = f"{DATA}/dataset.json"
PARTITION = "results/tiny/seed=0/partitions/iid/partition.parquet"
MODELS = "results/tiny/seed=0/models/iid"
LOCAL, TIMINGS = f"{MODELS}/clients=0-1/local.parquet", f"{MODELS}/clients=0-1/timings.parquet"
COMMANDS = [
    f"fedrepro stage prepare --dataset digits --raw resources/digits --out {DATA} 2> logs/data.log",
    f"fedrepro stage partition --data {DATA} --partition 'iid+clients~2' --trials 0 --seed 0 "
    f"--out {PARTITION} 2> logs/partition.log",
    f"fedrepro stage train --data {DATA} --members {PARTITION} --out {LOCAL} --timings {TIMINGS} "
    "2> logs/train.log",
    f"fedrepro stage aggregate --data {DATA} --local {MODELS} --out results/metrics.parquet "
    "2> logs/aggregate.log",
    "fedrepro stage exhibit --exhibit pfnm/figure-2a --out reports/x 2> logs/x.log",
]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("stages_tool", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_job_reads_what_others_write(tool):
    jobs = {job["words"][1]: job for job in tool.jobs_of(COMMANDS[::-1])}
    assert list(jobs) == ["prepare", "partition", "train", "aggregate"]
    assert {name: set(job["reads"]) for name, job in jobs.items()} == {
        "prepare": set(),
        "partition": {PREPARED},
        "train": {PREPARED, PARTITION},
        "aggregate": {PREPARED, LOCAL, TIMINGS},
    }
    assert jobs["train"]["log"] == "logs/train.log"
    assert "2>" not in jobs["train"]["words"]


def test_jobs_run_after_what_they_read_and_only_once(tool, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    jobs = tool.jobs_of(COMMANDS[1::-1])
    assert tool.run(jobs, 2, tool.FOREVER) == 0
    assert Path(PARTITION).stat().st_size > 0
    assert "2 of 2 jobs are done, 0 failed" in capsys.readouterr().out
    before = Path(PARTITION).stat().st_mtime_ns
    Path("jobs.json").write_text(json.dumps(jobs))
    assert tool.main(["run", "jobs.json", "--seconds", "60"]) == 0
    assert Path(PARTITION).stat().st_mtime_ns == before


def test_a_data_set_that_was_cut_off_is_prepared_again(tool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / DATA).mkdir(parents=True)
    (tmp_path / DATA / "x_train.npy").write_bytes(b"half")
    jobs = tool.jobs_of(COMMANDS[:2])
    assert not any(map(tool.done, jobs))
    assert tool.run(jobs, 1, tool.FOREVER) == 0
    assert Path(PREPARED).stat().st_size > 0


def test_what_fails_holds_back_what_reads_it_and_says_where_to_look(
    tool, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    wrong = COMMANDS[0].replace("--dataset digits", "--dataset nothing")
    assert tool.run(tool.jobs_of([wrong, COMMANDS[1]]), 2, tool.FOREVER) == 1
    out = capsys.readouterr().out
    assert "stage prepare logs/data.log" in out
    assert "0 of 2 jobs are done, 1 failed" in out
    assert "nothing" in Path("logs/data.log").read_text()


def test_nothing_is_begun_when_the_time_is_up(tool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert tool.run(tool.jobs_of(COMMANDS[:1]), 1, 0.0) == 1
    assert not Path("logs").exists()


def test_as_many_jobs_run_at_once_as_the_process_may_use(tool, tmp_path, monkeypatch):
    (tmp_path / "jobs.json").write_text("[]")
    given = []
    monkeypatch.setattr(tool, "usable_cores", lambda: 3)
    monkeypatch.setattr(tool, "run", lambda jobs, at_once, seconds: given.append(at_once) or 0)
    tool.main(["run", str(tmp_path / "jobs.json")])
    assert given == [3]
