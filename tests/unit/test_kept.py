"""What no rewriting may change: every recorded table, byte for byte, and the commands for people.

After a change that is meant to alter tables, write the list again and name them in its message:

    python tests/unit/test_kept.py
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import typer
from findings import RECORD, ROOT

from fedrepro.cli.app_and_general_commands import app
from fedrepro.numbers.exhibit_files import open_exhibit
from fedrepro.planning.config_files import load_config, load_exhibits
from fedrepro.planning.plan import Plan
from fedrepro.record.record_entries_and_leaderboards import drawn_keys
from fedrepro.stages.figures_claims_and_pages import _require_all

SUMS = Path(__file__).with_name("record.sha256")  # as sha256sum writes it
COMMANDS = (
    *("bench", "check", "check-method", "combine", "compare", "data fetch", "data list"),
    *("doctor", "documents", "draw graph", "draw partition", "evaluate", "exhibits", "methods"),
    *("plan", "recommend", "record", "redraw", "results", "site", "start", "submit", "verify"),
)


def sums() -> str:
    """A line for each csv of the record."""
    paths = sorted(path.relative_to(ROOT).as_posix() for path in RECORD.rglob("*.csv"))
    digests = (hashlib.sha256((ROOT / path).read_bytes()).hexdigest() for path in paths)
    return "".join(f"{digest}  {path}\n" for digest, path in zip(digests, paths, strict=True))


def test_recorded_tables_have_their_bytes():
    written, found = (text.splitlines() for text in (SUMS.read_text(), sums()))
    changed = {line.partition("  ")[2] for line in set(written) ^ set(found)}
    assert not changed, "python tests/unit/test_kept.py writes the list again"


@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_recorded_tables_have_the_methods_points_and_trials_of_their_configuration(scale: str):
    """With other ones it cannot be drawn again."""
    plan = Plan(load_config(), load_exhibits(), scale)
    keys = drawn_keys(RECORD, scale)
    assert keys
    for key in keys:
        numbers = open_exhibit(RECORD / scale, key, scale).table(".csv")
        _require_all(plan.exhibit(key), numbers, scale)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_stay(command: str):
    found = typer.main.get_command(app)
    for word in command.split():
        found = found.commands[word]
    assert not found.hidden


if __name__ == "__main__":
    SUMS.write_text(sums())
