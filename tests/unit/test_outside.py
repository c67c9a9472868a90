"""Components outside the package: a file that is named, or a package that declares them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from partitioned import data_of, examples_of
from small_exhibits import file_of, small

from fedrepro.cli import workflow_and_slurm
from fedrepro.cli.main import main, name_configured
from fedrepro.core import plugins, provenance, registry
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.core.source_digests import digest_of_file
from fedrepro.data.assignment import Assignment
from fedrepro.data.partition_files import _require_sound, build_partition
from fedrepro.drawings.figure_layout import figure, rules
from fedrepro.planning.config import Config
from fedrepro.planning.plan import Plan

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "adding-a-method.md").read_text()
MEDIAN = re.findall(r"```python\n(.*?)```", PAGE, re.S)[0]
(MAIN_CLASS,) = re.findall(r'\n(    """Clients with main classes.*?\n)\n- `examples`',
                           (DOCS / "partitions.md").read_text(), re.S)  # fmt: skip


@pytest.fixture
def named(tmp_path, monkeypatch):
    """Writes a file and names it; what it registered is forgotten after the test."""

    def name(text, file="mine.py"):
        path = tmp_path / file
        if text is not None:
            path.write_text(text)
        monkeypatch.setenv(plugins.NAMED, str(path))
        return str(path)

    monkeypatch.setenv(plugins.NAMED, "")
    yield name
    monkeypatch.setenv(plugins.NAMED, "")
    assert not {"median", "main_class"} & {*registry.components("method"), *partitions()}


def partitions():
    return registry.components("partition")


def test_a_named_file_is_found_and_says_where_it_came_from(named):
    path = named(MEDIAN)
    item = registry.components("method")["median"]
    assert item.file == path
    assert item.version == f"1-{digest_of_file(path)}"
    before = provenance.file_of(item)
    Path(path).write_text(MEDIAN + "# changed\n")  # what was loaded computes, not what is there now
    assert provenance.file_of(item) == before


EXAMPLES = examples_of(np.arange(90) % 3)
OWN_PARTITION = """
import numpy as np
from fedrepro.core.registry import register
from fedrepro.core.spec import Arg
from fedrepro.data.assignment import Assignment

@register("partition", "own_cut", version=1, title="t")
def own_cut(examples, rng):
    owner = np.arange(len(examples)) % 3
    return {made}
"""


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("Assignment(owner, 3)", "'own_cut' makes 3 clients, and 1 were planned: let it have"),
        ("Assignment(owner[:-1], 3)", "gives owners int64 (89,) for 90 training examples"),
        ("Assignment(owner / 1, 3)", "gives owners float64 (90,)"),
        ("Assignment(owner, 2)", "gives owners from 0 to 2 for 2 clients: let them be from 0 to 1"),
        ("examples.label", "mine.py, line 10, `return examples.label`: AttributeError: 'Trai"),
        ("owner", "returns a ndarray: let it return Assignment, in mine.py"),
    ],
)
def test_a_partition_of_ones_own_that_cannot_be_is_one_sentence(named, made, said):
    named(OWN_PARTITION.replace("{made}", made))
    spec = partitions()["own_cut"].spec()
    with pytest.raises(FedreproError, match=re.escape(said)):  # noqa: PT012
        split = spec.component.make(Assignment, EXAMPLES, RngKey(0))
        _require_sound(split, split, spec, 0, 90)


@pytest.mark.parametrize("at_head", [False, True])
@pytest.mark.parametrize("opened", ["np.load('{path}')", "Path('{path}').read_bytes()"])
def test_a_partition_of_ones_own_declares_the_file_that_it_reads(named, tmp_path, opened, at_head):
    """A change of the file is a change of the partition; without `reads` nobody would see it."""
    path = tmp_path / "owners.npy"
    np.save(path, np.arange(90) % 3)
    opened = opened.replace("{path}", str(path))
    text = "from pathlib import Path\nfrom fedrepro.data.user_data import input_checksum\n"
    text += OWN_PARTITION.replace("{made}", "Assignment(owner, 3)")
    place = "@register" if at_head else "    owner"
    text = text.replace(place, f"{place[: -len(place.strip())]}{opened}\n{place}", 1)
    named(text)
    told = r"reads .*owners\.npy and does not say so.* add to its"
    with pytest.raises(FedreproError, match=told):
        partitions()["own_cut"].make(Assignment, EXAMPLES, RngKey(0))
    declared = f"title='t', reads=lambda values: input_checksum(Path('{path}'))"
    named(text.replace('title="t"', declared), "other.py")
    spec = partitions()["own_cut"].spec()
    spec.component.make(Assignment, EXAMPLES, RngKey(0))
    before = spec.resolved
    np.save(path, np.arange(90) % 2)
    assert spec.resolved != before


@pytest.mark.parametrize("draws", ["np.random", "rng.stream('own')"])
def test_a_partition_of_ones_own_is_drawn_from_its_stream(named, draws):
    text = OWN_PARTITION.replace("{made}", f"Assignment({draws}.permutation(owner), 3)")
    named(text.replace('title="t"', 'title="t", clients=lambda values: 3'))
    spec, prepared = partitions()["own_cut"].spec(), data_of(np.arange(90) % 3, np.arange(9) % 3)
    if draws == "np.random":
        with pytest.raises(FedreproError, match="other owners when it is drawn once more"):
            build_partition(spec, prepared, range(1), 0)
    else:
        build_partition(spec, prepared, range(1), 0)


def test_a_file_of_several_kinds_can_be_planned(named):
    partition = "\n".join(line[4:] for line in MAIN_CLASS.splitlines())
    named(MEDIAN + partition.replace("from __future__ import annotations", ""))
    settings = {"partition": {"name": "main_class"}, "methods": [{"name": "median"}]}
    plan = Plan(Config(), {"small": file_of(**settings)}, "quick")
    job = plan.job(str(Path(plan.metrics_files(plan.exhibit("small/x"))[0]).parent))
    assert job.scenario.partition.token == "main_class+clients~2"
    assert job.specs["method"].name == "median"


def test_a_drawing_of_the_page_is_planned_refused_and_drawn(named):
    (bars,) = re.findall(r"```python\n(.*?)```", (DOCS / "adding-an-exhibit.md").read_text(), re.S)
    named(bars, "bars.py")
    asked = {"name": "bars", "width": 0.5}
    with pytest.raises(FedreproError, match="bars are drawn at one point, not at 2"):
        small(drawing=asked)
    with pytest.raises(FedreproError, match="drawing bars: 'width' is 2"):
        small(drawing={"name": "bars", "width": 2})
    exhibit = small(drawing=asked, sweep={"partition.clients": [2]})
    row = {"clients": 2, "method": "A", "metric": "accuracy", "split": "test", "mean": 0.75}
    with rules():
        (axes,) = figure(exhibit, pd.DataFrame([row])).axes
    assert [(bar.get_width(), bar.get_height()) for bar in axes.patches] == [(0.5, 0.75)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, r"mine\.py is missing: write it, or take it out"),
        ("x", "mine.txt is not a Python file"),
        ("def (", r"mine\.py cannot be loaded: line 1 is not Python"),
        ("x = 1\nimport nothing_like_it\n", r"mine\.py, line 2, `import nothing_like_it`: ModuleN"),
        ("x = 1\n", r"mine\.py has no component: decorate"),
        (MEDIAN.replace('"median"', '"average"'), r"two method components are named 'average', in"),
        (MEDIAN.replace("label=", "needs={'all'}, label="), r"mine\.py: method 'median' needs"),
        (MEDIAN.replace("label=", "models='x', label="), "median': `models` .*{'x'}"),
        (MEDIAN.replace("label=", "evaluate='x', label="), r"median': `evaluate` .*\('x',\)"),
        (MEDIAN.replace("label=", "grid={'a': 'xy'}, label="), r"`a` takes several, not one"),
        (
            OWN_PARTITION.replace('"partition"', '"dataset"').replace('"t"', '"t", files="raw.gz"'),
            r"dataset 'own_cut': `files` takes several, not one text: write \('raw.gz',\)",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_a_sentence_each_time(named, text, told):
    named(text, "mine.txt" if text == "x" else "mine.py")
    average = registry._found["method"]["average"]
    for _ in range(2):
        with pytest.raises(FedreproError, match=told):
            registry.components("method")
    assert registry._found["method"]["average"] is average


def test_an_installed_package_declares_a_module(named, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    info = tmp_path / "mine-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: mine\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[fedrepro.components]\nmine = my_methods\n")
    monkeypatch.setattr(registry, "_installed", [])
    with pytest.raises(FedreproError, match=r"mine declares components in my_methods, which cann"):
        registry.components("method")
    (tmp_path / "my_methods.py").write_text(MEDIAN)
    try:
        assert registry.components("method")["median"].fn.__module__ == "my_methods"
    finally:
        del registry._found["method"]["median"]


def test_the_configuration_names_files_to_commands_and_jobs(named, tmp_path, monkeypatch, capsys):
    path = named(MEDIAN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(plugins.NAMED)
    Path("config").mkdir()
    for text in ("", "scale: quick", "components: [", "components: 3", "- components"):
        if text:  # at first no configuration is here
            Path("config/config.yaml").write_text(text)
        name_configured()
        assert plugins.NAMED not in os.environ
    capsys.readouterr()
    Path("config/config.yaml").write_text("components: [mine.py]\ncomponents: [other.py]\n")
    assert main(["list", "methods"]) == 0
    assert "no components are read: the key 'components' stands twice" in capsys.readouterr().err
    Path("config/config.yaml").write_text("components: [mine.py]\n")
    assert main(["list", "methods"]) == 0
    assert "median" in capsys.readouterr().out
    name_configured()  # told already
    for variable in ("FEDREPRO_MIRROR", "FEDREPRO_CHECKPOINT_SECONDS"):
        monkeypatch.setenv(variable, "")
    workflow_and_slurm.export_settings(
        "", 20.0
    )  # the environment stays where nothing is configured
    assert plugins.configured_files() == ("mine.py",)
    workflow_and_slurm.export_settings("", 20.0, [path, "more.py"])
    # each file once, however it is written
    assert plugins.configured_files() == ("mine.py", "more.py")
