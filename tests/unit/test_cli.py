"""The command line: what a person sees, and sentences for what can be corrected."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import ROOT, plan

from fedrepro.cli import snakemake_hooks_and_slurm
from fedrepro.cli.main import main
from fedrepro.core import errors
from fedrepro.core.registry import components
from fedrepro.planning.config_files import Config, load_exhibits
from fedrepro.planning.plan import Plan

pytestmark = pytest.mark.usefixtures("in_root")


def test_a_pipe_gets_whole_lines():
    """A command is copied, a table is searched: neither is cut where no terminal asks for it."""
    env, said = {**os.environ, "COLUMNS": "40"}, {}
    for name in ("list methods", "exhibits"):
        words = [sys.executable, "-m", "fedrepro", *name.split()]
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=env, check=True)
        said[name] = done.stdout
        assert "…" not in done.stdout
    for key, exhibit in plan("quick").exhibits.items():
        assert f"snakemake --cores 2 reports/quick/{key}{exhibit.suffix}\n" in said["exhibits"]
    rows = [line for line in said["list methods"].splitlines() if line.startswith("│")]
    named = {row.split("│")[1].strip(): row for row in rows}
    for name, item in components("method").items():
        assert item.meta["kind"].replace("_", "-") in named[name]
    assert "label_counts" in said["list methods"]
    assert "pooled_train" not in said["list methods"]  # choosing reads it, the method does not


def test_documents_says_whether_they_are_in_step(capsys, tmp_path, monkeypatch):
    assert main(["documents", "--check"]) == 0
    monkeypatch.chdir(tmp_path)
    assert main(["documents", "--check"]) == 1
    assert "stale: config/README.md" in capsys.readouterr().out
    assert main(["documents"]) == 0
    assert (tmp_path / "config/README.md").read_text() == (ROOT / "config/README.md").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["recrod"], "fedrepro: No such command 'recrod'"),
        (["compare"], "fedrepro: Missing argument"),
        (["compare", "pfnm/figure-2a", "--reports", "nowhere"], "make it with: snakemake"),
        (["plan", "arena/1"], "unknown exhibit 'arena/1'"),
        (["recommend", "--clients", "9", "--skew", "1", "--scale", "big"], "unknown scale 'big'"),
        (["draw", "partition", "iid+clients~2", "--trial", "9" * 30], "--trial"),
        (["job", "[1]"], "a job must be {"),
        (["job", '{"stage"'], "not valid json"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_and_exit_code_2(words, sentence, capsys):
    assert main(words) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "place", ["cli.app_and_general_commands.run_command", "cli.run_and_list.components"]
)
def test_an_interrupt_is_quiet(monkeypatch, capsys, place):
    """In a command typer makes another error of it."""

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"fedrepro.{place}", interrupted)
    assert main(["list", "methods"]) == 130
    assert capsys.readouterr().err.strip() == "fedrepro: stopped"


def test_a_fault_of_the_program_is_one_sentence_with_an_exit_status_of_its_own(monkeypatch, capsys):
    def broken(_words):
        raise ZeroDivisionError("of\nsomething")

    monkeypatch.setattr("fedrepro.cli.app_and_general_commands.run_command", broken)
    assert main(["list", "methods"]) == 70
    said = capsys.readouterr().err
    assert said.startswith("fedrepro: this is a fault of the program (ZeroDivisionError: of someth")
    assert "test_cli.py line " in said
    assert "`--debug`" in said
    assert said.count("\n") == 1
    assert main(["list", "methods", "--debug"]) == 70
    trace, last = capsys.readouterr().err.rsplit("\n", 2)[:2]
    assert trace.startswith("Traceback")
    assert said == f"{last}\n"


def test_a_reader_that_leaves_is_no_fault():
    read, write = os.pipe()
    os.close(read)
    code = (
        "import sys; from fedrepro.cli import main as entry\n"
        "entry._here = lambda words: print('long' * 1000) or 0\n"
        "sys.exit(entry.main(['x']))"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_the_command_is_found_without_an_activated_environment(monkeypatch):
    monkeypatch.setenv("PATH", "/somewhere")
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    for _ in range(2):
        snakemake_hooks_and_slurm.add_scripts_to_path()
    assert os.environ["PATH"] == f"{Path(sys.executable).parent}:/somewhere"


def test_a_terminal_and_the_log_of_a_job_get_those_letters_that_they_have():
    """A preloaded process opens the error stream of a job, and not as Python does."""
    code = (
        "import os, sys; from fedrepro.cli.main import main; main(['list', 'methods']); "
        "sys.stderr = os.fdopen(2, 'w'); sys.exit(main(['job', chr(181)]))"
    )
    env = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True)
    assert done.returncode == 2
    assert b"? cannot be read as jobs" in done.stderr
    assert done.stdout.isascii()
    assert b"?" in done.stdout


def test_a_job_that_the_system_killed_is_said(tmp_path, monkeypatch):
    said, at_exit = [], snakemake_hooks_and_slurm.atexit
    monkeypatch.setattr(at_exit, "register", lambda _, *lines, **__: said.append(lines))
    (tmp_path / "log").write_text(
        "Command 'fedrepro job x' died with <Signals.SIGKILL: 9>.\nfedrepro: x is wrong\n"
        "Command 'fedrepro job y' returned non-zero exit status 137.\n"
        "Command 'fedrepro job z' returned non-zero exit status 2.\n"
    )
    snakemake_hooks_and_slurm.repeat_errors(str(tmp_path / "log"))
    assert said == [(snakemake_hooks_and_slurm.KILLED, "fedrepro: x is wrong")]


def test_exhibits_of_a_paper_are_printed_as_a_file_to_change(monkeypatch, tmp_path, capsys):
    """Also where the shell has made that file, empty, before the command begins."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config/exhibits/pfnm.yaml"
    path.parent.mkdir(parents=True)
    path.touch()
    assert main(["exhibits", "--yaml", "pfnm"]) == 0
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    assert load_exhibits()["pfnm"].place == Path("config/exhibits/pfnm.yaml")
    assert "pfnm/figure-2a" in Plan(Config(), load_exhibits(), "tiny").exhibits
    assert main(["exhibits", "--yaml", "pfmn"]) == 2
    assert "unknown paper 'pfmn': did you mean 'pfnm'" in capsys.readouterr().err


def test_long_values_are_cut_and_an_unknown_name_gets_the_nearest_one():
    assert errors.printable("plain — text") == "plain — text"
    assert errors.printable("a\nb\x00c\x1b") == "a\\nb\\x00c\\x1b"
    assert str(errors.FedreproError("one\ntwo")) == "one\\ntwo"
    assert f"'{'y' * errors.SHOWN}'" in str(errors.unknown("method", "y" * errors.SHOWN, ["a"]))
    said = str(errors.unknown("method", "y" * (errors.SHOWN + 1), ["a"]))
    assert f"'{'y' * errors.SHOWN}…'" in said
    longest = "x" * (errors.SHOWN - 2)  # two marks around it
    assert errors.shown(longest) == f"'{longest}'"
    assert errors.shown(longest + "x") == f"'{longest}x…"
    assert errors.shown([1]) == "[1]"
    told = "unknown method 'averag' in a file: did you mean 'average'? known are average, pfnm"
    assert str(errors.unknown("method", "averag", ["pfnm", "average"], "a file")) == told
    assert str(errors.unknown("method", "zz", ["pfnm"])) == "unknown method 'zz': known are pfnm"
    assert str(errors.unknown("method", "zz", [])) == "unknown method 'zz': known are none"
    names = [f"name{i:02}" for i in range(errors.LISTED + 3)]
    assert "more" not in str(errors.unknown("method", "name", names[: errors.LISTED]))
    assert str(errors.unknown("method", "name", names)).endswith(" and 3 more")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("path", ["here/file", None])
def test_a_disk_that_takes_nothing_is_said_with_the_file_where_it_is_known(number, path):
    error = OSError(number, "said by the system", path) if path else OSError(number, "said")
    assert str(errors.sentence_for(error)) == str(errors.disk_error(error, path or "a file"))
    assert f"cannot write {path or 'a file'}" in str(errors.sentence_for(error))


def test_other_errors_are_of_a_file_of_memory_or_faults_of_the_innermost_frame():
    said = errors.sentence_for(OSError(errno.EACCES, "Permission denied", "here/file"))
    assert str(said) == "here/file cannot be used (permission denied); fix that and start again"
    for error in (OSError("without a number"), OSError(errno.EINTR, "interrupted")):
        assert errors.disk_error(error, "x") is None
    assert errors.sentence_for(OSError(errno.ECONNRESET, "Connection reset")) is None
    assert errors.sentence_for(ValueError("anything")) is None
    words = ("CUDA out of memory", "can't allocate memory", "std::bad_alloc")
    missed = OSError(errno.ENOMEM, "Cannot allocate memory")
    for error in (MemoryError(), missed, *map(RuntimeError, words)):
        told = f"there is not enough memory ({str(error) or 'none is left'}): choose"
        assert str(errors.sentence_for(error)).startswith(told)

    def inner():
        raise KeyError("a  name")

    with pytest.raises(KeyError) as raised:
        inner()
    line = inner.__code__.co_firstlineno + 1
    assert errors.arose(raised.value) == f"KeyError: 'a name', test_cli.py line {line}"
    assert errors.arose(KeyError()) == "KeyError"
