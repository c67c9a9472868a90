"""What the workflow reaches for inside Snakemake, and what it asks of SLURM at its start."""

from __future__ import annotations

import inspect
import os
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import snakemake.api  # first, since its modules import each other  # noqa: F401
from findings import ROOT
from snakemake.scheduling.job_scheduler import JobScheduler

from fedrepro.cli import snakemake_hooks_and_slurm
from fedrepro.core.errors import FedreproError

plugin = pytest.importorskip("snakemake_executor_plugin_slurm")


def test_snakemake_has_the_limit_that_is_lifted_and_nothing_else_reaches_for_its_parts():
    """A name that is gone would be set and looked at by nobody."""
    looking = [f for f in vars(JobScheduler).values() if hasattr(f, "__code__")]
    assert sum("job_rate_limiter" in f.__code__.co_names for f in looking) >= 3
    scheduler = SimpleNamespace(job_rate_limiter=object())
    for workflow in (SimpleNamespace(), SimpleNamespace(scheduler=scheduler)):
        snakemake_hooks_and_slurm.lift_limit(workflow)
    assert scheduler.job_rate_limiter is None
    for path in sorted(ROOT.glob("workflow/**/*")):
        if path.suffix in {".smk", ""} and path.is_file():
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"workflow\.(dag|scheduler|persistence)\b", text), path


DISABLED = "echo Slurm accounting storage is disabled >&2; exit 1"
DOWN = "echo 'slurm_load_ctl_conf error: Unable to contact' >&2; exit 1"
SETTINGS = plugin.ExecutorSettings(
    status_command="sacct", init_seconds_before_status_checks=120, jobname_prefix="fedrepro"
)


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Gives commands what they do; at first those of a cluster that keeps accounts."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def give(**scripts):
        for name, script in scripts.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)

    give(sbatch=":", sacct=":", squeue=":", scontrol=config(300))
    return give


def config(age):
    return f"echo 'MaxArraySize = 1001\nMinJobAge               = {age} sec'"


def begin(settings=SETTINGS, folder="."):
    """The settings that the plugin is left with, and what was said."""
    own = replace(settings)
    said = list(snakemake_hooks_and_slurm.prepare_slurm(own, str(folder)))
    return own, said


@pytest.mark.parametrize("answer", [":", DISABLED])
def test_jobs_are_followed_by_squeue_with_accounts_and_without(commands, answer):
    commands(sacct=answer)
    # the first look is early enough: else the plugin goes back to sacct
    by_squeue = {"status_command": "squeue", "init_seconds_before_status_checks": 100}
    assert begin() == (replace(SETTINGS, **by_squeue), [])


@pytest.mark.parametrize("age", [0, 239])
def test_where_squeue_forgets_too_soon_sacct_has_to_answer(commands, age):
    commands(scontrol=config(age))
    own, (sentence,) = begin(replace(SETTINGS, status_command="squeue"))
    assert own == SETTINGS
    assert f"{age} s after its end" in sentence
    commands(sacct=DISABLED)
    with pytest.raises(FedreproError, match=r"storage is disabled\).* MinJobAge=300"):
        begin()


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ({"sbatch": "", "scontrol": DOWN}, r"\(slurm_load_ctl_conf error: Unable to contact\)"),
        ({"squeue": f"echo 'fedrepro_1|{os.getcwd()}'", "scancel": ":"}, "--name fedrepro_1"),
        ({"scontrol": config(60), "sacct": "while :; do :; done"}, "timed out after 2 seconds"),
        ({}, "sbatch, which gives jobs to SLURM, is not installed here"),
    ],
)
def test_what_keeps_a_run_from_its_start_is_a_sentence(
    commands, monkeypatch, tmp_path, answers, sentence
):
    monkeypatch.setattr(snakemake_hooks_and_slurm, "ENDING", 0)
    monkeypatch.setattr(snakemake_hooks_and_slurm, "PATIENCE", 2)
    commands(**answers)
    if not answers:
        (tmp_path / "bin/sbatch").unlink()
    with pytest.raises(FedreproError, match=sentence):
        begin()


def test_jobs_that_an_earlier_run_left_in_the_folder_are_cancelled(commands, tmp_path):
    here, queue = tmp_path / "here", tmp_path / "queue"
    here.mkdir()
    (tmp_path / "link").symlink_to(here)
    others = f"other|{here}\nfedrepro_2|{tmp_path}\n"
    queue.write_text(f"fedrepro_1|{here}\nfedrepro_1|{tmp_path}/link\n{others}")
    commands(
        squeue=f'while read line; do echo "$line"; done < {queue}',
        scancel=f'echo "$@" >> {tmp_path}/cancelled; echo "{others}" > {queue}',
    )
    (sentence,) = begin(folder=here)[1]
    assert "left jobs with SLURM (2)" in sentence
    assert (tmp_path / "cancelled").read_text() == "--name fedrepro_1\n"
    assert begin(folder=here)[1] == begin(replace(SETTINGS, jobname_prefix=""), tmp_path)[1] == []


def test_the_plugin_reads_these_settings_at_each_look():
    """Names and numbers of its own that are gone or others would be set to no end."""
    assert set(vars(SETTINGS)) > {"status_command", "init_seconds_before_status_checks"}
    look = inspect.getsource(plugin.Executor.check_active_jobs)
    assert f"max_sleep_time = {snakemake_hooks_and_slurm.LOOKS}\n" in look
    assert "dynamic_check_threshold = 3 * initial_interval" in look
    assert "self.get_status_command()" in look
