"""Jobs in few words: tests name components by tokens, and files wherever they have them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from fedrepro.cli.main import main
from fedrepro.core.checkpoint_and_model_files import save_state
from fedrepro.core.registry import SCENARIO, entry_of, spec_of_entry
from fedrepro.stages import trial_rounds
from fedrepro.stages.federate_and_peer import CHECKPOINT_SECONDS

# what files are called in the folder of a job
NAMES = {
    "timings": "timings.parquet", "global-model": "global.pt", "confusion": "confusion.parquet",
    "nodes": "nodes.pt",
}  # fmt: skip
OUT = {"partition": "partition.parquet", "train": "local.parquet"}
MANY = ("local", "evaluate", "follow")
WHEN = re.compile(r"(auto|-?\d+)(?:\+until~([^+]+))?(?:\+race~(\d+))?")


def stage(name: str, *words: object) -> int:
    """Run a stage; its files lie where the words say. Returns the exit status."""
    given, options = parts(list(map(str, words)))
    moved = {given.pop(key): NAMES[key] for key in NAMES if key in given}
    seconds = given.pop("checkpoint-seconds", None)
    out = Path(given["out"])
    if name != "prepare":
        moved[str(out)] = OUT.get(name, "metrics.parquet")
        given["out"] = str(out.parent)
    with mock.patch.dict(os.environ, {CHECKPOINT_SECONDS: seconds} if seconds else {}):
        status = main(["job", json.dumps({"stage": name, **given}), *options])
    for path, usual in moved.items() if status == 0 else ():
        if (out.parent / usual).exists() and Path(path) != out.parent / usual:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            (out.parent / usual).rename(path)
    return status


def divided(
    folder: Path, partition: str, trials: str = "0-1", dataset: str = "digits"
) -> list[object]:
    """Prepare data and divide them, in a folder; returns the words that name both to a stage."""
    split = ["--partition", partition, "--trials", trials]
    data, members = folder / "data", folder / "members"
    assert stage("prepare", "--dataset", dataset, "--out", data) == 0
    assert stage("partition", *split, "--data", data, "--out", members) == 0
    return ["--dataset", dataset, *split, "--data", data, "--members", members]


def parts(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The keys of a job, and options of its command."""
    given: dict[str, Any] = {}
    options: list[str] = []
    at = 0
    while at < len(words):
        key, values, at = words[at].removeprefix("--"), [], at + 1
        while at < len(words) and not words[at].startswith("--"):
            values.append(words[at])
            at += 1
        if key in ("device", "threads", "debug"):
            options += [f"--{key}", *values]
        else:
            given.update([read(key, values)])
    return given, options


def read(key: str, values: list[str]) -> tuple[str, Any]:
    if key in MANY:
        return key, values
    (value,) = values
    if key in (*SCENARIO, "method", "tune"):
        return key, spec_of_entry(key, entry_of(key, value)).entry
    if key in ("trials", "clients"):
        first, _, last = value.partition("-")
        return key, [int(first), int(last or first)]
    if key == "measure-every":
        every, until, race = WHEN.fullmatch(value).groups()
        when = {"every": None if every == "auto" else int(every)}
        return "every", when | {"until": until and float(until), "race": int(race or 0)}
    return key, int(value) if key == "seed" else value


@contextmanager
def killed_after(saves):
    """Within it, writing so many checkpoints ends a run; gives the paths of those written."""
    written: list[Path] = []

    def stop(path, state):
        save_state(path, state)
        written.append(path)
        if len(written) == saves:
            raise KeyboardInterrupt

    with mock.patch.object(trial_rounds.checkpoints, "save_state", stop):
        yield written
