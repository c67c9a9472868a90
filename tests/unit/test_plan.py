"""The plan: from exhibits to artifacts, in pure Python."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import FILES as read_files
from synthetic import plan

from fedrepro.core.errors import FedreproError
from fedrepro.core.evaluation_schedule import EvaluationSchedule
from fedrepro.core.selection_rules import SELECTION_RULES
from fedrepro.planning.config import Config, ExhibitFile, Granularity
from fedrepro.planning.jobs import TrialBlock, folders_of
from fedrepro.planning.plan import Plan

ROOT = Path(__file__).parents[2]
FILES = read_files()
PFNM = {"pfnm": FILES["pfnm"]}
BESIDE = ("figure-2a", "figure-2b", "s-figure-5a")  # exhibits that share runs


def changed(**change):
    """The first exhibit of the repository with some settings replaced."""
    file = FILES["pfnm"]
    settings = {**file.defaults, **file.exhibits["figure-2a"], **change}
    settings.pop("at", None)
    settings.setdefault("dataset", {"name": "digits"})
    return {"pfnm": ExhibitFile(paper="pfnm", title="", source="", exhibits={"x": settings})}


def test_planning_loads_no_heavy_package():
    code = (
        "import sys; from pathlib import Path; from fedrepro.planning.config import *; "
        "from fedrepro.planning.plan import Plan; files = load_exhibits(); "
        "p = Plan(Config(), files, 'paper'); "
        "[p.metrics_files(e) for e in p.selected]; "
        "print([m for m in ('torch', 'torchvision', 'sklearn', 'pandas', 'scipy', 'matplotlib', "
        "'snakemake', 'pyarrow') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert out.stdout.strip() == "[]", out.stderr


def test_figure_2_at_paper_scale_is_what_the_paper_says():
    for key, partition in (("pfnm/figure-2a", "homogeneous"), ("pfnm/figure-2b", "dirichlet")):
        exhibit = plan("paper").exhibit(key)
        assert [[spec.token for spec in point.scenario.specs] for point in exhibit.points] == [
            ["mnist", f"{partition}+clients~{clients}", "mlp", "adam"]
            for clients in (5, 10, 15, 20, 25, 30)
        ]
        trials = {run.method.name: count for run, count in exhibit.trials.items()}
        assert trials.pop("distillation") == 2  # it costs most
        assert set(trials.values()) == {10}
        pfnm = next(m for m in exhibit.measures if m.spec.name == "pfnm")
        assert set(pfnm.spec["sigma2"]) == {10, 5, 2, 1, 0.5, 0.1, 0.05, 0.01}
        assert pfnm.choose is SELECTION_RULES["pooled_train"]


def test_the_pooled_control_is_one_run_for_all_points():
    (run,) = (r for r in plan().exhibit("pfnm/figure-2a").runs if r.method.name == "pooled")
    assert run.scenario.partition.token == "pooled"


def runs_of(found, *names):
    return {run for name in names for run in found.exhibit(f"pfnm/{name}").runs}


@pytest.mark.parametrize("scale", ["tiny", "quick", "paper"])
@pytest.mark.parametrize(
    ("name", "given", "own"),
    [
        ("s-figure-2a", ["figure-2a", "figure-2b"], set()),
        ("s-figure-2b", ["figure-3a", "figure-3b"], set()),
        ("s-figure-5a", ["figure-2a"], set()),
        ("s-figure-5b", ["figure-2b"], set()),
        ("figure-2", ["figure-2a", "figure-2b", "figure-2c", "figure-2d"], set()),
        ("matching-or-size", ["figure-2a", "figure-2b"], {"pruned_concatenation"}),
    ],
)
def test_figures_that_show_the_same_runs_share_them(scale, name, given, own):
    found = plan(scale)
    assert {run.method.name for run in runs_of(found, name) - runs_of(found, *given)} == own


def models_of(found, trials):
    """Every file of local models below these runs."""
    return {
        path
        for run, count in trials.items()
        for block in found.blocks(count)
        for path in folders_of(found.local(run.scenario, block))
    }


def test_sensitivity_maps_reuse_one_set_of_local_models():
    found = plan("paper")
    ((run, trials),) = found.exhibit("pfnm/s-figure-4a").trials.items()
    assert len(list(run.method.expand())) == 5 * 4 * 4
    figure = found.exhibit("pfnm/figure-2a")
    assert models_of(found, {run: trials}) <= models_of(found, figure.trials)


def test_a_swept_switch_stands_in_tables_as_in_a_token():
    balance = {"partition.balance": [True, False]}
    files = changed(drawing="table", partition={"name": "dirichlet", "clients": 3}, sweep=balance)
    points = Plan(Config(), files, "tiny").exhibit("pfnm/x").points
    assert [point.values for point in points] == [{"balance": "true"}, {"balance": "false"}]


def test_a_swept_method_in_rounds_has_a_run_for_each_setting():
    exhibit = plan("paper").exhibit("pfnm/s-figure-3b")
    streams = [run for run in exhibit.runs if run.method.name == "pfnm_streaming"]
    assert [run.method["sigma2"] for run in streams] == [0.01, 0.1, 1.0, 10.0]


def test_long_runs_are_measured_seldom_and_others_in_every_round():
    runs = [run for run in Plan(Config(), PFNM, "paper").splits if run.every is not None]
    every = {run.method.values.get("rounds"): run.every for run in runs}
    assert (every.pop(8000), every.pop(1000)) == (EvaluationSchedule(40), EvaluationSchedule(10))
    assert set(every.values()) == {EvaluationSchedule(1)}


def test_cases_are_called_by_their_data_where_these_differ():
    found = plan("quick")
    kinds = "homogeneous", "heterogeneous"
    assert [p.values["case"] for p in found.exhibit("pfnm/figure-2").points[::5]] == [
        f"{data}, {kind}" for data in ("Digits (8×8)", "Coloured shapes") for kind in kinds
    ]
    assert {p.values["case"] for p in found.exhibit("pfnm/matching-or-size").points} == {*kinds}


def test_digits_never_stand_for_photographs():
    for scale in ("tiny", "quick"):
        for key, exhibit in plan(scale).exhibits.items():
            if key.startswith("pfnm/") and key[-1] in "cd" and "figure" in key:
                assert {p.scenario.dataset.name for p in exhibit.points} == {"shapes"}


def test_granularity_cuts_training_into_jobs():
    fine = plan(granularity=Granularity(clients_per_job=1, trials_per_job=1))
    run = next(r for r in fine.splits if r.stage == "aggregate" and r.scenario.clients == 4)
    assert [len(models_of(made, {run: 2})) for made in (fine, plan())] == [8, 1]


def files_of(files, scale="paper", **granularity):
    """Every file that the exhibits of a scale ask for."""
    found = Plan(Config(granularity=Granularity(**granularity)), files, scale)
    asked = set()
    for exhibit in found.exhibits.values():
        one_shot = {r: n for r, n in exhibit.trials.items() if r.every is None}
        asked |= models_of(found, one_shot) | set(found.metrics_files(exhibit))
    return asked


@cache
def files_there(size):
    """Those of some exhibits, with so many trials a job."""
    return files_of(edited("figure-2a"), trials_per_job=size)


def edited(name, **change):
    """Exhibits that share runs, one of them with other settings at paper scale."""
    exhibits = {key: FILES["pfnm"].exhibits[key] for key in BESIDE}
    at = exhibits[name].get("at", {})
    exhibits[name] = exhibits[name] | {"at": {**at, "paper": {**at.get("paper", {}), **change}}}
    return {"pfnm": FILES["pfnm"].model_copy(update={"exhibits": exhibits})}


MEDIAN = {"name": "concatenation", "class_weights": False, "label": "more"}


@pytest.mark.parametrize("size", ["auto", 1, 3, 10])
@pytest.mark.parametrize(
    "change",
    [
        {"trials": 11},
        {"trials": 40},
        {"trials_of": {"KD": 3}},
        {"methods": [*FILES["pfnm"].defaults["methods"], MEDIAN]},
        {"sweep": {"partition.clients": [5, 10, 15, 20, 25, 30, 50]}},
    ],
)
def test_more_trials_methods_and_clients_leave_all_files_that_were_there(change, size):
    before = files_there(size)
    after = files_of(edited("figure-2a", **change), trials_per_job=size)
    assert before <= after
    if size in ("auto", 1):
        assert before < after


def test_what_one_exhibit_asks_for_does_not_depend_on_the_others():
    asked = []
    for wanted, files in ("headline", edited("figure-2b", trials=30)), (["pfnm/figure-2a"], PFNM):
        found = Plan(Config(exhibits=wanted), files, "paper")
        exhibit = found.exhibit("pfnm/figure-2a")
        asked.append((found.metrics_files(exhibit), models_of(found, exhibit.trials)))
    assert asked[0] == asked[1]


def test_a_network_is_trained_in_as_many_trials_as_it_is_drawn_in():
    made = plan("paper")
    exhibit = made.exhibit("pfnm/figure-3c")
    trained = {
        len(run.scenario.model["hidden"]): len(models_of(made, {run: trials}))
        for run, trials in exhibit.trials.items()
        if run.method.name == "average"
    }
    assert trained == dict.fromkeys(range(1, 7), 6)


def test_the_name_of_a_job_is_a_folder_that_a_command_can_name():
    """Executors join wildcards with commas, and a file system has 255 bytes for a name."""
    for scale in ("tiny", "quick", "paper"):
        found = plan(scale)
        for exhibit in found.exhibits.values():
            for path in found.metrics_files(exhibit):
                results, at, stage, name, _ = path.split("/")
                assert (results, at) == ("results", scale)
                assert stage in ("aggregate", "federate", "peer", "simulate")
                assert re.fullmatch(r"[a-z0-9_-]{1,120}", name)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"methods": [{"name": "pfnm", "sigma2": [1, 2]}]}, "say how one is chosen"),
        (
            {"methods": [{"name": "pfnm", "sigma2": [1, 2], "gamma0": [1, 2]}]},
            "sweeps sigma2 and gamma0; sweep one",
        ),
        (
            {"methods": [{"name": "pfnm", "show": ["gamma0"]}]},
            "shows every value of gamma0, but lists no values of it",
        ),
        ({"model": {"name": "logistic"}}, "combines mlp models, not 'logistic'"),
        ({"sweep": {"clients": [1]}}, "not of the form component.parameter"),
        ({"sweep": {"partition.client": [1]}}, "did you mean 'clients'"),
        ({"trials": 0}, "'trials' is 0"),
        ({"methods": [{"name": "average"}, {"name": "average"}]}, "two of its methods are called"),
    ],
)
def test_a_mistake_in_an_exhibit_is_a_sentence_that_says_where(change, sentence):
    with pytest.raises(FedreproError, match=sentence) as caught:
        Plan(Config(), changed(**change), "paper").exhibit("pfnm/x")
    assert "papers/pfnm/exhibits/__init__.py, x at scale paper" in str(caught.value)


@given(st.integers(1, 200), st.integers(1, 50))
def test_blocks_cover_everything_once(count, size):
    found = list(TrialBlock(0, count - 1).cut(size))
    assert [i for block in found for i in block] == list(range(count))
    assert all(len(block) <= size for block in found)
    assert [TrialBlock.parse(str(block)) for block in found] == found


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 50))
def test_blocks_of_more_trials_are_those_of_fewer_and_further_ones(few, many, size):
    few, many = sorted((few, many))
    blocks = Plan(Config(granularity=Granularity(trials_per_job=size)), {}, "tiny").blocks
    found = blocks(many)
    assert blocks(few) == found[: len(blocks(few))]
    assert {len(block) for block in found} == {size}
    assert [i for block in found for i in block][:many] == list(range(many))


@pytest.mark.parametrize("text", ["5-2", "a-b", "1-2-3", "", "3-3"])  # of one it is "3"
def test_a_bad_range_is_a_sentence(text):
    with pytest.raises(FedreproError, match="is not a range; write first-last"):
        TrialBlock.parse(text)


def test_a_method_may_set_parameters_of_a_component_of_its_scenario():
    """Averaging from a shared start: other local models, from the same partition."""
    point = plan("paper").exhibit("pfnm/equal-size-photographs").points[0]
    runs = {(label, setting.token): run for (label, setting), run in point.runs.items()}
    shared = runs["parameter average, shared start", "average_shared"].scenario
    assert shared.training.token == "adam+l2~1e-05+lr~0.001+shared_init~true"
    assert shared.partition == point.scenario.partition
    assert runs["parameter average", "average"].scenario == point.scenario


def test_a_stage_of_one_paper_takes_no_offence_at_methods_for_another(monkeypatch, tmp_path):
    from fedrepro.cli.job import _plan

    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text("also: {gems: [{name: average, label: more}]}\n")
    monkeypatch.chdir(tmp_path)
    values = {"scale": "tiny", "seed": 0, "granularity": {}, "exhibit": "pfnm/figure-2a"}
    assert "pfnm/figure-2a" in _plan(values).exhibits
