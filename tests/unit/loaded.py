"""Processes that have Snakemake and PyTorch loaded before they begin.

Loading them is most of what a small run takes. A child does what the command line would, in the
folder, with the words and the environment that it is given; fedrepro itself is loaded each time.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

PATIENCE = 900  # seconds
SERVER = multiprocessing.get_context("forkserver")

Done = subprocess.CompletedProcess[str]


def snakemake(folder: Path, words: Sequence[str], env: Mapping[str, str]) -> Done:
    """As `.venv/bin/snakemake words…` in the folder."""
    return python([".venv/bin/snakemake", *words], folder, env)


def python(
    words: Sequence[str],
    folder: Path,
    env: Mapping[str, str] = os.environ,
    patience: float = PATIENCE,
) -> Done:
    """As `python words…` in the folder: a script, or `-c` and code, or `-m` and a module."""
    _load()
    given = list(map(str, words))
    with tempfile.TemporaryDirectory() as place:
        said = [os.path.join(place, name) for name in ("out", "error")]
        process = SERVER.Process(target=_become, args=(str(folder), given, dict(env), said))
        process.start()
        process.join(patience)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(given, patience)
        out, error = (Path(name).read_text(errors="replace") for name in said)
    return subprocess.CompletedProcess(given, process.exitcode, out, error)


@cache
def _load() -> None:
    """Name what is loaded before anything is started. Children import this module, not fedrepro."""
    from fedrepro.cli.preload_server import MODULES

    own = [name for name in MODULES if not name.startswith("fedrepro")]
    own += ["snakemake.cli", "snakemake.report.html_reporter", "snakemake.storage"]
    own += ["snakemake_executor_plugin_slurm", "snakemake_logger_plugin_rich"]
    SERVER.set_forkserver_preload([name for name in own if find_spec(name.split(".")[0])])


def _become(folder: str, words: list[str], env: dict[str, str], said: list[str]) -> None:
    for stream, name in zip((1, 2), said, strict=True):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), stream)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.path[:0] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    assert "fedrepro" not in sys.modules
    first, sys.argv = words[0], words[1:] if words[0] == "-m" else words
    try:
        if first.endswith("bin/snakemake"):
            _preload_by_fork()
            sys.path.insert(0, str(Path(sys.executable).parent))
            from snakemake.cli import main

            main()
        elif first == "-c":
            sys.path.insert(0, "")
            sys.argv = ["-c", *words[2:]]
            exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
        elif first == "-m":
            sys.path.insert(0, os.getcwd())
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(first).parent))
            runpy.run_path(first, run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves them out


def _preload_by_fork() -> None:
    """What a workflow starts to have everything loaded is forked now, when there is one thread."""
    from fedrepro.cli import preload_server

    here, there = socket.socketpair()
    if os.fork() == 0:
        here.close()
        given = socket.recv_fds(there, 1, 2)[1]
        if given:  # else the workflow ended without it
            os.setsid()
            preload_server.main(*given)
        os._exit(0)

    def hand_over(_: object, pass_fds: Sequence[int], **__: object) -> None:
        socket.send_fds(here, [b"."], pass_fds)

    preload_server.subprocess = SimpleNamespace(Popen=hand_over, DEVNULL=subprocess.DEVNULL)
