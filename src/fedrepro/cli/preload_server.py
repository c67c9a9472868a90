"""A process that has all libraries loaded and forks for each job that `preload_client.py` sends.

The server ends with the workflow, which has the only writing end of a pipe to it. It computes
nothing itself and has no threads, so that a forked process is like a newly started one. A job ends
when its client or the server ends; signals to the client are passed on to the job.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import marshal
import os
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from fedrepro.cli.main import THREADS, run_here
from fedrepro.cli.preload_client import SOCKET, STARTED, identity, is_of_this_user
from fedrepro.core import provenance, source_digests
from fedrepro.core import user_component_files as component_files
from fedrepro.core.registry import KINDS, components

STEPS = "fedrepro.training.compiled_steps"
# In the order in which a run needs them: a job that comes early finds the first ones.
MODULES = (
    *("numpy", "torch", "pyarrow.parquet", "pyarrow.compute", "pyarrow.dataset", "scipy.optimize"),
    *("fedrepro.stages.data", "fedrepro.stages.train_local_models", "fedrepro.stages.aggregate"),
    *("fedrepro.stages.federate_and_peer", "numba", STEPS, "fedrepro.planning.config_files"),
    *("sklearn.datasets", "sklearn.cluster", "ot.lp", "fedrepro.stages.figures_claims_and_pages"),
    *("matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg"),
    *("sphinx.application", "myst_parser.parsers.sphinx_", "furo"),
)
HARMLESS = {"jemalloc_bg_thd"}  # sleeps, and jemalloc itself takes care of forks
PATIENCE = 5.0  # seconds for a request
PR_SET_PDEATHSIG = 1  # a process ends with its parent
COLLAPSE = 25  # MADV_COLLAPSE
# libraries read their branches when they are loaded, and some are with this module
FAR_END = """import sys
from fedrepro.core import kernel_pinning
kernel_pinning.pin()
from fedrepro.cli.preload_server import main
main(*map(int, sys.argv[1:]))"""


def start_server() -> int | None:
    """Start a process that loads libraries and forks for each job of a workflow.

    Returns a pipe's descriptor: closing it ends the process. None where none can be started.
    """
    os.environ.pop(SOCKET, None)
    if sys.platform != "linux" or os.environ.get("FEDREPRO_PRELOAD", "1") == "0":
        return None
    reading, writing = os.pipe()
    os.environ[SOCKET] = f"fedrepro-{secrets.token_hex(16)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{os.environ[SOCKET]}")
        listener.listen(64)
        given = listener.fileno(), reading
        subprocess.Popen(
            [sys.executable, "-P", "-c", FAR_END, *map(str, given)],
            pass_fds=given,
            env={**os.environ, **dict.fromkeys(THREADS, "1")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C on the terminal is for the near ends to pass on
        )
    os.close(reading)
    return writing


def accept(listener: socket.socket, own: str) -> None:
    """Receive a job at `listener`; fork to run it if its client's identity is ours, `own`."""
    channel, _ = listener.accept()
    channel.settimeout(PATIENCE)
    given: list[int] = []
    with channel, suppress(OSError, IndexError, ValueError, EOFError, TypeError):
        if is_of_this_user(channel):
            _, given, _, _ = socket.recv_fds(channel, 1, 4)
            with open(given[3], "rb", closefd=False) as file:
                file.seek(0)
                whose, *job = marshal.load(file)
            if whose == own and not strange_threads() and os.fork() == 0:
                run_forked_job(channel, given, *job)
    for one in given:
        os.close(one)
    with suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)  # what was forked before and has ended


def strange_threads() -> set[str]:
    """Return names of threads beyond the first that make it unsafe to fork this process."""
    tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid())]
    return {(task / "comm").read_text(encoding="utf-8").strip() for task in tasks} - HARMLESS


def obey(channel: socket.socket) -> None:
    """Pass signals from `channel` on to this process; end it when the client is gone."""
    with suppress(OSError):
        while number := channel.recv(1):
            signal.pthread_kill(threading.main_thread().ident or 0, number[0])
    os.killpg(0, signal.SIGKILL)


def run_forked_job(
    channel: socket.socket,
    given: Sequence[int],
    words: list[str],
    folder: bytes,
    environment: dict[bytes, bytes],
) -> None:
    """Run `fedrepro` with `words`, in `folder` and `environment`, for a client; end this process.

    `given`: descriptors of the client's standard streams. `channel`: brings the signals that the
    client receives, and takes the exit status back to it.
    """
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setpgid(0, 0)
        gc.freeze()  # collecting would copy every page it looks at
        gc.enable()
        channel.settimeout(None)
        channel.sendall(STARTED)
        threading.Thread(target=obey, args=[channel], daemon=True).start()
        for target, stream in zip((0, 1, 2), given, strict=False):
            os.dup2(stream, target)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        os.chdir(folder)
        os.environb.clear()
        os.environb.update(environment)
        sys.argv = ["fedrepro", *words]
        from fedrepro.stages.job_log_results_gpu_lock import restart_clock

        restart_clock()
        code = run_here(words)
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        with suppress(OSError):
            channel.sendall(bytes([code]))
        os._exit(code)  # no exit handlers: they belong to the process that was forked


def load(between: Callable[[], None] = lambda: None) -> None:
    """Import the modules that jobs need; call `between` after each, to start jobs that wait."""
    for name in MODULES:
        with suppress(ImportError):  # a job that needs it says so
            importlib.import_module(name)
        if name == "numba" and name in sys.modules:
            # with the first function Numba reads all that it knows of types: most of a second
            sys.modules[name].njit("intp()")(lambda: 0)
        if name == STEPS and name in sys.modules:
            from fedrepro.core.portable_ops.compilation import load_compiled

            # each job would take a quarter of a second
            load_compiled(sys.modules[name].train_model)
        between()
    for kind in KINDS:
        for one in components(kind).values():
            _ = one.params  # read from types, in milliseconds
        between()


def use_large_pages() -> None:
    """Move this process's memory to pages of 2 MiB, so that forks are faster (from Linux 6.1)."""
    advise = ctypes.CDLL(None).madvise
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    for begin, end in re.findall(r"^(\w+)-(\w+) rw-p 0+ 00:00 0 *(?:\[heap\])?$", maps, re.M):
        first, last = int(begin, 16), int(end, 16)
        advise(ctypes.c_size_t(first), ctypes.c_size_t(last - first), COLLAPSE)


def main(listening: int, lifeline: int) -> None:
    """Load libraries; serve jobs at a socket until a pipe ends. Arguments are their descriptors."""
    gc.disable()  # collecting takes a third of loading, and finds nothing
    component_files.set_files(())  # these may change meanwhile, so jobs load them themselves
    own, listener = identity(provenance.loaded_source()["digest"]), socket.socket(fileno=listening)

    def serve(seconds: float | None = 0) -> None:
        while ready := select.select([listener.fileno(), lifeline], [], [], seconds)[0]:
            if lifeline in ready:  # the workflow has ended; jobs end with this process
                os._exit(0)
            accept(listener, own)

    load(serve)
    if identity(source_digests.digest(source_digests.on_disk())) != own:
        own = "changed while it was loaded"
    provenance.versions()  # jobs find the answer
    use_large_pages()  # a job begins and ends in 0.02 s where it took 0.045
    serve(None)
