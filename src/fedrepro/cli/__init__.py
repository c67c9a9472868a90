"""The command line: stages for the workflow, commands for people."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fedrepro.core import outside

CONFIG = "config/config.yaml"
KILLED = (
    "fedrepro: the system killed a job, which it does when memory runs out: let one job do less "
    "(`granularity`), or fewer run at once (`--cores`), and start again"
)


def hand_over(mirror: str, checkpoint_seconds: float, components: Sequence[str] = ()) -> None:
    """Tell jobs, through their environment, what does not change a result.

    As parameters of a rule these would make Snakemake run everything again whenever they change:
    a mirror that is set today and not tomorrow, or a checkpoint more often. components: files of
    components outside the package, whose versions do change results and are parameters of rules.
    """
    os.environ["FEDREPRO_MIRROR"] = mirror
    os.environ["FEDREPRO_CHECKPOINT_SECONDS"] = str(checkpoint_seconds)
    outside.name_also(components)


def name_configured() -> None:
    """Tell this process of the files of components that the configuration here names, if it was
    not told of any. A configuration that is wrong is told of by whoever needs more of it."""
    if outside.NAMED in os.environ:
        return
    try:
        with open(CONFIG, encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return
    if "components" not in text:  # reading yaml takes longer than all else here
        return
    from fedrepro.core.yaml_text import parse_yaml

    try:
        config = parse_yaml(text)
    except ValueError as error:
        print(f"{CONFIG} is not valid YAML, so no components are read: {error}", file=sys.stderr)
        return
    files = config.get("components") if isinstance(config, dict) else None
    if isinstance(files, list) and all(isinstance(file, str) for file in files):
        outside.name_files(files)


def put_on_path() -> None:
    """Let jobs find the `fedrepro` command also where the environment is not activated.

    Nor do they take a file of the run's folder, such as `queue.py`, for a library of that name.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    folder = os.path.dirname(sys.executable)
    if folder not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([folder, os.environ["PATH"]])


def take_failed(scale: str) -> tuple[list[str], list[Path]]:
    """Say which methods failed in what is drawn, take their metrics away, and age its files.

    So the next run tries them again, since a failure is no result. Returns sentences and files.
    """
    sentences: dict[str, None] = {}
    drawn: list[Path] = []
    for about in sorted(Path("results/drawn", scale).glob("*/*.json")):
        text = about.read_text(encoding="utf-8")
        failed = json.loads(text).get("failed", {}) if '"failed"' in text else {}
        name = "/".join(about.with_suffix("").parts[-2:])
        for metrics, words in failed.items():
            sentences |= dict.fromkeys(f"reports/{scale}/{name}: {said}" for said in words)
            Path(metrics).unlink(missing_ok=True)
        drawn += about.parent.glob(f"{about.stem}.*") if failed else ()
    for path in drawn:
        os.utime(path, (1, 1))  # older than every input
    return list(sentences), drawn


def say_again(logs: str | list[str]) -> None:
    """Repeat, as the last words of a workflow, the sentences with which jobs failed.

    Snakemake prints what it knows of a failed job around them, which may be thousands of file
    names. logs: Snakemake's own log files; one in its early versions.
    """
    killed = ("exit status 137.", "<Signals.SIGKILL: 9>.")
    sentences: dict[str, None] = {}
    for log in [logs] if isinstance(logs, str) else logs:
        with open(log, encoding="utf-8", errors="replace") as file:
            for line in map(str.rstrip, file):
                if line.startswith("fedrepro: ") or line.endswith(killed):
                    sentences[KILLED if line.endswith(killed) else line] = None
    if sentences:
        atexit.register(print, *sentences, sep="\n", file=sys.stderr)
