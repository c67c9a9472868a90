"""The command line: stages for the workflow, commands for people."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fedrepro.core import plugins

CONFIG = "config/config.yaml"
KILLED = (
    "fedrepro: the system killed a job, which it does when memory runs out: let one job do less "
    "(`granularity`), or fewer run at once (`--cores`), and start again"
)


def export_settings(mirror: str, checkpoint_seconds: float, components: Sequence[str] = ()) -> None:
    """Pass settings that do not change a result to jobs, through their environment.

    As parameters of a rule these would make Snakemake run everything again whenever they change:
    a mirror that is set today and not tomorrow, or a checkpoint more often.

    Args:
        mirror: folder of raw files, or "".
        checkpoint_seconds: between checkpoints.
        components: files of components outside the package; their versions do change results, and
            are parameters of rules.
    """
    os.environ["FEDREPRO_MIRROR"] = mirror
    os.environ["FEDREPRO_CHECKPOINT_SECONDS"] = str(checkpoint_seconds)
    plugins.add_plugin_files(components)


def name_configured() -> None:
    """Name to this process the files of components in the configuration, unless it has some.

    A configuration that is wrong is left to the commands that read all of it.
    """
    if plugins.NAMED in os.environ:
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
        plugins.set_plugin_files(files)


def add_scripts_to_path() -> None:
    """Let jobs find the `fedrepro` command also where the environment is not activated.

    Nor do they take a file of the run's folder, such as `queue.py`, for a library of that name.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    folder = os.path.dirname(sys.executable)
    if folder not in os.environ["PATH"].split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([folder, os.environ["PATH"]])


def take_failed(scale: str) -> tuple[list[str], list[Path]]:
    """Remove the metrics of methods that failed in drawn exhibits, and age the exhibits' files.

    The next run tries them again, since a failure does not count as a result.

    Returns:
        Sentences on the failures, and the aged files.
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


def repeat_errors(logs: str | list[str]) -> None:
    """Repeat, as the last words of a workflow, the sentences with which jobs failed.

    Snakemake prints them between the file names of a job, which may be thousands. It gives its log
    files as a list, or one as text in its early versions.
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
