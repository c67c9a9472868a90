"""Runs of Snakemake that start no job, in processes that have it loaded.

Half of what a dry run takes is loading Snakemake and its plugins. Here one process for each worker
loads them, and a child of it does what the command line would: the same function, in the folder,
with the words and the environment that it is given. fedrepro itself is loaded anew each time.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PATIENCE = 300  # seconds
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["snakemake.cli", "snakemake_executor_plugin_slurm"])


def snakemake(
    folder: Path, words: Sequence[str], env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """As `.venv/bin/snakemake words…` in the folder."""
    with tempfile.TemporaryDirectory() as place:
        said = [os.path.join(place, name) for name in ("out", "error")]
        process = SERVER.Process(target=_become, args=(str(folder), list(words), dict(env), said))
        process.start()
        process.join(PATIENCE)
        process.kill()
        assert process.exitcode is not None, "the dry run did not end"
        out, error = (Path(name).read_text() for name in said)
    return subprocess.CompletedProcess(list(words), process.exitcode, out, error)


def _become(folder: str, words: list[str], env: dict[str, str], said: list[str]) -> None:
    for stream, name in zip((1, 2), said, strict=True):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), stream)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    before = env.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [str(Path(sys.executable).parent), *filter(None, before)]
    sys.argv = [".venv/bin/snakemake", *words]
    from snakemake.cli import main

    assert "fedrepro" not in sys.modules
    main()
