"""Bad arguments of every command: it does its work or says in one sentence what is wrong."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from fuzz import some
from hypothesis import event, example, given
from hypothesis import strategies as st

from fedrepro.cli.app import app
from fedrepro.cli.job import COMPUTING, DRAWING
from fedrepro.cli.main import FAULT, main

ROOT = Path(__file__).parents[2]
WORDS = [
    "", " ", "/", ".", "..", "-", "x", "a/b", "a/b/c", "../x", "quik", "tiny", "ü", "\udcff", "\n",
    "+", "~", "@", "a+b~c", "a=b", "=", "a=", "pfnm", "pfnm+sigma2~x", "pfnm/figure-2a", "pfnm/",
    "average", "average+", "iid+clients~2", "pooled", "digits", "digits+test~1600", "digits+",
    "ring", "star+weights~uniform", "mlp+hidden~3", "adam+epochs~1",
    "reports/tiny/pfnm/figure-2a.svg", "reports", "reports/x.svg", "0", "1", "-1", "3",
    "1.5", "nan", "inf", "1e999", "0-1", "1-0",
    "0-1:1", "1,2", "auto", "9" * 30, "9" * 5000, f"0-{'9' * 30}", f"0-1:{'9' * 5000}", "y" * 300,
    "y" * 5000, "here.pt", "here.csv", "there.svg", "folder", "folder/x.svg", "here.csv/x.svg",
    "link.svg", "config/config.yaml", "config",
]  # fmt: skip
PIPES = ["pipe", "pipe.svg", "pipe.pt"]  # that nobody writes to, or reads from
# what would fetch from the network, or measure for minutes
LEFT_OUT = {("data", "fetch"): {"everything"}, ("documents",): {"check"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A working folder with little in it."""
    made = tmp_path_factory.mktemp("commands")
    (made / "config").mkdir()
    for name in ("config.yaml", "datasets.csv"):
        shutil.copy(ROOT / "config" / name, made / "config" / name)
    (made / "folder").mkdir()
    for name in ("here.pt", "here.csv"):
        (made / name).write_text("1,2\n")
    (made / "link.svg").symlink_to("link.svg")
    for name in PIPES:
        os.mkfifo(made / name)
    return made


def commands(group: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list]]:
    """Every command with its parameters."""
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from commands(one, (*above, name))
        else:
            left_out = LEFT_OUT.get((*above, name), set())
            params = [p for p in one.params if p.name not in left_out | {"help"}]
            if params:
                yield (*above, name), params


COMMANDS = dict(commands(typer.main.get_command(app)))


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A command with what it needs, or not, and with some of its options."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    texts = st.sampled_from(WORDS if name[0] == "bench" else WORDS + PIPES)
    line = list(name)
    for param in COMMANDS[name]:
        if not draw(st.booleans() if not param.required else st.sampled_from([True] * 9 + [False])):
            continue
        if param.param_type_name == "option":
            line.append(param.opts[0])
        if getattr(param, "is_flag", False):
            continue
        count = draw(st.integers(1, 3)) if param.nargs == -1 else 1
        line += [draw(texts) for _ in range(count)]
    return line


KEYS = ("dataset", "partition", "method", "data", "raw", "out", "trials", "exhibit", "exhibits")
KEYS += ("scale", "reports", "paper", "board", "kind", "granularity", "seed", "file", "x")
VALUES = st.sampled_from(
    [*WORDS, None, True, 0, -1, 1.5, [], [0, 1], ["pfnm/figure-2a"], {}, {"name": "digits"}]
)


@st.composite
def jobs(draw: st.DrawFn) -> list[str]:
    """A job with some keys."""
    stage = draw(st.sampled_from([*COMPUTING, *DRAWING, "x"]))
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True))
    return ["job", json.dumps({"stage": stage, **{key: draw(VALUES) for key in keys}})]


def said_or_done(folder: Path, line: list[str]) -> None:
    out, error, usage = io.StringIO(), io.StringIO(), False
    with (
        contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(error)
    ):  # fmt: skip
        try:
            status = main(line)
        except SystemExit as leave:  # argparse, after a line of usage
            status, usage = int(str(leave.code)), True
    said = error.getvalue()
    assert status != FAULT, (line, said)
    assert status in (0, 1, 2), (line, said)
    assert "Traceback" not in said + out.getvalue()
    if status == 2 and not usage and line[:2] != ["check", "pfnm"]:
        last = said.splitlines()[-1]
        assert last.startswith("fedrepro: "), (line, said)
    event(f"status {status}")


@pytest.mark.long
@some(150)
@given(lines())
@example(["verify", "", "--runs", 5000 * "9"])  # more digits than Python makes a number of
def test_bad_arguments_of_commands(folder, line):
    said_or_done(folder, line)


@some(150)
@given(jobs())
def test_bad_keys_of_jobs(folder, line):
    said_or_done(folder, line)
