"""What a run asks of SLURM at its start, with commands that answer as clusters do."""

from __future__ import annotations

import inspect
import os
from dataclasses import fields, replace

import pytest

from fedrepro.cli import slurm
from fedrepro.core.errors import FedreproError

plugin = pytest.importorskip("snakemake_executor_plugin_slurm")

DISABLED = "echo Slurm accounting storage is disabled >&2; exit 1"
REFUSED = "echo 'sacct: error: Problem talking to the database: Connection refused' >&2; exit 1"
SETTINGS = plugin.ExecutorSettings(
    status_command="sacct", init_seconds_before_status_checks=30, jobname_prefix="fedrepro"
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
    said = list(slurm.begin(own, str(folder)))
    return own, said


@pytest.mark.parametrize("answer", [":", DISABLED, REFUSED])
def test_jobs_are_followed_by_squeue_with_accounts_and_without(commands, answer):
    commands(sacct=answer)
    assert begin() == (replace(SETTINGS, status_command="squeue"), [])


def test_the_first_look_is_early_enough_for_squeue(commands):
    """Else the plugin goes back to sacct."""
    own, _ = begin(replace(SETTINGS, init_seconds_before_status_checks=120))
    assert own.init_seconds_before_status_checks == 100


@pytest.mark.parametrize("age", [0, 60, 239])
def test_where_squeue_forgets_too_soon_sacct_has_to_answer(commands, age):
    commands(scontrol=config(age))
    own, said = begin(replace(SETTINGS, status_command="squeue"))
    assert own == SETTINGS
    (sentence,) = said
    assert f"{age} s after its end" in sentence
    assert "a job that you cancel is waited for" in sentence


@pytest.mark.parametrize(
    ("answer", "words"), [(DISABLED, "storage is disabled"), (REFUSED, "Connection refused")]
)
def test_where_ends_would_go_unseen_a_run_does_not_start(commands, answer, words):
    commands(scontrol=config(60), sacct=answer)
    with pytest.raises(FedreproError, match=rf"{words}\).*ask its administrator for MinJobAge=300"):
        begin()


def test_accounts_that_do_not_answer_are_none(commands, monkeypatch):
    monkeypatch.setattr(slurm, "PATIENCE", 0.1)
    commands(scontrol=config(60), sacct="while :; do :; done")
    monkeypatch.setattr(slurm, "_kept_for", lambda: 60)  # on a busy machine that takes longer
    with pytest.raises(FedreproError, match=r"sacct: no answer in 0.1 s"):
        begin()


def test_a_machine_without_slurm_is_told_at_once(commands, tmp_path):
    (tmp_path / "bin/sbatch").unlink()
    with pytest.raises(FedreproError, match="start on a login node"):
        begin()


def test_a_controller_that_is_down_is_told_at_once(commands):
    commands(scontrol="echo 'slurm_load_ctl_conf error: Unable to contact' >&2; exit 1")
    with pytest.raises(FedreproError, match=r"\(slurm_load_ctl_conf error: Unable to contact\)"):
        begin()


def test_jobs_that_an_earlier_run_left_in_the_folder_are_cancelled(commands, tmp_path):
    here, queue = tmp_path / "here", tmp_path / "queue"
    here.mkdir()
    link = tmp_path / "link"
    link.symlink_to(here)
    lines = [f"fedrepro_1|{here}", f"fedrepro_1|{link}", f"other|{here}", f"fedrepro_2|{tmp_path}"]
    queue.write_text("\n".join(lines) + "\n")
    commands(
        squeue=f'while read line; do echo "$line"; done < {queue}',
        scancel=f'echo "$@" >> {tmp_path}/cancelled; echo "{lines[2]}\n{lines[3]}" > {queue}',
    )
    assert begin(folder=here)[1] == [
        "an earlier run in this folder left jobs with SLURM (2), which are cancelled now"
    ]
    assert (tmp_path / "cancelled").read_text() == "--name fedrepro_1\n"
    assert begin(folder=here)[1] == []
    assert begin(replace(SETTINGS, jobname_prefix=""), tmp_path)[1] == []


def test_jobs_that_do_not_end_stop_a_run(commands, monkeypatch):
    monkeypatch.setattr(slurm, "ENDING", 0)
    commands(squeue=f"echo 'fedrepro_1|{os.getcwd()}'", scancel=":")
    with pytest.raises(FedreproError, match="squeue --me --name fedrepro_1"):
        begin()


def test_the_plugin_reads_these_settings_at_each_look():
    """Names and numbers of its own that are gone or others would be set to no end."""
    names = {field.name for field in fields(plugin.ExecutorSettings)}
    assert {"status_command", "init_seconds_before_status_checks", "jobname_prefix"} <= names
    look = inspect.getsource(plugin.Executor.check_active_jobs)
    assert f"max_sleep_time = {slurm.LOOKS}\n" in look
    assert "dynamic_check_threshold = 3 * initial_interval" in look
    assert "self.get_status_command()" in look
