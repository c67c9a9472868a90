"""Jobs that start from a preloaded process: as alone, and gone with whoever waits for them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedrepro.cli import preload_client, preload_server
from fedrepro.core.kernel_pinning import BRANCHES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hands over on Linux only")
ROOT = Path(__file__).parents[2]
ENTRY = "import sys; from fedrepro.cli.main import main; sys.exit(main())"
SIMULATED = {
    "stage": "simulate", "method": {"name": "finite_beliefs", "repeats": 2, "steps": 3},
    "trials": [0, 0],
}  # fmt: skip
# files of a run's folder that are called as libraries are
SHADOWS = ("ot", "queue", "random", "secrets", "torch", "yaml")


def wait_for(find, seconds: float = 120.0):
    end = time.monotonic() + seconds
    while not (found := find()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def below(pid: int) -> list[int]:
    """The processes that a process has started, and that these have."""
    with contextlib.suppress(OSError):
        own = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return [found for child in own for found in (child, *below(child))]
    return []


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""  # a zombie has none
    return False


@pytest.fixture(scope="module")
def begun():
    """The last preloaded process that was started: its number, and what keeps it alive."""
    kept, last = dict(os.environ), []
    # a background shell starts tests with Ctrl-C ignored, and so would be all that they start
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("FEDREPRO_PRELOAD", None)
    yield last
    os.environ.clear()
    os.environ.update(kept)
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def far(begun, tmp_path_factory):
    """A preloaded process that is alive, which was started in a folder with odd files."""
    if not begun or not alive(begun[0]):
        folder = tmp_path_factory.mktemp("run")
        for name in SHADOWS:
            (folder / f"{name}.py").write_text("raise SystemExit('not the library')\n")
        known = below(os.getpid())
        with contextlib.chdir(folder):
            lifeline = preload_server.start_server()
        (pid,) = set(below(os.getpid())) - set(known)
        begun[:] = pid, lifeline
    return begun


def stage(*words: str, env: dict[str, str] | None = None, cwd: Path = ROOT, **keys: object):
    """The near end of a job with these keys."""
    words = (*words, json.dumps(keys)) if keys else words
    return subprocess.Popen(
        [sys.executable, "-c", ENTRY, "job", *words], env={**os.environ, **(env or {})}, cwd=cwd,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_job_is_as_alone_with_its_words_status_folder_and_environment(far, tmp_path):
    for name, env in (("a", {}), ("b", {preload_client.SOCKET: "none"})):
        near = stage(**SIMULATED, out=name, cwd=tmp_path, env=env)
        assert near.wait(600) == 0, near.stderr.read()
        said = re.search(r"processor time and, at its peak, (\d+) MiB", near.stderr.read())
        assert int(said[1]) > 100  # by the job itself: PyTorch alone; a near end has less than 20
    one, two = ((tmp_path / name / "metrics.parquet").read_bytes() for name in "ab")
    assert one == two
    near = stage(stage="prepare", dataset={"name": "digtis"}, out="made", cwd=tmp_path)
    assert near.wait(600) == 2
    assert "fedrepro: unknown dataset 'digtis'" in near.stderr.read()
    near = stage("--help")
    assert near.wait(600) == 0
    assert "usage: fedrepro job" in near.stdout.read()


@pytest.mark.parametrize(
    ("words", "other", "value"),
    [
        (["{}", "--threads", "2"], "os.getuid", os.getuid),
        (["{}", "--device", "cuda"], "os.getuid", os.getuid),
        (["--help"], "os.getuid", lambda: os.geteuid() + 1),
        (["--help"], "kernel_pinning.pin", lambda: "portable but for MKL_CBWR=AVX"),
        (["--help"], "source_digests.digest", lambda files: "of other files than it has loaded"),
    ],
)
def test_what_does_not_suit_the_process_runs_where_it_is(far, monkeypatch, words, other, value):
    with monkeypatch.context() as patch:
        patch.setattr(f"fedrepro.cli.preload_client.{other}", value)
        assert preload_client.run_preloaded(["job", *words]) is None


def running_job(far: int, folder: Path) -> tuple[subprocess.Popen[str], int]:
    """The near end and the number of a job that waits for ever: nobody writes to its data set."""
    os.mkfifo(folder / "dataset.json")
    given = {"partition": {"name": "homogeneous", "clients": 2}, "trials": [0, 0]}
    near = stage(stage="partition", **given, data=".", out="made", cwd=folder)

    def reading() -> int:
        with contextlib.suppress(OSError):  # there is no reader yet
            return os.open(folder / "dataset.json", os.O_WRONLY | os.O_NONBLOCK)
        return 0

    def caught() -> int:
        """Whether the near end passes signals on: it knows that the job began."""
        status = Path(f"/proc/{near.pid}/status").read_text()
        return int(re.search(r"SigCgt:\t(\w+)", status)[1], 16) >> (signal.SIGTERM - 1) & 1

    assert wait_for(reading, 300)
    assert wait_for(caught)
    (job,) = [pid for pid in below(far) if os.getpgid(pid) == pid]
    return near, job


@pytest.mark.parametrize(
    ("to", "sent", "status"),
    [
        ("near", signal.SIGTERM, 128 + signal.SIGTERM),
        ("near", signal.SIGINT, 130),
        ("near", signal.SIGKILL, -signal.SIGKILL),
        ("job", signal.SIGKILL, 128 + signal.SIGKILL),
        ("far", signal.SIGKILL, 128 + signal.SIGKILL),
        ("workflow", None, 128 + signal.SIGKILL),
    ],
)
def test_whoever_ends_first_takes_the_job_along(far, tmp_path, to, sent, status):
    pid, lifeline = far
    near, job = running_job(pid, tmp_path)
    if sent:
        os.kill({"near": near.pid, "job": job, "far": pid}[to], sent)
    else:
        os.close(lifeline)
    assert near.wait(120) == status
    assert ("the job was killed" in near.stderr.read()) == (status == 128 + signal.SIGKILL)
    assert wait_for(lambda: not alive(job))
    if to in ("far", "workflow"):  # nothing is left of it, and jobs run where they are
        assert preload_client.run_preloaded(["job", "--help"]) is None


def test_an_interrupt_while_a_job_waits_to_begin_is_quiet(tmp_path):
    """As in the first seconds, when the far end is still loading."""
    name = f"{tmp_path.name}-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        near = stage(**SIMULATED, out=str(tmp_path / "a"), env={preload_client.SOCKET: name})
        channel, _ = listener.accept()
        with channel:
            channel.recv(1 << 16)
            near.send_signal(signal.SIGINT)
            assert near.wait(120) == 130
    assert near.stderr.read() == "fedrepro: stopped\n"


def test_jobs_start_by_themselves_where_it_is_off(monkeypatch):
    monkeypatch.setenv("FEDREPRO_PRELOAD", "0")
    monkeypatch.setenv(preload_client.SOCKET, "left over")
    assert preload_server.start_server() is None
    assert preload_client.SOCKET not in os.environ


def test_the_far_end_pins_libraries_before_they_are_loaded_and_forks_from_one_thread():
    """Else it is of another arithmetic than its jobs, and none of them is handed over."""
    env = {name: value for name, value in os.environ.items() if name not in BRANCHES}
    far = preload_server.FAR_END.rpartition("\n")[0] + "\nprint(kernel_pinning.active_mode())"
    near = "from fedrepro.core import kernel_pinning; print(kernel_pinning.pin())"
    far_said, near_said = (
        subprocess.run([sys.executable, "-P", "-c", code], env=env, stdout=subprocess.PIPE).stdout
        for code in (far, near)
    )
    assert far_said == near_said != b""
    words = "from fedrepro.cli import preload_server as s; s.load(); print(s.strange_threads())"
    env = {**os.environ, **{f"{n}_NUM_THREADS": "1" for n in ("OMP", "MKL", "OPENBLAS")}}
    done = subprocess.run([sys.executable, "-c", words], env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"
