"""An entry of somebody else: held to what it says, some of it computed again, and entered.

What all methods share (data, who holds what, local models) is computed here by the code that is
here. The method's file is loaded by processes of their own, without network, that see their inputs
and none of the numbers of the archive; what they write is compared outside of them.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedrepro.core import arithmetic, outside
from fedrepro.core.artifacts import (
    SCHEMA_VERSION,
    read_json_of,
    read_source,
    read_table,
    write_json,
)
from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.metrics import FINAL, IN_ROUND
from fedrepro.core.provenance import loaded, origin, origins
from fedrepro.core.sources import digest_of
from fedrepro.core.spec import Component
from fedrepro.core.temporary import temporary_folder
from fedrepro.machine import isolated
from fedrepro.numbers.board import REPORTED, VERIFIED, label_taken
from fedrepro.numbers.summary import read_csv
from fedrepro.planning.config import ExhibitFile, load_config, load_exhibits
from fedrepro.planning.described import standing_in
from fedrepro.planning.entered import EntryRun, entry_plan, job_of, jobs_before, runs_of
from fedrepro.planning.jobs import specs_of
from fedrepro.planning.plan import Plan
from fedrepro.products.caching import compiled_folder
from fedrepro.record.boards import ARCHIVE, VERDICT, entries_folder, write_board
from fedrepro.record.entry import Submission, Submitted, unpack
from fedrepro.stages import exhibit as exhibit_stage
from fedrepro.stages.common import say
from fedrepro.stages.submit import described_by

MOST_NUMBERS = 200_000_000  # rows times columns of a table
# of a file's origin what must be what it is here; all else says which machine it was
TOLD = ("resolved", "component_files", "seed", "path", "data", "stand_in", "tune", "digest")
Stage = Callable[[tuple[str, ...]], int]


@dataclass(frozen=True)
class Verdict:
    """runs: files of runs that the entry has. computed: those that were computed again. differing:
    a sentence for each of these whose bytes do not agree. by: what isolated the method's file.
    """

    label: str
    runs: int
    computed: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    by: str = ""
    entered: list[Path] = field(default_factory=list)

    @property
    def status(self) -> str:
        return VERIFIED if self.computed and not self.differing else REPORTED


@dataclass(frozen=True)
class Here:
    """How runs are computed here. stage: runs a stage's words in this process. by: what isolates
    the method's file, empty for nothing. seconds: that one run may take."""

    stage: Stage
    by: str
    seconds: int


def verify(archive: Path, count: int | None, here: Here, enter: Path | None = None) -> Verdict:
    """Hold an archive to what it says, compute some runs again, and enter it on the leaderboard.

    count: how many runs, drawn at random; None for all, 0 for none. enter: folder of reports in
    whose leaderboards it is put, unless bytes differ. Errors: FedreproError for an archive that was
    altered, or that cannot be checked here.
    """
    outside.name_files([])  # a method of this name that is configured here is another's
    with temporary_folder() as folder:
        extracted, work = folder / "given", folder / "work"
        extracted.mkdir()
        work.mkdir()
        submitted = unpack(archive, extracted)
        entry, files = submitted.entry, load_exhibits()
        if entry.paper not in {*files, *files.unread}:
            raise unknown("leaderboard", entry.paper, files, str(archive))
        file = files[entry.paper]
        with standing_in(entry.method) as item:
            plan = entry_plan(file, entry.says, item, entry.scale, entry.job)
            runs = list(runs_of(plan, entry.keys))
            _require_whole(archive, submitted, runs)
            sources = _require_told(archive, submitted, item, runs)
            boards = _boards(entry, file, enter) if enter else []
            chosen = runs if count is None else _drawn(runs, count)
            if chosen:
                _require_comparable(archive, sources)
                (work / entry.file).write_bytes(submitted.read(entry.file))
                if described_by(work, entry.file, item.name, here.by) != entry.method:
                    raise _altered(archive, f"{entry.file} is not the method that it describes")
            differing = []
            for at, run in enumerate(chosen, 1):
                say(f"{at} of {len(chosen)}: {run.path}")
                why = _differs(plan, run, submitted, work, here)
                differing += [why] if why else []
            computed = [run.path for run in chosen]
            verdict = Verdict(entry.label, len(runs), computed, differing, here.by)
            for board in boards if not differing else ():
                verdict.entered.extend(_enter(archive, submitted, file, plan, verdict, board))
            return verdict


def _drawn(runs: Sequence[EntryRun], count: int) -> list[EntryRun]:
    """So many of them, by the system's own randomness: nobody knows beforehand which."""
    return random.SystemRandom().sample(runs, min(count, len(runs)))


def _altered(archive: Path, why: str) -> FedreproError:
    return FedreproError(
        f"{archive} is not taken: {why}; it was altered, or is of another fedrepro"
    )


# ------------------------------------------------------------------------- what an archive says


def _require_whole(archive: Path, submitted: Submitted, runs: Sequence[EntryRun]) -> None:
    """Errors: FedreproError for a run that is missing, and for one that the entry has not."""
    due = {path for run in runs for path in (run.path, run.timings)} | {submitted.entry.file}
    for name in sorted(due - set(submitted.entry.files)):
        raise _altered(archive, f"it lacks {name}")
    for name in sorted(set(submitted.entry.files) - due):
        raise _altered(archive, f"it has {name}, which no exhibit of it asks for")


def _require_told(
    archive: Path, submitted: Submitted, item: Component, runs: Sequence[EntryRun]
) -> list[dict[str, Any]]:
    """Where the files of runs come from. Errors: FedreproError for one that says itself that it is
    of another method's file, other settings or another ground than the entry."""
    digest = digest_of(submitted.read(submitted.entry.file))
    file = {f"method {item.name}": f"{item.version} {digest}"}
    sources = []
    for run in runs:
        path = submitted.folder / run.path
        with contextlib.chdir(submitted.folder):
            for table in (run.path, run.timings):
                _bounded(archive, table)
            source = read_source(run.path)
            read_table(run.timings, "timings")
        scenario = run.run.scenario
        resolved = {spec.kind: [spec.resolved] for spec in specs_of(scenario)}
        folders = [scenario.folder] if scenario else []
        tune = [run.run.tune.token] if run.run.tune else []
        expected = {
            "resolved": resolved | {"method": [run.run.method.resolved]},
            "path": "/".join([*folders, run.run.method.token, *tune]),
            "seed": submitted.entry.seed,
        }
        odd = [key for key, due in expected.items() if source.get(key) != due]
        if odd or not file.items() <= source.get("component_files", {}).items():
            what = odd[0] if odd else "method's file"
            raise _altered(archive, f"{run.path} is of another {what} than the entry ({path.name})")
        sources.append(source)
    if origins(sources) != submitted.entry.origin:
        raise _altered(archive, "its origin is not that of its files")
    return sources


def _bounded(archive: Path, path: str) -> None:
    """Errors: FedreproError for a table of more numbers than any run has."""
    try:
        metadata = pq.read_metadata(path)
        groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
        size = sum(group.total_byte_size for group in groups)
    except (OSError, pa.ArrowException) as error:
        raise _altered(archive, f"{path} is damaged ({error})") from None
    rows, columns = metadata.num_rows, metadata.num_columns
    if rows * columns > MOST_NUMBERS or size > 2**30:
        raise _altered(archive, f"{path} holds {rows:,} rows of {columns} columns")


def _require_comparable(archive: Path, sources: Sequence[dict[str, Any]]) -> None:
    """Errors: FedreproError where bytes could differ though everybody was honest."""
    if arithmetic.taken() != arithmetic.PORTABLE:
        raise FedreproError(
            f"nothing can be compared here, where libraries are {arithmetic.taken()}: verify on an "
            "x86-64 processor with AVX2, and unset variables that steer its libraries"
        )
    for made in origins(sources):
        if made.get("arithmetic") != arithmetic.PORTABLE or made.get("device") != "cpu":
            raise FedreproError(
                f"{archive} cannot be verified: its libraries were {made.get('arithmetic')}, on "
                f"{made.get('device')}, and such bytes are those of one machine; it can be entered "
                "as reported (--runs 0)"
            )
    ours = loaded().digest
    for made in sources:
        if made.get("digest") != ours:
            raise FedreproError(
                f"{archive} was computed by other sources than are here (revision "
                f"{made.get('revision')}, digest {str(made.get('digest'))[:12]}, not {ours[:12]}): "
                "verify it with those, or enter it as reported (--runs 0)"
            )


# ------------------------------------------------------------------------------ computing again


def _differs(plan: Plan, entry: EntryRun, submitted: Submitted, work: Path, here: Here) -> str:
    """Compute a run again; empty if the bytes of its metrics agree, or how they differ."""
    theirs = _table(submitted.folder, entry.path)
    measured = _splits(theirs, FINAL), _splits(theirs, IN_ROUND)
    for job in jobs_before(plan, entry, str(work), load_config().mirror_folder()):
        if not Path(job.out).exists():
            here.stage(job.words)
    out = work / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    _copy_compiled(out / "compiled")
    job = job_of(plan, entry, str(work), str(out), measured)
    env = {
        outside.NAMED: str(work / submitted.entry.file),
        "NUMBA_CACHE_DIR": str(out / "compiled"),
    }
    try:
        ended = isolated.run(
            [sys.executable, "-P", "-m", "fedrepro", "stage", *job.words],
            by=here.by, folder=work, write=[out], seconds=here.seconds, env=env,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{entry.path}: it was not done after {here.seconds / 60:.0f} minutes"
    if ended.returncode:
        return f"{entry.path}: it fails here: {isolated.last_words(ended)}"
    ours = _table(out, "metrics.parquet")
    source, theirs_source = read_source(job.out), _source(submitted.folder, entry.path)
    odd = [key for key in TOLD if source.get(key) != theirs_source.get(key)]
    if odd:
        return f"{entry.path}: its {odd[0]} is another here"
    if _bytes(ours) == _bytes(theirs):
        return ""
    return f"{entry.path}: {_first(ours, theirs)}{_versions(source, theirs_source)}"


def _copy_compiled(place: Path) -> None:
    """What Numba compiled for this user, as a copy: what is written there is gone with it."""
    place.mkdir()
    with contextlib.suppress(OSError, RuntimeError, shutil.Error):
        shutil.copytree(compiled_folder(), place, dirs_exist_ok=True)


def _table(folder: Path, name: str) -> pa.Table:
    with contextlib.chdir(folder):
        return read_table(name, "metrics")


def _source(folder: Path, name: str) -> dict[str, Any]:
    with contextlib.chdir(folder):
        return read_source(name)


def _splits(table: pa.Table, phase: str) -> set[str]:
    """The splits on which rows of a phase were measured."""
    rows = zip(table["phase"].to_pylist(), table["split"].to_pylist(), strict=True)
    return {split for row_phase, split in rows if row_phase == phase and split}


def _bytes(table: pa.Table) -> bytes:
    """Names, types and values of all columns; not where it comes from."""
    bare = table.replace_schema_metadata().combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, bare.schema) as writer:
        writer.write_table(bare)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _first(ours: pa.Table, theirs: pa.Table) -> str:
    """The first number that is another."""
    keys = ("trial", "setting", "client", "round", "split", "metric")
    if ours.num_rows != theirs.num_rows or ours.column_names != theirs.column_names:
        return f"it has {theirs.num_rows} rows, and here {ours.num_rows}"
    for mine, other in zip(ours.to_pylist(), theirs.to_pylist(), strict=True):
        if repr(mine) != repr(other):
            place = ", ".join(f"{key} {other[key]}" for key in keys if other[key] is not None)
            return f"{place}: {other['value']!r} in the archive, {mine['value']!r} here"
    return "its columns are of other types here"


def _versions(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Behind a difference that other packages, or sources of what is below, may have made."""
    now, then = ours.get("versions", {}), theirs.get("versions", {})
    other = [f"{name} {then.get(name)}" for name in now if now[name] != then.get(name)]
    below = {source.get("digest") for source in theirs.get("behind", ())} - {ours["digest"]}
    other += ["local models or data of other sources"] if below else []
    return f" (it was computed with {', '.join(other)}; here these are others)" if other else ""


# ------------------------------------------------------------------------------------- entering


@dataclass(frozen=True)
class _Board:
    """A leaderboard that an entry is to stand on, the entry's exhibits there, and its folder."""

    version: str
    keys: list[str]
    place: Path

    @property
    def reports(self) -> Path:
        return self.place.parents[2]


def _boards(entry: Submission, file: ExhibitFile, reports: Path) -> list[_Board]:
    """Errors: FedreproError where it cannot be put there, which is told before it is computed."""
    scale, boards = reports.resolve() / entry.scale, []
    if not scale.is_dir():
        raise FedreproError(f"{scale} is no folder of reports: draw the board there")
    for version in file.boards:
        keys = [key for key in entry.keys if key.partition("/")[2].startswith(f"{version}-")]
        if not keys:
            continue
        place = entries_folder(scale, entry.paper, version) / entry.method.name
        boards.append(_Board(version, keys, place))
        drawn = scale / entry.paper / f"{version}.csv"
        labels = (
            set(read_csv(drawn.read_text(encoding="utf-8"))["method"]) if drawn.is_file() else set()
        )
        if (place / VERDICT).exists():
            labels.discard(read_json_of(place / VERDICT, {"label": str})["label"])
        if entry.label in labels:
            raise label_taken(entry.label)
    if not boards:
        raise FedreproError(f"{', '.join(entry.keys)} are parts of no leaderboard")
    return boards


def _enter(
    archive: Path,
    submitted: Submitted,
    file: ExhibitFile,
    plan: Plan,
    verdict: Verdict,
    board: _Board,
) -> list[Path]:
    """Put the exhibits of an entry beside the leaderboard that they are parts of."""
    entry, place = submitted.entry, board.place
    with _whole_or_not(place):
        for key in board.keys:
            with contextlib.chdir(submitted.folder):
                exhibit_stage.run(key, plan, place / key)
        shutil.copyfile(archive, place / ARCHIVE)
        content = {
            "kind": "verdict",
            "schema": SCHEMA_VERSION,
            "status": verdict.status,
            "label": entry.label,
            "by": entry.by,
            "archive": submitted.sha256,
            "exhibits": board.keys,
            "runs": verdict.runs,
            "computed": verdict.computed,
            "isolated": verdict.by,
            "origin": origin(),
        }
        write_json(place / VERDICT, content)
        return [place, *write_board(file, board.version, entry.scale, board.reports)]


@contextlib.contextmanager
def _whole_or_not(place: Path) -> Iterator[None]:
    """A new folder for an entry; if the body fails, what was there before is there again."""
    with temporary_folder(place.parents[2]) as aside:
        if place.exists():
            place.rename(aside / "before")
        place.mkdir(parents=True)
        try:
            yield
        except BaseException:
            shutil.rmtree(place)
            if (aside / "before").exists():
                (aside / "before").rename(place)
            elif not any(place.parent.iterdir()):
                place.parent.rmdir()
            raise
