"""A mistake in a file of one's own is told as such: file, line, source line, and the trace."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

from fedrepro.cli import main as entry
from fedrepro.cli.main import FAULT, MENDABLE, main
from fedrepro.core import outside, registry

MINE = """
import helper_beside
from fedrepro.api import method

@method("mine", kind="one_shot")
def mine(clients, info, *, rng):
    \"\"\"Fail.\"\"\"
    return {made}
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Writes a method of one's own, and models to combine."""

    def write(made: str) -> list[str]:
        (tmp_path / "mine.py").write_text(MINE.replace("{made}", made))
        (tmp_path / "helper_beside.py").write_text("def half(x):\n    return x['half']\n")
        monkeypatch.setenv(outside.NAMED, str(tmp_path / "mine.py"))
        for client in range(2):
            model = torch.nn.Sequential(torch.nn.Linear(4, 3))
            torch.save(model.state_dict(), tmp_path / f"{client}.pt")
        models = [str(tmp_path / f"{client}.pt") for client in range(2)]
        return ["combine", "mine", *models, "--out", str(tmp_path / "out.pt")]

    monkeypatch.chdir(tmp_path)
    sys.modules.pop("helper_beside", None)
    yield write
    monkeypatch.setenv(outside.NAMED, "")
    registry.components("method")


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            "clients.tensor",
            "mine.py, line 8, `return clients.tensor`: AttributeError: 'LocalModels",
        ),
        (
            "helper_beside.half({})",
            "helper_beside.py, line 2, `return x['half']`: KeyError: 'half'",
        ),
        (
            "__import__('torch').ones(2) @ __import__('torch').ones(3)",
            "mine.py, line 8, `return __",
        ),
    ],
)
def test_it_is_mine_and_shows_my_line(own, capsys, made, told):
    command = own(made)
    assert main(command) == MENDABLE
    said = capsys.readouterr().err
    assert told in said
    assert "fault of the program" not in said
    assert main([*command, "--debug"]) == MENDABLE
    assert "Traceback" in capsys.readouterr().err


def test_a_job_keeps_the_trace_in_its_log(own, capsys, monkeypatch):
    command = own("clients.tensor")
    # a job differs from a command in its first word alone here
    monkeypatch.setattr(entry, "_there_or_here", lambda words: entry._here(command))
    assert main(["stage", "aggregate"]) == MENDABLE
    trace, _, sentence = capsys.readouterr().err.rpartition("fedrepro: ")
    assert trace.startswith("Traceback")
    assert re.search(r"mine\.py.*the log of the job", sentence)


def test_a_fault_of_the_package_stays_one(own, capsys, monkeypatch):
    command = own("clients.tensor")

    def broken(*_, **__):
        raise KeyError("ours")

    monkeypatch.setattr("fedrepro.own.combine.run", broken)
    assert main(command) == FAULT
    assert "this is a fault of the program (KeyError: 'ours'" in capsys.readouterr().err
    assert Path("mine.py").exists()
