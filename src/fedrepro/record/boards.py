"""Leaderboards written from their exhibits, drawn or recorded, as far as these are there."""

from __future__ import annotations

from pathlib import Path

from fedrepro.core.artifacts import SCHEMA_VERSION, checksum_of, write_bytes, write_json
from fedrepro.core.errors import FedreproError
from fedrepro.drawings.board import pictures
from fedrepro.numbers.board import ground, leaderboard, rows_of, scenarios, seconds
from fedrepro.numbers.files import open_exhibit
from fedrepro.numbers.summary import csv_text, read_csv
from fedrepro.planning.config import ExhibitFile


def keys_of(file: ExhibitFile, version: str, scale: str) -> list[str]:
    """The exhibits of a leaderboard, as paper/name."""
    return [f"{file.paper}/{name}" for name in file.parts(version, scale)]


def parts_in(file: ExhibitFile, version: str, scale: str, reports: Path) -> list[str]:
    """Those of them that lie in a folder of a scale's exhibits."""
    keys = keys_of(file, version, scale)
    return [key for key in keys if Path(f"{reports / key}.json").exists()]


def write_boards(file: ExhibitFile, scale: str, reports: Path) -> list[Path]:
    """All leaderboards of a file of which a part is there."""
    there = [one for one in file.boards if parts_in(file, one, scale, reports)]
    return [path for version in there for path in write_board(file, version, scale, reports)]


def write_board(file: ExhibitFile, version: str, scale: str, reports: Path) -> list[Path]:
    """Write `<reports>/<paper>/<version>` .csv, .scenarios.csv, .times.csv, pictures and .json.

    reports: folder of a scale's exhibits; parts that are not there are named in the json. Pictures
    are made from the text of the two tables. Errors: FedreproError if no part is there.
    """
    board, keys = file.boards[version], keys_of(file, version, scale)
    there = parts_in(file, version, scale, reports)
    if not there:
        raise FedreproError(
            f"{reports} has none of the exhibits of {file.paper}/{version}: {', '.join(keys)}"
        )
    parts = [open_exhibit(reports, key, scale) for key in there]
    found = ground(board, parts, [key for key in keys if key not in there])
    rows = rows_of(found)
    table, single = csv_text(leaderboard(found, rows)), csv_text(scenarios(found, rows))
    told = board.model_dump(mode="json", exclude={"ground", "data"})
    texts = {
        ".csv": table.encode(),
        ".scenarios.csv": single.encode(),
        ".times.csv": csv_text(seconds(found, rows)).encode(),
        **pictures(told, read_csv(table), read_csv(single)),
    }
    base = reports / file.paper / version
    about = {
        "kind": "leaderboard",
        "schema": SCHEMA_VERSION,
        "key": f"{file.paper}/{version}",
        "scale": scale,
        "board": told,
        "parts": there,
        "missing": list(found.missing),
        "without_score": [scene.name for scene in found.entries if scene not in found.scenes],
        "files": {suffix: checksum_of(data) for suffix, data in texts.items()},
    }
    for suffix, data in texts.items():
        write_bytes(f"{base}{suffix}", data)
    write_json(f"{base}.json", about)
    return [Path(f"{base}{suffix}") for suffix in (*texts, ".json")]
