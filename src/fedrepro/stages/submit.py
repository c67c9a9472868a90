"""An entry for a leaderboard, packed from what is computed: `fedrepro submit`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedrepro.core import outside
from fedrepro.core.artifacts import (
    SCHEMA_VERSION,
    one_line,
    read_json,
    read_source,
    require_target,
    write_json,
)
from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.provenance import origins
from fedrepro.core.registry import components, components_of
from fedrepro.core.spec import Component
from fedrepro.core.temporary import temporary_folder
from fedrepro.machine import isolated
from fedrepro.planning.boards import part_keys
from fedrepro.planning.brought import at_hand
from fedrepro.planning.config import ExhibitFile, load_config, load_exhibits
from fedrepro.planning.described import ToldMethod, described
from fedrepro.planning.entered import EntryRun, entry_plan, runs_of
from fedrepro.planning.plan import Plan
from fedrepro.record.entry import Submission, pack

DESCRIBED = "described.json"
LOADED = 600  # seconds that a file may take to be loaded


@dataclass(frozen=True)
class Packed:
    """What was packed, and why some exhibits are not part of it."""

    entry: Submission
    left_out: Mapping[str, str]


def submit(key: str, wanted: str, scale: str, by: str, out: Path) -> Packed:
    """Pack the runs of a method of `also` in a leaderboard or an exhibit, as far as they are there.

    wanted: its label or its name. Errors: FedreproError for a method that is no such, or has no
    file of its own; for runs of another file than is there now; and if no exhibit is whole.
    """
    require_target(out, [".zip"])
    config, (paper, _, name) = load_config(), key.partition("/")
    whole = Plan(config, load_exhibits(), scale)
    if paper not in {*whole.files, *whole.unread}:
        known = [f"{paper}/{board}" for paper, file in whole.files.items() for board in file.boards]
        raise unknown("leaderboard", key, known)
    file = whole.files[paper]
    keys = part_keys(whole, paper, name) if name in file.boards else [whole.exhibit(key).key]
    says = _said(file, wanted)
    item = components("method")[says["name"]]
    text = _file_of(item).read_bytes()
    method_file = f"{item.name}.py"
    with temporary_folder() as folder:
        (folder / method_file).write_bytes(text)
        description = described_by(folder, method_file, item.name, "")
    plan = entry_plan(file, says, item, scale, config)
    runs: dict[str, list[EntryRun]] = {}
    left_out: dict[str, str] = {}
    for exhibit in keys:
        try:
            due = list(runs_of(plan, [exhibit]))
        except FedreproError as error:
            left_out[exhibit] = str(error)
            continue
        present = [run for run in due if Path(at_hand(run.path)).exists()]
        if len(present) == len(due):
            runs[exhibit] = due
        else:
            left_out[exhibit] = (
                f"{len(present)} of {len(due)} files of runs are there; make them with: snakemake "
                f"--cores 2 reports/{scale}/{exhibit}.csv"
            )
    if not runs:
        raise FedreproError(
            f"no exhibit of {key} is computed whole with '{wanted or says['name']}' at scale "
            f"{scale}: {next(iter(left_out.values()))}"
        )
    each = list({run.path: run for exhibit_runs in runs.values() for run in exhibit_runs}.values())
    files = {method_file: text}
    for run in each:
        for path in (run.path, run.timings):
            files[path] = Path(at_hand(path)).read_bytes()
    sources = [read_source(at_hand(run.path)) for run in each]
    _require_of_this_file(item, sources)
    entry = {
        "kind": "entry",
        "schema": SCHEMA_VERSION,
        "paper": paper,
        "scale": scale,
        "seed": config.seed,
        "trials_per_job": plan.trials_per_job,
        "exhibits": [exhibit.partition("/")[2] for exhibit in runs],
        "method": description.model_dump(mode="json"),
        "says": dict(says),
        "origin": origins(sources),
        "by": by,
    }
    try:
        return Packed(pack(entry, files, out), left_out)
    except ValidationError as error:
        raise FedreproError(f"this is no entry: {one_line(error)}") from error


def _said(file: ExhibitFile, wanted: str) -> Mapping[str, Any]:
    """The method of `also` that is meant."""
    called = {str(method.get("label") or method.get("name")): method for method in file.also}
    named = {str(method.get("name")): method for method in file.also}
    if not wanted and len(called) == 1:
        return next(iter(called.values()))
    known = named | called
    if not wanted and called:
        raise FedreproError(f"say by --method which is meant: {', '.join(called)}")
    if wanted not in known:
        raise FedreproError(
            f"`also` in config/config.yaml has no method {wanted and repr(wanted) + ' '}for "
            f"{file.paper} (it has {', '.join(called) or 'none'}): write also: "
            f"{{{file.paper}: [{{name: mine}}]}} there"
        )
    return known[wanted]


def _file_of(item: Component) -> Path:
    """Errors: FedreproError for a method without a file of its own."""
    if item.file not in outside.loaded_digests:
        raise FedreproError(
            f"method '{item.name}' is in no file that `components` in config/config.yaml names: "
            "an entry has its method in one file"
        )
    return Path(item.file)


def _require_of_this_file(item: Component, sources: list[dict[str, Any]]) -> None:
    from fedrepro.core.provenance import file_of

    now, key = file_of(item), f"method {item.name}"
    other = [source for source in sources if source.get("component_files", {}).get(key) != now]
    if other:
        raise FedreproError(
            f"{len(other)} of {len(sources)} files of runs are of another {Path(item.file).name} "
            "than is there now: compute them anew (version='dev' does so by itself), or take the "
            "file back to what it was"
        )


# --------------------------------------------------------------------------------- descriptions


def describe(file: str, out: Path) -> None:
    """Write what the methods of a file are, as data. Errors: FedreproError for one without any."""
    require_target(out, [".json"], [file])
    before = outside.named()
    outside.name_files([file])
    try:
        components("method")
        methods = [item for item in components_of(file) if item.kind == "method"]
    finally:
        # a file that is missing or wrong would be asked for by all that this process does next
        outside.name_files(before)
    if not methods:
        raise FedreproError(f"{file} has no method: decorate a function or a class by @method")
    write_json(out, {"methods": [described(method).model_dump(mode="json") for method in methods]})


def described_by(folder: Path, file: str, name: str, by: str) -> ToldMethod:
    """What the method of this name in a file of `folder` is; it is loaded in a process of its own.

    by: what isolates that. Errors: FedreproError with why it cannot be loaded, or that it has no
    such method.
    """
    out = folder / "out"
    out.mkdir(exist_ok=True)
    ended = isolated.run(
        [sys.executable, "-m", "fedrepro", "describe", file, f"out/{DESCRIBED}"],
        by=by, folder=folder, write=[out], seconds=LOADED,
    )  # fmt: skip
    if ended.returncode:
        raise FedreproError(f"{file} alone cannot be used: {isolated.last_words(ended)}")
    try:
        methods = [ToldMethod.model_validate(raw) for raw in read_json(out / DESCRIBED)["methods"]]
    except (ValidationError, KeyError, TypeError) as error:
        raise FedreproError(f"{file} describes itself in an odd way: {one_line(error)}") from error
    for method in methods:
        if method.name == name:
            return method
    raise FedreproError(f"{file} has no method '{name}'")
