"""Stage board: a leaderboard from its exhibits."""

from __future__ import annotations

from pathlib import Path

from fedrepro.core.errors import unknown
from fedrepro.planning.config import load_exhibits
from fedrepro.record.leaderboards import parts_in, write_board
from fedrepro.stages.common import log


def run(key: str, scale: str, reports: Path, out: Path) -> None:
    """Write the files of a leaderboard, such as arena/1, from its exhibits in `reports`."""
    version = key.partition("/")[2]
    files = load_exhibits()
    known = {f"{name}/{board}": file for name, file in files.items() for board in file.boards}
    if key.partition("/")[0] in files.unread:
        raise files.unread[key.partition("/")[0]].error
    if key not in known:
        raise unknown("leaderboard", key, known)
    write_board(known[key], version, scale, reports, out)
    count = len(parts_in(known[key], version, scale, reports))
    log(f"{key}: from {count} {'exhibit' if count == 1 else 'exhibits'}")
