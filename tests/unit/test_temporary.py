"""Temporary folders: gone with their process, or with the next one if it was killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from fedrepro.core import artifacts
from fedrepro.core.artifacts import TEMPORARY, remove_left, temporary_folder
from fedrepro.core.errors import FedreproError

CODE = """
import time
from fedrepro.core.artifacts import temporary_folder
with temporary_folder() as folder:
    (folder / "half").write_text("half")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_what_a_killed_process_left_goes_at_the_next_start(place):
    words = [sys.executable, "-c", CODE]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as other:
        folder = other.stdout.readline().strip()
        with temporary_folder() as own:  # that of a process that lives stays
            assert sorted(os.listdir(place)) == sorted([os.path.basename(folder), own.name])
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert os.listdir(folder) == ["half"]
    with temporary_folder() as own:
        assert os.listdir(place) == [own.name]
    assert os.listdir(place) == []


def test_nothing_makes_temporary_folders_of_its_own():
    """They would stay if their process is killed."""
    made = re.compile(r"TemporaryDirectory|NamedTemporaryFile|mkdtemp|mkstemp")
    sources = Path(artifacts.__file__).parents[1].rglob("*.py")
    found = [path.name for path in sources if made.search(path.read_text())]
    assert found == ["artifacts.py"]


def test_what_is_no_folder_or_of_others_stays(place, monkeypatch):
    (place / f"{TEMPORARY}file").write_text("x")
    for name in ("elsewhere", f"{TEMPORARY}theirs"):
        (place / name).mkdir()
    (place / f"{TEMPORARY}link").symlink_to("elsewhere")
    before = set(os.listdir(place))
    with monkeypatch.context() as other:
        other.setattr(artifacts.os, "getuid", lambda: os.geteuid() + 1)
        remove_left()
    assert set(os.listdir(place)) == before
    remove_left()
    assert set(os.listdir(place)) == before - {f"{TEMPORARY}theirs"}


@pytest.mark.parametrize("moment", ["before it is opened", "before it is locked"])
def test_a_folder_that_another_took_for_left_is_made_anew(moment, monkeypatch):
    made = []

    def hurried(**given):
        made.append(mkdtemp(**given))
        if len(made) == 2:
            monkeypatch.undo()
        elif moment == "before it is opened":
            os.rmdir(made[0])
        else:
            held = os.open
            monkeypatch.setattr(
                artifacts.os, "open", lambda *words: (held(*words), os.rmdir(made[0]))[0]
            )
        return made[-1]

    mkdtemp = tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", hurried)
    with temporary_folder() as own:
        assert str(own) == made[1]


def test_without_a_place_there_is_a_sentence(monkeypatch):
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(FedreproError, match="no temporary folder can be made"), temporary_folder():
        pass


def test_no_file_stays_open_and_it_may_be_elsewhere(place):
    def opened():
        return len(os.listdir("/proc/self/fd"))

    (place / f"beside/{TEMPORARY}left").mkdir(parents=True)
    before = opened()
    for _ in range(3):
        with temporary_folder(place / "beside") as own:
            assert list((place / "beside").iterdir()) == [own]
            assert opened() == before + 1
    assert opened() == before
