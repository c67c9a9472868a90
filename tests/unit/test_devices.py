"""Jobs on one machine share its GPUs: each claims one, and gives it back however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
import torch

from fedrepro.core.errors import FedreproError
from fedrepro.stages.job_log_and_gpu_lock import claim, device_of, visible

HOLD = """
import sys, time
from pathlib import Path
from fedrepro.stages.job_log_and_gpu_lock import claim
print(claim(sys.argv[2:], Path(sys.argv[1])), flush=True)
time.sleep(float(60))
"""


@pytest.fixture(autouse=True)
def unclaimed(monkeypatch):
    """Let this process forget its claim, now and when it is called."""

    def forget():
        monkeypatch.setattr("fedrepro.stages.job_log_and_gpu_lock._claimed", {})

    forget()
    return forget


def holder(folder, *names):
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), *names], stdout=subprocess.PIPE, text=True
    )


def test_jobs_claim_different_gpus_and_a_killed_one_gives_its_own_back(tmp_path):
    jobs = [holder(tmp_path, "a", "b") for _ in range(2)]
    try:
        found = sorted(int(job.stdout.readline()) for job in jobs)
        assert found == [0, 1]
        waiting = holder(tmp_path, "a", "b")
        jobs.append(waiting)
        time.sleep(0.5)
        jobs[0].send_signal(signal.SIGKILL)
        jobs[0].wait()
        assert int(waiting.stdout.readline()) in (0, 1)
    finally:
        for job in jobs:
            job.kill()
            job.wait()


def test_a_job_that_asks_twice_keeps_its_gpu_which_is_known_by_the_schedulers_name(
    tmp_path, monkeypatch
):
    assert claim(["x", "y"], tmp_path) == claim(["x", "y"], tmp_path) == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-7,GPU-9")
    assert visible(2) == ["GPU-7", "GPU-9"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert visible(2) == ["0", "1"]


def test_some_jobs_share_a_gpu_where_that_is_asked_for(tmp_path, monkeypatch, unclaimed):
    found = []
    monkeypatch.setenv("FEDREPRO_GPU_JOBS", "2")
    for _ in range(4):
        unclaimed()
        found.append(claim(["a", "b"], tmp_path))
    assert found == [0, 1, 0, 1]


@pytest.mark.parametrize("words", ["0", "two", "-1"])
def test_a_share_that_is_no_number_is_refused(words, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDREPRO_GPU_JOBS", words)
    with pytest.raises(FedreproError, match=f"FEDREPRO_GPU_JOBS is '{words}'; let it be how many"):
        claim(["a"], tmp_path)


def test_the_gpu_that_was_claimed_is_the_current_one(tmp_path, monkeypatch, unclaimed):
    monkeypatch.setattr(
        "fedrepro.stages.job_log_and_gpu_lock.tempfile.gettempdir", lambda: str(tmp_path)
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "a,b")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    current = []
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    assert device_of("cuda") == "cuda:0"
    unclaimed()
    assert device_of("cuda") == "cuda:1"
    assert current == [0, 1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_a_sentence():
    with pytest.raises(FedreproError, match="PyTorch finds no GPU here; set device: cpu"):
        device_of("cuda")
