"""Jobs share the GPUs of a machine, and models its memory: each is claimed and given back."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import parse_token
from fedrepro.networks.predict import network_of
from fedrepro.stages.job_log_results_gpu_lock import claim, device_of, visible
from fedrepro.training.autograd_trainer_and_noise import activations, block_size
from fedrepro.training.engine import _add_on_gpu
from fedrepro.training.flat_models_and_optimiser_steps import Layout
from fedrepro.training.loss_terms import Entropy
from fedrepro.training.training_settings_and_procedures import Procedure, settings_of

HOLD = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from fedrepro.stages.job_log_results_gpu_lock import claim
print(claim(sys.argv[2:], Path(sys.argv[1])), flush=True)
time.sleep(float(60))
"""


@pytest.fixture(autouse=True)
def unclaimed(monkeypatch):
    """Let this process forget its claim, now and when it is called."""

    def forget():
        monkeypatch.setattr("fedrepro.stages.job_log_results_gpu_lock._claimed", {})

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


def test_a_job_keeps_its_gpu_and_some_share_one_where_that_is_asked_for(
    tmp_path, monkeypatch, unclaimed
):
    found = []
    monkeypatch.setenv("FEDREPRO_GPU_JOBS", "2")
    for _ in range(4):
        unclaimed()
        found.append(claim(["a", "b"], tmp_path))
    assert found == [0, 1, 0, 1]
    assert claim(["x", "y"], tmp_path) == claim(["x", "y"], tmp_path) == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-7,GPU-9")
    assert visible(2) == ["GPU-7", "GPU-9"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert visible(2) == ["0", "1"]


@pytest.mark.parametrize("words", ["0", "two", "-1"])
def test_a_share_that_is_no_number_is_refused(words, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDREPRO_GPU_JOBS", words)
    with pytest.raises(FedreproError, match=f"FEDREPRO_GPU_JOBS is '{words}'; let it be how many"):
        claim(["a"], tmp_path)


def test_the_gpu_that_was_claimed_is_the_current_one(tmp_path, monkeypatch, unclaimed):
    monkeypatch.setattr(
        "fedrepro.stages.job_log_results_gpu_lock.tempfile.gettempdir", lambda: str(tmp_path)
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "a,b")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: SimpleNamespace(uuid=i))
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


GPU = torch.device("cuda")


def procedure(model, shape, terms=()):
    settings = settings_of(parse_token("training", "sgd"))
    return Procedure(network_of(parse_token("model", model), shape, 10), settings, terms)


def test_activations_are_those_of_a_step():
    lenet = procedure("cnn+channels~6@16+hidden~120@84+padding~valid", (3, 32, 32))
    convolutions = (6 + 75) * 28**2 + (16 + 150) * 10**2
    others = 6 * 28**2 + 6 * 14**2 + 16 * 10**2 + 16 * 5**2 + 2 * (120 + 84) + 10
    assert activations(lenet, 64) == 64 * (convolutions + others)
    assert activations(procedure("logistic", (3, 2, 1)), 8) == 8 * 10
    assert activations(procedure("logistic", (3, 2, 1), [Entropy(0.1)]), 8) == 2 * 8 * 10


@pytest.mark.parametrize("model", ["mlp+hidden~100", "cnn", "cnn+channels~6@16+hidden~120@84"])
@pytest.mark.parametrize("models", [1, 50, 2000, 100_000])
def test_a_block_fits_half_the_memory_of_a_gpu(model, models, monkeypatch):
    memory = 80 * 2**30
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (0, memory))
    given = procedure(model, (3, 32, 32))
    size = Layout(given.network.shapes).size
    for share in (1, 8):
        monkeypatch.setenv("FEDREPRO_GPU_JOBS", str(share))
        found = block_size(given, GPU, models, 64)
        assert 1 <= found <= models
        held = 4 * found * (3 * size + 2 * activations(given, 64))
        assert found == 1 or held <= memory / share / 2
        assert block_size(given, GPU, 1, 64) == 1


def test_the_sum_of_some_models_alone_is_fetched():
    tensors = {"weight": torch.arange(6.0).reshape(3, 2)}
    tensors["weight"][1] = torch.nan
    total = {"weight": np.ones((1, 2), np.float32)}
    _add_on_gpu(total, tensors, np.array([0, 2]), np.array([0.5, 0.25]))
    assert total["weight"].tolist() == [[1 + 1, 1 + 0.5 + 1.25]]
