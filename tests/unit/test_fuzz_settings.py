"""Odd settings and arguments end in one sentence: config, exhibits, YAML, tokens, commands.

More of it: `pytest tests/unit/test_fuzz_*.py --hypothesis-profile long --hypothesis-seed 1`.
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from fuzz import done_or_said, mutated, some, spoiled
from hypothesis import event, example, given
from hypothesis import strategies as st
from synthetic import ROOT, draw, workplace

from fedrepro.cli.app_and_general_commands import app
from fedrepro.cli.main import FAULT, main
from fedrepro.core.registry import KINDS, parse_token
from fedrepro.drawings import lines_and_layout as draw_module
from fedrepro.planning.config_files import SCALES, Config, load_exhibits, merge, validated
from fedrepro.planning.plan import Plan
from fedrepro.record.site.pages import paper_page
from fedrepro.record.site.report_data import read_reports

__all__ = ["workplace"]

WHOLE = yaml.safe_load(load_exhibits()["pfnm"].as_yaml())
NAMES = ("figure-2a", "figure-2", "s-figure-2a", "s-figure-3b", "s-figure-4a", "matching-or-size")
EXHIBITS = {**WHOLE, "exhibits": {name: WHOLE["exhibits"][name] for name in NAMES}}
CONFIG = yaml.safe_load((ROOT / "config/config.yaml").read_text())
SMALL = {"clients_per_job": 1, "trials_per_job": 1}


def written(values: object) -> str:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(values, Dumper=dumper))


def planned(folder: Path, text: str | bytes, scale: str, granularity: dict) -> Plan:
    path = folder / "pfnm.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    plan = Plan(Config(granularity=granularity), load_exhibits(folder), scale)
    for exhibit in plan.exhibits.values():
        plan.metrics_files(exhibit)
        assert exhibit.settings.model_dump_json()
        assert {*exhibit.swept, *exhibit.shown}.isdisjoint(["method"])
    for run, trials in (one for e in plan.exhibits.values() for one in e.trials.items()):
        if run.every is None and run.scenario and run.scenario.clients < 100:
            for block in plan.blocks(trials)[:5]:
                assert plan.job(plan.run(run, block)).models
    return plan


@some(150)
@given(mutated(EXHIBITS), st.sampled_from(SCALES), st.sampled_from([{}, SMALL]))
def test_odd_exhibits_are_planned_or_refused_with_a_sentence(tmp_path, values, scale, granularity):
    done_or_said(lambda: planned(tmp_path, written(values), scale, granularity))


DEFAULTS = {k: v for k, v in EXHIBITS["defaults"].items() if k != "at"}
TINY = {**EXHIBITS, "defaults": merge(DEFAULTS, EXHIBITS["defaults"]["at"]["tiny"])}
DRAWINGS = [
    "accuracy-and-size", "accuracy-close-up", "accuracy-against-rounds", "accuracy-against-size",
    "heat-maps", "lines", "table",
]  # fmt: skip
SWEEPS = [
    {}, {"partition.clients": [2]}, {"partition.clients": [2, 3], "model.hidden": [[5], [5, 5]]},
    {"training.lr": [0.01, 0.1]}, {"model.hidden": [5, [5, 5]]}, {"model.hidden": [[5, 6], [6, 5]]},
]  # fmt: skip
EXTRA = [
    {"name": "pfnm", "label": "shown", "sigma2": [1, 2], "show": ["sigma2"]},
    {"name": "pfnm", "label": "no cap", "count_cap": [None, 3], "show": ["count_cap"]},
    {"name": "pfnm", "label": "order", "order": ["random", "fixed"], "show": ["order"]},
    {"name": "downpour_sgd", "label": "r", "rounds": [2, 3], "show": ["rounds"]},
    {"name": "downpour_sgd", "label": "chosen", "rounds": [2, 3], "choose": "pooled_train"},
    {"name": "pruned_concatenation", "label": "$a_b$\nü", "reference": True},
]


@st.composite
def drawn_otherwise(draw: st.DrawFn) -> tuple[str, dict]:
    name = draw(st.sampled_from(NAMES))
    own = {k: v for k, v in copy.deepcopy(EXHIBITS["exhibits"][name]).items() if k != "at"}
    if draw(st.booleans()):
        own["drawing"] = draw(st.sampled_from(DRAWINGS))
    if draw(st.booleans()):
        own["sweep"] = draw(st.sampled_from(SWEEPS))
    if draw(st.booleans()):
        known = EXHIBITS["defaults"]["methods"]
        own["methods"] = draw(st.lists(st.sampled_from(known + EXTRA), min_size=1, max_size=3))
    for case in own.get("cases", {}).values():
        case.pop("dataset", None)
    return name, {**TINY, "exhibits": {name: own}}


@pytest.fixture
def without_png(monkeypatch):
    image_of = draw_module.image_of
    monkeypatch.setattr(
        draw_module, "image_of", lambda *given: image_of(*given) if ".svg" in given else b""
    )


@some(30)
@given(drawn_otherwise())
def test_what_can_be_planned_can_be_drawn_and_shown(workplace, without_png, given):
    name, values = given
    folder = workplace / "exhibits"
    folder.mkdir(exist_ok=True)
    plan = done_or_said(lambda: planned(folder, written(values), "tiny", {}))
    if plan is None or done_or_said(lambda: plan.exhibit(f"pfnm/{name}")) is None:
        return
    draw(plan, f"pfnm/{name}")
    (paper,) = read_reports(Path("reports/tiny"), "tiny", [f"pfnm/{name}"]).papers
    paper_page(paper)


INSERTED = [
    "\t", "\0", "- ", ": ", "[", "{", "&a ", "*a", "!!python/object:os.system ", "!!binary x",
    "2001-99-99", "1:99:99", "0x", ".nan", "|", ">", '"', "'", "%YAML 9.9\n", "---\n", "? ", "<<: ",
    "!!timestamp x", "!!int x", "!!float x", "!!set ", "!!omap ", "1e999",
]  # fmt: skip


@st.composite
def with_a_word(draw: st.DrawFn) -> bytes:
    lines = yaml.safe_dump(EXHIBITS).splitlines()
    at = draw(st.integers(0, len(lines) - 1))
    kept = lines[at].partition(": ")[0] + ": " if draw(st.booleans()) else ""
    lines[at] = kept + draw(st.sampled_from(INSERTED))
    return "\n".join(lines).encode()


@some(190)
@given(spoiled(yaml.safe_dump(EXHIBITS).encode()) | with_a_word(), st.sampled_from(SCALES))
def test_a_spoiled_yaml_file_is_planned_or_refused_with_a_sentence(tmp_path, text, scale):
    done_or_said(lambda: planned(tmp_path, text, scale, {}))


@some(150)
@given(mutated(CONFIG), spoiled((ROOT / "config/config.yaml").read_bytes()))
def test_an_odd_config_is_read_or_refused_with_a_sentence(tmp_path, values, text):
    done_or_said(lambda: validated(Config, values, "x") if isinstance(values, dict) else None)


TOKENS = [
    "dirichlet+alpha~0.5+clients~10", "pfnm+sigma2~0.01@0.05@1", "mlp+hidden~50@50", "natural",
    "adam+epochs~2+lr~0.001", "cifar10+features~convnet+validation~5000", "label_lists+lists~0-1@2",
    "ham10000+features~convnet.epochs-20", "digits", "convnet+epochs~20",
]  # fmt: skip
LETTERS = st.text(st.sampled_from("abcdefmlp0123456789._-+~@;=/, üé\0\n"), max_size=30)


@some(600)
@given(st.sampled_from(list(KINDS)), st.sampled_from(TOKENS), LETTERS, st.integers(0, 40))
def test_an_odd_token_is_read_or_refused_with_a_sentence(kind, token, letters, at):
    for text in (letters, token[:at] + letters + token[at:], token[:at] + letters):
        spec = done_or_said(lambda: parse_token(kind, text))  # noqa: B023
        if spec is not None:
            assert parse_token(kind, spec.token) == spec


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
LEFT_OUT = {("documents",): {"check"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
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
        assert said.splitlines()[-1].startswith("fedrepro: "), (line, said)
    event(f"status {status}")


@pytest.mark.long
@some(150)
@given(lines())
@example(["verify", "", "--runs", 5000 * "9"])  # more digits than Python makes a number of
def test_bad_arguments_of_commands(folder, line):
    said_or_done(folder, line)
