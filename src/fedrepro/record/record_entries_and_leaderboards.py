"""Keep measured results in reports/record, and write the leaderboards of a folder of results.

A scale is the size of experiments: tiny, quick or paper. Folders `source` and `target` have a
folder per scale; `reports` is the folder of one scale, such as reports/quick.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedrepro.core import checksummed_files as artifacts
from fedrepro.core.errors import FedreproError
from fedrepro.core.paper_files import claims_file, exhibits_file
from fedrepro.numbers import exhibit_files
from fedrepro.numbers.run_times import spent_by_stage, timings_of
from fedrepro.numbers.tables_and_selection import csv_text, read_csv
from fedrepro.planning.config_files import ExhibitFile, load_exhibits

REPORTS = Path("reports")
RECORD = REPORTS / "record"
ENTRY, VERDICT = "entry.json", "verdict.json"  # in the folder of an entry of a leaderboard
RUN = ("seconds", "cpu_seconds", "peak_bytes", "machine", "machines")


@dataclass(frozen=True)
class Recorded:
    """The files that `record` wrote, and warnings on unknown source code, run times or machines."""

    files: list[Path] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def drawn_keys(source: Path, scale: str) -> list[str]:
    """List the figures and tables (paper/name) whose metrics are in `<source>/<scale>`."""
    paths = sorted((source / scale).glob("*/*.metrics.parquet"))
    return [f"{path.parent.name}/{path.name.removesuffix('.metrics.parquet')}" for path in paths]


def record(
    scale: str, keys: Sequence[str] = (), source: Path = REPORTS, target: Path = RECORD
) -> Recorded:
    """Copy results from `<source>/<scale>` to `<target>/<scale>`, the folder of kept results.

    `keys` names figures and tables as paper/name; () means all. All files are read and checked
    before any is written, so that nothing is copied if one is missing or damaged. At the end the
    papers' claims are judged, and leaderboards written, from all kept results.
    """
    from fedrepro.numbers.verdicts.claim_verdicts import verdicts

    if not (keys := list(keys) or drawn_keys(source, scale)):
        said = f"{source / scale} holds no exhibit; make them with"
        raise FedreproError(f"{said}: snakemake --cores 2 reports/{scale}/index.html")
    recorded, folder = Recorded(), target / scale
    read = {key: read_drawn(scale, key, source, recorded.warnings) for key in keys}
    for key, kept in read.items():
        recorded.files.extend(exhibit_files.write_files(str(folder / key), *kept))
        files = exhibit_files.open_recorded(folder, key, scale)
        for suffix in set(exhibit_files.SUFFIXES) - set(files.suffixes):
            Path(f"{folder / key}{suffix}").unlink(missing_ok=True)  # a table's old image
    for paper in dict.fromkeys(key.partition("/")[0] for key in keys):
        if (published := claims_file(paper)).exists():
            own = [key for key in drawn_keys(target, scale) if key.startswith(f"{paper}/")]
            text = csv_text(verdicts(published, own, folder))
            recorded.files.extend(exhibit_files.write_claims(folder / paper / "claims.csv", text))
        if exhibits_file(paper).exists():
            file = load_exhibits()[paper]
            for version in file.boards:
                if parts_in(file, version, scale, folder):
                    recorded.files.extend(write_board(file, version, scale, folder))
    return recorded


def read_drawn(
    scale: str, key: str, source: Path, warnings: list[str]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read and check the files to keep of a figure or table; return its json, {suffix: bytes}.

    `key` is paper/name below `<source>/<scale>`. Added to the json are run times, machines, and csv
    files that have a header only. Doubts on source code and run times are appended to `warnings`.
    """
    files = exhibit_files.open_exhibit(source / scale, key, scale)
    every = {suffix: files.read(suffix) for suffix in files.suffixes}  # checked, also if not kept
    artifacts.read_table(f"{files.base}.metrics.parquet", "metrics")
    contents = {suffix: every[suffix] for suffix in exhibit_files.KEPT if suffix in every}
    blank = dict(files.about.get("blank", {}))
    for suffix in (".choice.csv", ".printed.csv"):
        if suffix in contents and contents[suffix].count(b"\n") == 1:
            blank[suffix] = contents.pop(suffix).decode()
    warnings.extend(_doubts(files.about))
    return {**files.about, "blank": blank, "run": _run(files, warnings)}, contents


def _doubts(about: Mapping[str, Any]) -> Iterator[str]:
    name = f"{about['key']} at scale {about['scale']}"
    drawn = ("drawn", about.get("drawn", about))  # an old json is of one origin
    for what, origin in (drawn, *(("computed", origin) for origin in about["computed"])):
        if origin["revision"] == "unknown" or origin["revision"].endswith("-dirty"):
            said = f"{name} was {what} at git revision {origin['revision']}"
            yield f"{said}: commit, then run it again, so that others can repeat it"
        if "changed_to" in origin:
            said = f"the source code changed while {name} was computed"
            then, now = origin["digest"][:12], origin["changed_to"][:12]
            yield f"{said} (from {then} to {now}): run it again"


def _run(files: exhibit_files.ExhibitFiles, warnings: list[str]) -> dict[str, Any]:
    """Return the dict of `spent_by_stage` with "machines", [dict]; note gaps in `warnings`."""
    if files.run:  # of kept results
        return {key: files.run[key] for key in RUN if key in files.run}
    about, key = files.about, files.about["key"]
    source = Path(files.base).absolute().parents[len(Path(key).parts)]
    # results lie next to a folder `reports` alone
    timings = timings_of(about, source.parent) if source.name == "reports" else []
    spent = spent_by_stage(timings)
    seconds = spent.get("seconds", {})
    if not seconds or ("aggregate" in seconds and "train" not in seconds):
        warnings.append(f"the run time of {key} is not recorded in full: timings are missing")
    known = [origin for origin in about["computed"] if "machine" in origin]
    machines = {json.dumps({"device": origin["device"], **origin["machine"]}) for origin in known}
    return {"seconds": seconds, **spent, "machines": [*map(json.loads, sorted(machines))]}


def parts_in(file: ExhibitFile, version: str, scale: str, reports: Path) -> list[str]:
    """List the tables (paper/name) of leaderboard `version` of `file` that exist in `reports`."""
    return [k for k in file.parts(version, scale) if Path(f"{reports / k}.json").exists()]


def entries_folder(reports: Path, paper: str, version: str) -> Path:
    """Return the folder of methods that others submitted to the leaderboard `paper`/`version`."""
    return reports / paper / f"{version}.entries"


def digests_of(folder: Path) -> dict[str, str]:
    """Return {file in the folder of a submitted method: its SHA-256}, without verdict.json."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != VERDICT)
    return {p.relative_to(folder).as_posix(): sha256(p.read_bytes()).hexdigest() for p in files}


def entries_in(
    reports: Path, paper: str, version: str, scale: str
) -> list[tuple[str, exhibit_files.ExhibitFiles]]:
    """Read the results of methods that others submitted to a leaderboard, at one `scale`.

    Returns pairs ("verified" or "reported", files of one table). A submission is verified if its
    folder has a verdict.json, the outcome of a check. FedreproError is raised if a submission is
    damaged, or was changed after its verdict.
    """
    from fedrepro.numbers.leaderboard import REPORTED, VERIFIED

    entries: list[tuple[str, exhibit_files.ExhibitFiles]] = []
    for path in sorted(entries_folder(reports, paper, version).glob(f"*/{ENTRY}")):
        folder, verdict, computed = path.parent, path.with_name(VERDICT), REPORTED
        if verdict.exists():
            computed = VERIFIED
            if artifacts.read_json(verdict, {"files": dict})["files"] != digests_of(folder):
                raise artifacts.corrupt_file_error(folder, "it is not what its verdict is of")
        keys = artifacts.read_json(path, {"exhibits": list})["exhibits"]
        entries += [(computed, exhibit_files.open_exhibit(folder, key, scale)) for key in keys]
    return entries


def write_board(
    file: ExhibitFile, version: str, scale: str, reports: Path, out: Path | None = None
) -> list[Path]:
    """Write the csv files, pictures and json of a leaderboard to `out`; return their paths.

    `version` is the leaderboard's name in `file`. `reports` must have at least one of its tables at
    `scale`; the json lists missing ones. `out` is the beginning of the files' paths, by default
    `<reports>/<paper>/<version>`. Pictures leave out submitted methods that nobody has verified.
    """
    from fedrepro.drawings.leaderboard import pictures
    from fedrepro.numbers import leaderboard as boards

    board, present = file.boards[version], parts_in(file, version, scale, reports)
    keys = file.parts(version, scale)
    if not present:
        said = f"{reports} has none of the exhibits of {file.paper}/{version}"
        raise FedreproError(f"{said}: {', '.join(keys)}")
    parts = [exhibit_files.open_exhibit(reports, key, scale) for key in present]
    numbers = boards.board_data(board, parts, entries_in(reports, file.paper, version, scale))
    rows = boards.board_rows(numbers)
    known = [row for row in rows if row.method.computed != boards.REPORTED]
    settings = board.model_dump(mode="json", exclude={"ground", "data"})
    tables = {".csv": boards.leaderboard, ".scenarios.csv": boards.scenarios}
    tables[".times.csv"] = boards.seconds
    texts = {suffix: csv_text(make(numbers, rows)).encode() for suffix, make in tables.items()}
    texts |= pictures(settings, read_csv(csv_text(boards.leaderboard(numbers, known))))
    about = {
        "kind": "leaderboard",
        "schema": artifacts.SCHEMA_VERSION,
        "key": f"{file.paper}/{version}",
        "scale": scale,
        "board": settings,
        "parts": present,
        "missing": [key for key in keys if key not in present],
        "without_score": [scene.name for scene in numbers.entries if scene not in numbers.scenes],
    }
    return exhibit_files.write_files(str(out or reports / file.paper / version), about, texts)
