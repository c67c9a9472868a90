"""Components outside the package: named, declared, and told in a sentence what is wrong."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import deque
from dataclasses import replace
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from partitioned import data_of, examples_of, rows_of
from problems import problem
from small_exhibits import file_of, small

from fedrepro.api import GlobalModel, Report
from fedrepro.cli import main as entry
from fedrepro.cli import snakemake_hooks_and_slurm
from fedrepro.cli.main import FAULT, MENDABLE, main, name_configured
from fedrepro.cli.snakemake_hooks_and_slurm import take_failed
from fedrepro.core import provenance, registry
from fedrepro.core import user_component_files as component_files
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.core.source_digests import digest_of_file
from fedrepro.data.client_assignment_and_skew import Assignment
from fedrepro.data.feature_extraction import represent
from fedrepro.data.partitions_populations_and_holdouts import _require_sound, build_partition
from fedrepro.drawings.lines_and_layout import figure, rules
from fedrepro.networks.predict import network_of
from fedrepro.numbers.trial_statistics import by_metric
from fedrepro.planning.config_files import Config
from fedrepro.planning.plan import Plan
from fedrepro.stages.aggregate import SharedPreparation, require_models, run_setting
from fedrepro.stages.data import prepare
from fedrepro.stages.job_log_results_gpu_lock import Failures
from fedrepro.stages.trial_rounds import TrialRounds
from fedrepro.stages.user_models.method_contract import methods_of
from fedrepro.training.mixing_matrices import weights_of

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
        monkeypatch.setenv(component_files.NAMED, str(path))
        return str(path)

    monkeypatch.setenv(component_files.NAMED, "")
    yield name
    monkeypatch.setenv(component_files.NAMED, "")
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
from fedrepro.data.client_assignment_and_skew import Assignment

@register("partition", "own_cut", version=1, title="t")
def own_cut(examples, rng):
    owner = np.arange(len(examples)) % 3
    return {made}
"""


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
    graph = text.replace('"partition"', '"graph"').replace("len(examples)", "examples")
    named(graph, "graph.py")
    with pytest.raises(FedreproError, match=told):
        weights_of(components("graph")["own_cut"].spec(), 3, RngKey(0))
    os.close(os.open(tmp_path / "seen", os.O_CREAT))
    with component_files.opened_files() as seen:  # not what is made anew, as torchvision does
        os.close(os.open(tmp_path / "made", os.O_RDWR | os.O_CREAT | os.O_EXCL))
        os.close(os.open(tmp_path / "seen", os.O_RDONLY))
    assert [Path(file).name for file in seen] == ["seen"]
    declared = f"title='t', reads=lambda values: input_checksum(Path('{path}'))"
    named(text.replace('title="t"', declared), "other.py")
    spec = partitions()["own_cut"].spec()
    spec.component.make(Assignment, EXAMPLES, RngKey(0))
    before = spec.resolved
    np.save(path, np.arange(90) % 2)
    assert spec.resolved != before


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("Assignment(owner, 3)", "'own_cut' makes 3 clients, and 1 were planned: let it have"),
        ("Assignment(owner[:-1], 3)", "gives owners int64 (89,): let them be (90,)"),
        ("Assignment(owner / 1, 3)", "gives owners float64 (90,)"),
        ("Assignment(owner.tolist(), 3)", "gives owners int64 (90,)"),
        ("Assignment(owner * 0, 1, noise=-np.ones(1))", "noise that is not an array of 1 varia"),
        ("Assignment(owner, 2)", "be (90,) and whole, from 0 to 1, or -1 for nobody"),
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


def test_a_file_of_several_kinds_can_be_planned_and_the_partition_of_the_page_works(named):
    partition = "\n".join(line[4:] for line in MAIN_CLASS.splitlines())
    named(MEDIAN + partition.replace("from __future__ import annotations", ""))
    settings = {"partition": {"name": "main_class"}, "methods": [{"name": "median"}]}
    plan = Plan(Config(), {"small": file_of(**settings)}, "quick")
    job = plan.job(str(Path(plan.metrics_files(plan.exhibit("small/x"))[0]).parent))
    assert job.scenario.partition.token == "main_class+clients~2"
    assert job.specs["method"].name == "median"
    spec, labels = parse_token("partition", "main_class+clients~5+share~0.8"), np.arange(2000) % 10
    table = build_partition(spec, data_of(labels, labels[:100]), range(2), 0)
    for trial in (0, 1):
        rows = [(client, i) for client, split, i in rows_of(table, trial) if split == "train"]
        assert sorted(i for _, i in rows) == list(range(2000))
        own = np.mean([labels[i] % 5 == client for client, i in rows])
        assert own == pytest.approx(0.8 + 0.2 / 5, abs=0.03)


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
        ("def (", r"mine\.py cannot be loaded: SyntaxError: .*line 1"),
        ("x = 1\nimport nothing_like_it\n", r"mine\.py, line 2, `import nothing_like_it`: ModuleN"),
        ("x = 1\n", r"mine\.py has no component: decorate"),
        (f"{MEDIAN}\nimport yaml\n", r"mine\.py: import yaml gives .*, not .*/yaml\.py: rename"),
        (MEDIAN.replace('"median"', '"average"'), r"two method components are named 'average', in"),
        (MEDIAN.replace("label=", "needs={'all'}, label="), r"mine\.py: unknown need 'all' in"),
        (MEDIAN.replace("label=", "models='x', label="), "median': `models` .*{'x'}"),
        (MEDIAN.replace("label=", "evaluate='x', label="), r"median': `evaluate` .*\('x',\)"),
        (MEDIAN.replace("label=", "grid={'a': 'xy'}, label="), r"`a` takes several, not one"),
        (
            OWN_PARTITION.replace('"partition"', '"dataset"').replace('"t"', '"t", files="raw.gz"'),
            r"dataset 'own_cut': `files` takes several, not one text: write \('raw.gz',\)",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_a_sentence_each_time(named, text, told, tmp_path):
    (tmp_path / "yaml.py").touch()  # the name of a module from elsewhere
    named(text, "mine.txt" if text == "x" else "mine.py")
    average = registry._found["method"]["average"]
    for _ in range(2):
        with pytest.raises(FedreproError, match=told):
            registry.components("method")
    assert registry._found["method"]["average"] is average


def test_a_change_of_what_a_file_imports_is_another_version(named, tmp_path, monkeypatch):
    """Of what lies in its folder, at any depth."""
    (tmp_path / "pack").mkdir()
    texts = {"near": "import pack", "pack/__init__": "from .deep import x", "pack/deep": "x = 1"}
    helpers = [tmp_path / f"{name}.py" for name in (*texts, "far")]
    for helper, text in zip(helpers, (*texts.values(), ""), strict=True):
        helper.write_text(f"{text}\n")
    versions = []
    for changed in (None, helpers.pop(), *helpers):
        if changed:
            changed.write_text(f"{changed.read_text()}# changed\n")
        monkeypatch.setenv(component_files.NAMED, "")
        registry.components("method")
        named(f"{MEDIAN}\n\nimport near  # noqa\n")
        versions.append(registry.components("method")["median"].version)
    assert versions[0] == versions[1]
    assert len({*versions}) == 4


def test_a_class_and_files_are_told_apart_where_they_are_joined(monkeypatch):
    files = ["nets.py:Net", "a/mine.py", "nets.py:Other", "last.py"]
    component_files.set_files(files)
    assert os.environ[component_files.NAMED] == "nets.py:Net:a/mine.py:nets.py:Other:last.py"
    assert component_files.configured_files() == (*files,)


def test_a_file_and_a_class_of_it_are_loaded_together_in_either_order(named):
    path = named(f"{MEDIAN}\n\nclass Net:\n    pass\n")
    for files in ([path, f"{path}:Net"], [f"{path}:Net", path], [path]):
        component_files.set_files(files)
        found = "median" in registry.components("method"), "net" in registry.components("model")
        assert found == (True, len(files) == 2)


def test_a_method_in_a_folder_with_a_colon_is_a_sentence(named, tmp_path, monkeypatch):
    (tmp_path / "a:b").mkdir()
    (tmp_path / "a:b/mine.py").write_text(MEDIAN)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FedreproError, match="a is missing: write it, or take it out"):
        methods_of("a:b/mine.py")
    with pytest.raises(FedreproError, match=r"gone\.py is missing"):
        registry.model_in("gone.py:Net")
    assert component_files.configured_files() == ()  # later calls do not fail for it


def test_the_configuration_names_files_to_commands_and_jobs(named, tmp_path, monkeypatch, capsys):
    path = named(MEDIAN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(component_files.NAMED)
    Path("config").mkdir()
    for text in ("", "scale: quick", "components: [", "components: 3", "- components"):
        if text:  # at first no configuration is here
            Path("config/config.yaml").write_text(text)
        name_configured()
        assert component_files.NAMED not in os.environ
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
    # the environment stays where nothing is configured
    snakemake_hooks_and_slurm.export_settings("", 20.0)
    assert component_files.configured_files() == ("mine.py",)
    snakemake_hooks_and_slurm.export_settings("", 20.0, [path, "more.py"])
    # each file once, however it is written
    assert component_files.configured_files() == ("mine.py", "more.py")


def returning(kind, name, made):
    """A component of this name whose function returns that, with the parameters it has."""
    found = components(kind)[name].spec()
    fn = wraps(found.component.fn)(lambda *_, **__: made)
    return replace(found, component=replace(found.component, fn=fn))


@pytest.mark.parametrize(("made", "told"), [(None, "nothing"), ({}, "a dict")])
def test_a_data_set_leaves_nothing_half_made(tmp_path, made, told):
    with pytest.raises(FedreproError, match=f"dataset 'digits' returns {told}: let it"):
        prepare(returning("dataset", "digits", made), tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_models_graphs_features_and_one_shot_methods_return_what_they_should(monkeypatch):
    with pytest.raises(FedreproError, match="model 'mlp' returns nothing: let it return Network"):
        network_of(returning("model", "mlp", None), (4,), 3)
    for made in (None, np.full(1, 1.0), [0.5, 0.5], np.array(1.0), np.ones((2, 2, 1)), [["a"]]):
        with pytest.raises(FedreproError, match=r"graph 'ring' .*: let it return W"):
            weights_of(returning("graph", "ring", made), 1, RngKey(0))
    spec = returning("feature", "centred", None)
    monkeypatch.setattr("fedrepro.data.feature_extraction.feature_spec", lambda text: spec)
    with pytest.raises(FedreproError, match="feature 'centred' returns nothing: let it"):
        represent(None, "centred")
    with pytest.raises(KeyError, match="weight9"):
        worked_with(KeyError("weight9"))
    local = problem().models
    for made in ({}, [], [None], "model", np.zeros(2)):
        with pytest.raises(FedreproError, match=r"'average' returns a .* GlobalModel"):
            require_models(made, AVERAGE, local)
    model = GlobalModel(local.model, local.tensors)
    for made in (None, model, [model] * local.clients):
        require_models(made, AVERAGE, local)


AVERAGE = components("method")["average"].spec()


@pytest.mark.parametrize(
    "change",
    [
        lambda w: {"weight0": w[0]},
        lambda w: {"weight0": w[:, :, None]},
        lambda w: {"weight0": None},
        lambda w: {"weight0": torch.from_numpy(w)},
        lambda w: {"weight0": w.tolist()},
        lambda w: {"scale": np.ones(1)},
        lambda w: dict.fromkeys(("weight0", "bias0", "weight1", "bias1"), w[:0]),
        lambda w: {"bias0": w[:1, 0]},
    ],
)
def test_tensors_of_another_form(change):
    local = problem().models
    tensors = local.tensors | change(local.tensors["weight0"])
    tensors = {name: value for name, value in tensors.items() if value is not None}
    told = r"returns tensors {.*}: let them be NumPy arrays of {'weight0': \(6, 8\)"
    with pytest.raises(FedreproError, match=told):
        require_models(GlobalModel(local.model, tensors), AVERAGE, local)


def worked_with(error):
    """What an average that raises this comes to."""

    def fails(*_, **__):
        raise error

    own, fn = problem(), wraps(AVERAGE.component.fn)(fails)
    setting = replace(AVERAGE, component=replace(AVERAGE.component, fn=fn))
    return run_setting(setting, SharedPreparation(own.models, own.info, RngKey(0)))


@pytest.mark.parametrize("error", [np.linalg.LinAlgError("Singular matrix"), OverflowError("34")])
def test_arithmetic_that_fails_is_a_row_that_failed(error, capsys):
    done = worked_with(error)
    assert not done.made.finite
    assert f"average failed: {type(error).__name__}, {error}" in capsys.readouterr().err
    assert {number.metric: number.value for number in done.cost}["rounds"] == 1


@pytest.mark.parametrize(
    ("begun", "done", "told"),
    [
        (None, None, "`init` of method 'fedavg' returns nothing: let it return a dict"),
        ({}, None, "`round` of method 'fedavg' returns nothing: let it return a state"),
        ({}, ({}, None), "`round` of method 'fedavg' returns a tuple"),
        ({}, (None, Report()), "`round` of method 'fedavg' returns nothing: let it return a dict"),
        ({}, ({"queue": deque()}, Report()), r"state\['queue'\] is a deque"),
    ],
)
def test_a_method_in_rounds(begun, done, told):
    given, forgetful, keeper = problem(), Mock(rounds=2), Mock()
    forgetful.init.return_value, forgetful.round.return_value = begun, done
    keeper.load.return_value = None
    spec = components("method")["fedavg"].spec()
    judge = SimpleNamespace(method=spec, clients=given.clients, made=forgetful)
    trial = TrialRounds(judge, given.info, None, {})
    with pytest.raises(FedreproError, match=told):
        trial.run(RngKey(0), keeper)
    assert not keeper.maybe_save.called


MINE = """
import helper_beside
from fedrepro.api import method

@method("mine", kind="one_shot")
def mine(clients, info, *, rng):
    \"\"\"Fail.\"\"\"
    return {made}
"""


@pytest.fixture
def own(named, tmp_path, monkeypatch):
    """Writes a method of one's own, and models to combine."""

    def write(made: str) -> list[str]:
        named(MINE.replace("{made}", made))
        (tmp_path / "helper_beside.py").write_text("def half(x):\n    return x['half']\n")
        for client in range(2):
            model = torch.nn.Sequential(torch.nn.Linear(4, 3))
            torch.save(model.state_dict(), tmp_path / f"{client}.pt")
        models = [str(tmp_path / f"{client}.pt") for client in range(2)]
        return ["combine", "mine", *models, "--out", str(tmp_path / "out.pt")]

    monkeypatch.chdir(tmp_path)
    sys.modules.pop("helper_beside", None)
    return write


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("clients.tensor", "mine.py, line 8, `return clients.tensor`: AttributeError: 'Local"),
        ("helper_beside.half({})", "beside.py, line 2, `return x['half']`: KeyError: 'half'"),
        (
            "__import__('torch').ones(2) @ __import__('torch').ones(3)",
            "mine.py, line 8, `return __",
        ),
        ("__import__('sys').exit(0)", "mine.py, line 8, `return __import__('sys').exit(0)`: Sys"),
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


def test_a_job_keeps_the_trace_in_its_log_and_a_fault_of_the_package_stays_one(
    own, capsys, monkeypatch
):
    command = own("clients.tensor")
    # a job differs from a command in its first word alone here
    monkeypatch.setattr(entry, "_there_or_here", lambda words: entry._here(command))
    assert main(["job", "{}"]) == MENDABLE
    trace, _, sentence = capsys.readouterr().err.rpartition("fedrepro: ")
    assert trace.startswith("Traceback")
    assert "mine.py" in sentence
    command = own("clients.tensor")

    def broken(*_, **__):
        raise KeyError("ours")

    monkeypatch.setattr("fedrepro.stages.user_models.combine.run", broken)
    assert main(command) == FAULT
    assert "this is a fault of the program (KeyError: 'ours'" in capsys.readouterr().err


def test_a_method_that_failed_is_not_a_number_and_a_lack_of_memory_no_failure(capsys):
    trials = [(0, "accuracy", "test", 0.5), (1, "failed", "", 1.0), (2, "accuracy", "test", 0.75)]
    rows = pd.DataFrame(trials, columns=["trial", "metric", "split", "value"])
    series = by_metric(rows, "mine", 3, "here")
    assert series["failed", ""] == [0.0, 1.0, 0.0]
    np.testing.assert_equal(series["accuracy", "test"], [0.5, math.nan, 0.75])
    alone = by_metric(rows[rows["trial"] == 1].assign(trial=0), "mine", 1, "here")
    np.testing.assert_equal(dict(alone), {("accuracy", "test"): [math.nan], ("failed", ""): [1.0]})
    failures = Failures()
    with pytest.raises(MemoryError):
        failures.note("mine", 0, MemoryError())
    assert not failures.diagnostics
    failures.note("mine", 1, KeyError("weight9"))
    failures.note("mine", 2, KeyError("weight8"))
    assert failures.diagnostics == {"failed": ["mine failed in trial 1: KeyError: 'weight9'"]}
    assert "KeyError" in capsys.readouterr().err  # the trace is in the log


def test_what_failed_is_said_and_tried_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drawn_in = Path("results/drawn/tiny/mine")
    metrics = drawn_in / "metrics.parquet"
    drawn_in.mkdir(parents=True)
    for path in (metrics, *(drawn_in / name for name in ("a.json", "a.csv", "b.json"))):
        path.write_text("{}")
    failed = {str(metrics): ["m failed in trial 0: KeyError: 1"]}
    (drawn_in / "a.json").write_text(json.dumps({"failed": failed}))
    sentences, drawn = take_failed("tiny")
    assert sentences == ["reports/tiny/mine/a: m failed in trial 0: KeyError: 1"]
    assert not metrics.exists()
    assert sorted(path.name for path in drawn) == ["a.csv", "a.json"]
    assert {path.stat().st_mtime for path in drawn} == {1}
    assert take_failed("quick") == take_failed("tiny") == ([], [])  # said once
    os.utime(drawn_in / "a.json", (2, 2))
    metrics.touch()  # computed again since
    assert (take_failed("tiny"), metrics.exists()) == (([], []), True)
