"""A process that has everything loaded and forks for each job: the far end of `preloaded.py`.

Snakemake starts it with a workflow (`start`) and holds the only writing end of a pipe to it, so
that it ends with the workflow, however that ends. It computes nothing itself and has no threads of
its own, which is what makes a fork safe: locks, random states and devices are as after a start.

A job dies with its near end, and with this process; a signal to the near end reaches the job.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fedrepro.cli.preloaded import (
    HEADER,
    NAMELESS,
    SOCKET,
    STARTED,
    address_of,
    identity,
    is_of_this_user,
)
from fedrepro.core import arithmetic, outside, provenance, sources
from fedrepro.core.errors import EXTRAS
from fedrepro.core.registry import KINDS, components
from fedrepro.core.temporary import remove_left

# In the order in which a run needs them: a job that comes early finds the first ones.
MODULES = (
    "numpy",
    "torch",
    "pyarrow.parquet",
    "pyarrow.compute",
    "pyarrow.dataset",
    "scipy.optimize",
    "fedrepro.stages.data",
    "fedrepro.stages.train",
    "fedrepro.stages.aggregate",
    "fedrepro.stages.federate",
    "fedrepro.stages.peer",
    "numba",
    "fedrepro.training.steps",
    "fedrepro.planning.config",
    "sklearn.datasets",
    "sklearn.cluster",
    "ot.lp",
    "fedrepro.stages.exhibit",
    "fedrepro.stages.site",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "sphinx.application",
    "myst_parser.parsers.sphinx_",
    "furo",
)
# jemalloc's own thread sleeps, and jemalloc itself takes care of forks
HARMLESS_THREADS = {"jemalloc_bg_thd"}
FEW = 3  # jobs: to load everything takes 3 s of processor time, to start fewer jobs takes less
PATIENCE = 5.0  # seconds for a request to come in whole
PR_SET_PDEATHSIG = 1


def start(jobs: int) -> int | None:
    """Start the process for this workflow and tell jobs where it is, through their environment.

    Returns the writing end of the pipe that keeps it alive, or None if so few jobs are to run that
    each may as well start by itself, it is switched off (by FEDREPRO_PRELOAD=0) or this is not
    Linux.
    """
    os.environ.pop(SOCKET, None)
    if jobs < FEW or sys.platform != "linux" or os.environ.get("FEDREPRO_PRELOAD", "1") == "0":
        return None
    remove_left()
    # a name without a file: nothing stays of it, also if both ends are killed
    name = f"{NAMELESS}fedrepro-{secrets.token_hex(16)}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address_of(name))
    listener.listen(64)
    reading, writing = os.pipe()
    one_thread = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
    subprocess.Popen(
        [sys.executable, "-P", "-m", "fedrepro.cli.preload", str(listener.fileno()), str(reading)],
        pass_fds=(listener.fileno(), reading),
        env={**os.environ, **one_thread},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C on the terminal is for the near ends to pass on
    )
    os.close(reading)
    listener.close()
    os.environ[SOCKET] = name
    return writing


@dataclass(frozen=True)
class Job:
    """A running job: its process, a descriptor that tells when it ends, and its near end."""

    pid: int
    ended: int
    channel: socket.socket


@dataclass(frozen=True)
class Request:
    """What a near end hands over."""

    identity: str
    folder: str
    mask: int
    words: list[str]
    environment: dict[bytes, bytes]

    @staticmethod
    def parse(body: bytes) -> Request:
        whose, folder, mask, count, *rest = body.split(b"\0")
        pairs = [variable.partition(b"=") for variable in rest[int(count) :]]
        return Request(
            os.fsdecode(whose),
            os.fsdecode(folder),
            int(mask),
            [os.fsdecode(word) for word in rest[: int(count)]],
            {key: value for key, _, value in pairs},
        )


class Server:
    """One loop over four kinds of events: a new job, an ended one, a signal for one, the end."""

    def __init__(self, listener: socket.socket, lifeline: int, identity: str) -> None:
        self.listener, self.lifeline, self.identity = listener, lifeline, identity
        self.jobs: dict[int, Job] = {}
        self.events = selectors.DefaultSelector()
        self.events.register(listener, selectors.EVENT_READ, self.accept)
        self.events.register(lifeline, selectors.EVENT_READ, self.close)
        self.open = True

    def serve(self, timeout: float | None = None) -> None:
        """Handle what has happened; waits for something at most `timeout` seconds."""
        for key, _ in self.events.select(timeout):
            handle: Callable[[], None] = key.data
            handle()

    def accept(self) -> None:
        channel, _ = self.listener.accept()
        try:
            streams, request = receive(channel)
        except (OSError, ValueError):
            channel.close()
            return
        try:
            if request.identity == self.identity and not strange_threads():
                self.fork(request, streams, channel)
            else:
                channel.close()  # the near end runs the job itself
        finally:
            for stream in streams:
                os.close(stream)

    def fork(self, request: Request, streams: list[int], channel: socket.socket) -> None:
        pid = os.fork()
        if pid == 0:
            self.forget()
            channel.close()
            run_job(request, streams)
        with contextlib.suppress(OSError):  # the child has done it, or is gone
            os.setpgid(pid, pid)
        job = Job(pid, os.pidfd_open(pid), channel)
        self.jobs[pid] = job
        self.events.register(job.ended, selectors.EVENT_READ, lambda: self.end(job))
        self.events.register(channel, selectors.EVENT_READ, lambda: self.signalled(job))
        with contextlib.suppress(OSError):  # the near end is gone; the next event says so
            channel.sendall(STARTED)

    def signalled(self, job: Job) -> None:
        """Pass signals on; if the near end is gone, the job goes too."""
        try:
            numbers = job.channel.recv(16)
        except OSError:
            numbers = b""
        if job.pid not in self.jobs:
            return
        if not numbers:
            self.events.unregister(job.channel)
        for number in numbers or bytes([signal.SIGKILL]):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, number)

    def end(self, job: Job) -> None:
        """Report the exit status as a shell would give it."""
        _, status = os.waitpid(job.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(OSError):
            job.channel.sendall(b"%d" % (code if code >= 0 else 128 - code))
        self.events.unregister(job.ended)
        with contextlib.suppress(KeyError):
            self.events.unregister(job.channel)
        os.close(job.ended)
        job.channel.close()
        del self.jobs[job.pid]

    def close(self) -> None:
        """The workflow has ended, and its jobs with it."""
        self.open = False
        for job in self.jobs.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)

    def forget(self) -> None:
        """In a child: nothing of this process stays open."""
        self.events.close()
        self.listener.close()
        os.close(self.lifeline)
        for job in self.jobs.values():
            os.close(job.ended)
            job.channel.close()


def receive(channel: socket.socket) -> tuple[list[int], Request]:
    """Standard streams and request of a near end of the same user."""
    channel.settimeout(PATIENCE)
    if not is_of_this_user(channel):
        raise ValueError("a job of another user")
    _, streams, _, _ = socket.recv_fds(channel, 1, 3)
    try:
        size = int.from_bytes(_exactly(channel, HEADER), "big")
        request = Request.parse(_exactly(channel, size))
    except BaseException:
        for stream in streams:
            os.close(stream)
        raise
    channel.settimeout(None)
    return streams, request


def _exactly(channel: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = channel.recv(min(size - len(received), 1 << 16))
        if not part:
            raise ValueError("an incomplete request")
        received += part
    return bytes(received)


def strange_threads() -> set[str]:
    """Names of threads beside the first one that are not known to survive a fork."""
    pid = str(os.getpid())
    others = [task for task in os.listdir("/proc/self/task") if task != pid]
    return {name for task in others for name in _thread_name(task)} - HARMLESS_THREADS


def _thread_name(task: str) -> Iterator[str]:
    with (
        contextlib.suppress(FileNotFoundError),
        open(f"/proc/self/task/{task}/comm", encoding="utf-8") as file,
    ):
        yield file.read().strip()


def run_job(request: Request, streams: list[int]) -> None:
    """In a child: become the job, run it, and leave."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setpgid(0, 0)
        for target, stream in enumerate(streams):
            os.dup2(stream, target)
            os.close(stream)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        os.chdir(request.folder)
        os.umask(request.mask)
        os.environb.clear()
        os.environb.update(request.environment)
        sys.argv = ["fedrepro", *request.words]
        code = _run(request.words)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # no exit handlers: they belong to the process that was forked
        os._exit(code)


def _run(arguments: list[str]) -> int:
    from fedrepro.cli.main import run_here
    from fedrepro.stages.common import restart_clock

    restart_clock()
    try:
        return run_here(arguments)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1


def load(between: Callable[[], None] = lambda: None) -> None:
    """Import what jobs need, part by part; `between` is called after each.

    What only some installs have is left out where it is not: a job that needs it says so.
    """
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in {*EXTRAS, "numba"}:
                raise
        if name == "numba" and name in sys.modules:
            # with the first function Numba reads all that it knows of types: most of a second
            sys.modules[name].njit("intp()")(lambda: 0)
        between()
    for kind in KINDS:
        components(kind)
        between()


def main(listening: int, lifeline: int) -> None:
    """Load everything, serving jobs in between; then serve until the workflow ends.

    Sources that change while they are loaded are taken for those of no job. Files outside the
    package may change while the workflow runs, so jobs load them themselves.
    """
    outside.name_files(())
    listener = socket.socket(fileno=listening)
    own_identity = identity(provenance.loaded().digest, arithmetic.pin())
    server = Server(listener, lifeline, own_identity)
    load(lambda: server.serve(0))
    if identity(sources.digest(sources.on_disk()), arithmetic.taken()) != own_identity:
        server.identity = "changed"
    provenance.versions()  # jobs find the answer
    gc.freeze()  # collecting in a child would copy every page it looks at
    while server.open:
        server.serve()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
