"""Jobs that start from a preloaded process: as alone, and gone with whoever waits for them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from fedrepro.cli import preload, preloaded
from fedrepro.cli.main import main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hands over on Linux only")
ENTRY = "import sys; from fedrepro.cli.main import main; sys.exit(main())"
TOKENS = ["tokens", "--scale", "tiny", "--seed", "0", "--trials-per-job", "auto"]


def wait_until(true, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


def wait_for(find, seconds: float = 20.0):
    wait_until(lambda: bool(find()), seconds)
    return find()


def children() -> set[str]:
    """Processes of the preloaded module that these tests started, as the system sees them."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"fedrepro.cli.preload" in path.read_bytes() and is_below(path.parent):
                found.add(path.parent.name)
        except OSError:
            pass
    return found


def is_below(process: Path) -> bool:
    """Whether it was started by this process, by one of its children, and so on."""
    while process.name not in ("0", str(os.getpid())):
        status = (process / "status").read_text()
        process = process.with_name(status.partition("PPid:\t")[2].partition("\n")[0])
    return process.name == str(os.getpid())


@pytest.fixture(scope="module", autouse=True)
def interrupts():
    """A background shell starts tests with Ctrl-C ignored, and so would be all that they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def before():
    return children()


# files of a run's folder that are called as libraries are
SHADOWS = ("ot", "queue", "random", "secrets", "torch", "yaml")


@pytest.fixture(scope="module")
def workflow(before, tmp_path_factory):
    """A running preloaded process: the descriptor that keeps it alive."""
    kept = dict(os.environ)
    os.environ.pop("FEDREPRO_PRELOAD", None)
    folder = tmp_path_factory.mktemp("run")
    for name in SHADOWS:
        (folder / f"{name}.py").write_text("raise SystemExit('not the library')\n")
    with contextlib.chdir(folder):
        lifeline = preload.start(preload.FEW)
    assert lifeline is not None
    yield lifeline
    os.environ.clear()
    os.environ.update(kept)


def stage(*words: str, env: dict[str, str] | None = None, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ENTRY, "job", *words],
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def blocking(folder: Path) -> list[str]:
    """A stage that waits for ever: its data set is a pipe that nobody writes to."""
    os.mkfifo(folder / "dataset.json")
    words = ["partition", "--data", str(folder), "--partition", "homogeneous+clients~2"]
    return [*words, "--trials", "0", "--out", str(folder / "partition.parquet")]


def running_job(folder: Path, before: set[str]) -> tuple[subprocess.Popen[str], str]:
    """The near end and the number of the process that runs the job."""
    known = children()
    near = stage(*blocking(folder))
    assert wait_until(lambda: bool(children() - known))
    (job,) = children() - known
    assert wait_until(lambda: "fedrepro" in Path(f"/proc/{job}/cmdline").read_text())
    time.sleep(0.3)  # let it reach the pipe
    return near, job


def test_a_job_writes_what_it_would_write_alone(workflow, tmp_path):
    root = Path(__file__).parents[2]
    handed = stage(*TOKENS, "--out", str(tmp_path / "a"), cwd=root)
    assert handed.wait(60) == 0, handed.stderr.read()
    alone = stage(*TOKENS, "--out", str(tmp_path / "b"), cwd=root, env={preloaded.SOCKET: "/none"})
    assert alone.wait(60) == 0, alone.stderr.read()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_words_and_exit_status_come_back(workflow, tmp_path):
    near = stage("prepare", "--dataset", "digtis", "--out", str(tmp_path))
    assert near.wait(60) == 2
    assert "fedrepro: unknown dataset 'digtis'" in near.stderr.read()
    near = stage("prepare")
    assert near.wait(60) == 2
    assert "--dataset" in near.stderr.read()
    near = stage("--help")
    assert near.wait(60) == 0
    assert "usage: fedrepro job" in near.stdout.read()


def test_a_job_says_what_it_took_itself(workflow, tmp_path):
    """Whoever looks at the near end sees next to nothing of it."""
    near = stage("prepare", "--dataset", "digits", "--out", str(tmp_path))
    assert near.wait(60) == 0
    last = near.stderr.read().splitlines()[-1]
    said = re.fullmatch(
        r"took \d+\.\d\d s of processor time and, at its peak, (\d+) MiB of memory", last
    )
    assert said, last
    assert int(said[1]) > 100  # PyTorch alone; a near end has less than 20


def test_nothing_is_left_of_it_when_all_are_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("FEDREPRO_PRELOAD", raising=False)
    monkeypatch.setenv(preloaded.SOCKET, "")
    known = children()
    lifeline = preload.start(preload.FEW)
    (far,) = wait_for(lambda: children() - known)
    os.kill(int(far), signal.SIGKILL)
    os.close(lifeline)
    assert preloaded.run_preloaded(["job", "--help"]) is None
    assert os.listdir(tmp_path) == []


def test_an_interrupt_while_a_job_waits_to_begin_is_quiet(tmp_path):
    """As in the first seconds, when the far end is still loading."""
    name = f"{preloaded.NAMELESS}{tmp_path.name}-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(preloaded.address_of(name))
        listener.listen()
        near = stage(*TOKENS, "--out", str(tmp_path / "a"), env={preloaded.SOCKET: name})
        channel, _ = listener.accept()
        with channel:
            channel.recv(1 << 16)
            near.send_signal(signal.SIGINT)
            assert near.wait(20) == 130
    assert near.stderr.read() == "fedrepro: stopped\n"


def test_a_job_is_not_handed_to_another_user(monkeypatch):
    name = f"{preloaded.NAMELESS}fedrepro-test-{os.getpid()}"
    monkeypatch.setenv(preloaded.SOCKET, name)
    monkeypatch.setattr(preloaded.os, "getuid", lambda: os.geteuid() + 1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(preloaded.address_of(name))
        listener.listen()
        assert preloaded.run_preloaded(["job", "--help"]) is None
        channel, _ = listener.accept()
        with channel:
            assert channel.recv(1) == b""


def test_the_job_sees_folder_and_environment_of_its_near_end(workflow, tmp_path):
    digits = ["prepare", "--dataset", "digits", "--out", "made"]
    near = stage(*digits, cwd=tmp_path)
    assert near.wait(60) == 0, near.stderr.read()
    assert (tmp_path / "made/dataset.json").exists()
    near = stage(
        "download", "--dataset", "mnist", "--file", "x", "--out", "y", env={"FEDREPRO_MIRROR": "/m"}
    )
    assert near.wait(60) == 2


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for this signal."""
    told = Path(f"/proc/{pid}/status").read_text()
    return bool(int(re.search(r"SigCgt:\t(\w+)", told)[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize(
    ("sent", "status"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 130)]
)
def test_a_signal_to_the_near_end_ends_the_job(workflow, before, tmp_path, sent, status):
    near, job = running_job(tmp_path, before)
    assert wait_until(lambda: catches(near.pid, signal.SIGTERM))  # it is told that the job began
    near.send_signal(sent)
    assert near.wait(20) == status
    assert wait_until(lambda: job not in children())


def test_a_killed_near_end_takes_the_job_with_it(workflow, before, tmp_path):
    near, job = running_job(tmp_path, before)
    near.kill()
    assert near.wait(20) == -signal.SIGKILL
    assert wait_until(lambda: job not in children())


def test_a_killed_job_fails_its_near_end(workflow, before, tmp_path):
    near, job = running_job(tmp_path, before)
    os.kill(int(job), signal.SIGKILL)
    assert near.wait(20) == 128 + signal.SIGKILL


def test_files_of_the_run_are_not_taken_for_libraries(workflow, tmp_path, before):
    near, job = running_job(tmp_path, before)
    assert job
    near.kill()
    near.communicate()


def test_more_threads_and_gpus_are_not_handed_over():
    assert preloaded.suits(["job", "train", "--threads", "1", "--device", "cpu"])
    assert not preloaded.suits(["job", "train", "--threads", "2"])
    assert not preloaded.suits(["job", "train", "--device", "cuda"])


def test_a_job_of_another_environment_runs_where_it_is(workflow, monkeypatch):
    monkeypatch.setattr(preloaded, "identity", lambda *about: "another")
    assert preloaded.run_preloaded(["job", "--help"]) is None


def test_a_job_whose_libraries_are_pinned_otherwise_runs_where_it_is(workflow, monkeypatch):
    monkeypatch.setattr(preloaded.arithmetic, "pin", lambda: "portable but for MKL_CBWR=AVX")
    assert preloaded.run_preloaded(["job", "--help"]) is None


def test_a_job_of_other_sources_runs_where_it_is(workflow, monkeypatch):
    """What is on disk is no longer what the process has loaded."""
    monkeypatch.setattr(preloaded.sources, "digest", lambda files: "of other files")
    assert preloaded.run_preloaded(["job", "--help"]) is None


def test_without_the_process_the_job_runs_where_it_is(monkeypatch, capsys):
    monkeypatch.setenv(preloaded.SOCKET, "/nowhere")
    with pytest.raises(SystemExit):
        main(["job", "--help"])
    assert "usage" in capsys.readouterr().out


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("FEDREPRO_PRELOAD", "0")
    monkeypatch.setenv(preloaded.SOCKET, "left over")
    assert preload.start(preload.FEW) is None
    assert preloaded.SOCKET not in os.environ


def test_a_few_jobs_start_by_themselves(monkeypatch):
    monkeypatch.delenv("FEDREPRO_PRELOAD", raising=False)
    monkeypatch.setenv(preloaded.SOCKET, "left over")
    assert preload.start(preload.FEW - 1) is None
    assert preloaded.SOCKET not in os.environ


def test_no_thread_but_a_harmless_one_is_there_at_a_fork(workflow):
    words = (
        "import importlib; from fedrepro.cli import preload;"
        "[importlib.import_module(name) for name in preload.MODULES];"
        "print(preload.strange_threads())"
    )
    env = {**os.environ, **{f"{n}_NUM_THREADS": "1" for n in ("OMP", "MKL", "OPENBLAS")}}
    done = subprocess.run(
        [sys.executable, "-c", words], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_it_ends_with_its_workflow_and_takes_the_jobs_with_it(workflow, before, tmp_path):
    near, job = running_job(tmp_path, before)
    os.close(workflow)
    assert near.wait(20) == 1
    assert "the preloaded process is gone" in near.stderr.read()
    assert wait_until(lambda: job not in children())
