"""Write leaderboards from those of their tables that are computed, and from submitted methods."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from fedrepro.core.artifacts import SCHEMA_VERSION, corrupt_file_error, read_json
from fedrepro.core.errors import FedreproError
from fedrepro.drawings.leaderboard import pictures
from fedrepro.numbers.exhibit_files import ExhibitFiles, open_exhibit, write_files
from fedrepro.numbers.exhibit_tables import csv_text, read_csv
from fedrepro.numbers.leaderboard import (
    REPORTED,
    VERIFIED,
    board_data,
    board_rows,
    leaderboard,
    scenarios,
    seconds,
)
from fedrepro.planning.config import ExhibitFile

ENTRY, VERDICT = "entry.json", "verdict.json"  # in the folder of an entry


def parts_in(file: ExhibitFile, version: str, scale: str, reports: Path) -> list[str]:
    """Return the figures and tables (paper/name) of a leaderboard whose files are in `reports`."""
    keys = (f"{file.paper}/{name}" for name in file.parts(version, scale))
    return [key for key in keys if Path(f"{reports / key}.json").exists()]


def entries_folder(reports: Path, paper: str, version: str) -> Path:
    """Return the folder of methods that others submitted to a leaderboard, with results."""
    return reports / paper / f"{version}.entries"


def digests_of(folder: Path) -> dict[str, str]:
    """Return {file in the folder of a submitted method: its SHA-256}, without verdict.json."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != VERDICT)
    return {
        path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest() for path in files
    }


def entries_in(
    reports: Path, paper: str, version: str, scale: str
) -> list[tuple[str, ExhibitFiles]]:
    """Read the results of methods that others submitted to a leaderboard, at one `scale`.

    A submission is verified if its folder has a verdict.json of a check, else it is reported.

    Raises:
        FedreproError: if a submission is damaged, or was changed after its verdict.
    """
    entries: list[tuple[str, ExhibitFiles]] = []
    for path in sorted(entries_folder(reports, paper, version).glob(f"*/{ENTRY}")):
        folder, verdict = path.parent, path.with_name(VERDICT)
        verified = verdict.exists()
        if verified and read_json(verdict, {"files": dict})["files"] != digests_of(folder):
            raise corrupt_file_error(folder, "it is not what its verdict is of")
        keys = read_json(path, {"exhibits": list})["exhibits"]
        computed = VERIFIED if verified else REPORTED
        entries += [(computed, open_exhibit(folder, key, scale)) for key in keys]
    return entries


def write_boards(file: ExhibitFile, scale: str, reports: Path) -> list[Path]:
    """Write a paper's leaderboards that have a figure or table in `reports`; return their paths."""
    versions = [version for version in file.boards if parts_in(file, version, scale, reports)]
    return [path for version in versions for path in write_board(file, version, scale, reports)]


def write_board(
    file: ExhibitFile, version: str, scale: str, reports: Path, out: Path | None = None
) -> list[Path]:
    """Write the csv files, pictures and json of a leaderboard to `out`; return their paths.

    `file` is the configuration of the paper that has the leaderboard, and `version` the
    leaderboard's name. `scale` is tiny, quick or paper. `reports` has the figures and tables of
    this scale; the json names missing ones. `out` is the beginning of the files' paths, by default
    `<reports>/<paper>/<version>`. Pictures leave out methods whose results others submitted and
    nobody has verified.

    Raises:
        FedreproError: if none of the leaderboard's figures and tables is in `reports`.
    """
    board, present = file.boards[version], parts_in(file, version, scale, reports)
    keys = [f"{file.paper}/{name}" for name in file.parts(version, scale)]
    if not present:
        raise FedreproError(
            f"{reports} has none of the exhibits of {file.paper}/{version}: {', '.join(keys)}"
        )
    parts = [open_exhibit(reports, key, scale) for key in present]
    others = entries_in(reports, file.paper, version, scale)
    numbers = board_data(board, parts, others)
    rows = board_rows(numbers)
    known = [row for row in rows if row.method.computed != REPORTED]
    settings = board.model_dump(mode="json", exclude={"ground", "data"})
    tables = {".csv": leaderboard, ".scenarios.csv": scenarios, ".times.csv": seconds}
    texts = {suffix: csv_text(make(numbers, rows)).encode() for suffix, make in tables.items()}
    texts |= pictures(settings, read_csv(csv_text(leaderboard(numbers, known))))
    about = {
        "kind": "leaderboard",
        "schema": SCHEMA_VERSION,
        "key": f"{file.paper}/{version}",
        "scale": scale,
        "board": settings,
        "parts": present,
        "missing": [key for key in keys if key not in present],
        "without_score": [scene.name for scene in numbers.entries if scene not in numbers.scenes],
    }
    return write_files(str(out or reports / file.paper / version), about, texts)
