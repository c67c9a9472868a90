"""The plan: from exhibits to artifacts, in pure Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrepro.config import Config, ExhibitFile, Granularity, load_exhibits
from fedrepro.errors import FedreproError
from fedrepro.paths import LIMITS, Block, Paths, Pieces, Scenario, blocks, methods_name
from fedrepro.plan import Plan
from fedrepro.registry import components, parse_token

ROOT = Path(__file__).parents[2]
FILES = load_exhibits(ROOT / "config/exhibits")


def plan(scale="tiny", **config):
    return Plan(Config(**config), FILES, scale)


def changed(**change):
    """The first exhibit of the repository with some settings replaced."""
    file = FILES["pfnm"]
    settings = {**file.defaults, **file.exhibits["figure-2a"], **change}
    settings.pop("at", None)
    settings.setdefault("dataset", {"name": "digits"})
    return {"pfnm": ExhibitFile(paper="pfnm", title="", source="", exhibits={"x": settings})}


def test_planning_loads_no_heavy_package():
    code = (
        "import sys; from pathlib import Path; from fedrepro.config import *; "
        "from fedrepro.plan import Plan; files = load_exhibits(Path('config/exhibits')); "
        "p = Plan(Config(), files, 'paper'); "
        "[p.metrics_files(e) for e in p.selected]; "
        "print([m for m in ('torch', 'torchvision', 'sklearn', 'pandas', 'scipy', 'matplotlib', "
        "'snakemake') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert out.stdout.strip() == "[]", out.stderr


def test_figure_2_at_paper_scale_is_what_the_paper_says():
    for key, partition in (("pfnm/figure-2a", "homogeneous"), ("pfnm/figure-2b", "dirichlet")):
        exhibit = plan("paper").exhibit(key)
        assert [p.values["clients"] for p in exhibit.points] == [5, 10, 15, 20, 25, 30]
        for point in exhibit.points:
            scenario = point.scenario
            assert scenario.dataset.token == "mnist"
            assert scenario.partition.token == f"{partition}+clients~{point.values['clients']}"
            assert (scenario.model.token, scenario.training.token) == ("mlp", "adam")
        trials = {run.methods[0].name: run.trials for run in exhibit.runs}
        assert trials.pop("distillation") == 2  # it costs most
        assert set(trials.values()) == {10}
        pfnm = next(m for m in exhibit.measures if m.spec.name == "pfnm")
        assert set(pfnm.spec["sigma2"]) == {10, 5, 2, 1, 0.5, 0.1, 0.05, 0.01}
        assert pfnm.choose == "pooled_train"


def test_the_pooled_control_is_one_run_for_all_points():
    exhibit = plan().exhibit("pfnm/figure-2a")
    runs = [run for run in exhibit.runs if run.methods[0].name == "pooled"]
    assert len(runs) == 1
    assert runs[0].scenario.partition.token == "pooled"


def runs_of(found, *names):
    return {run for name in names for run in found.exhibit(f"pfnm/{name}").runs}


@pytest.mark.parametrize("scale", ["tiny", "quick", "paper"])
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("s-figure-2a", ["figure-2a", "figure-2b"]),
        ("s-figure-2b", ["figure-3a", "figure-3b"]),
        ("s-figure-5a", ["figure-2a"]),
        ("s-figure-5b", ["figure-2b"]),
    ],
)
def test_figures_of_sizes_and_of_sigma2_need_no_runs_of_their_own(scale, name, given):
    found = plan(scale)
    assert runs_of(found, name) <= runs_of(found, *given)


def test_the_composed_figure_needs_the_runs_of_its_panels_only():
    for scale in ("tiny", "quick", "paper"):
        panels = [f"figure-2{letter}" for letter in "abcd"]
        assert runs_of(plan(scale), "figure-2") == runs_of(plan(scale), *panels)


def test_sensitivity_maps_reuse_one_set_of_local_models():
    found = plan("paper")
    (run,) = found.exhibit("pfnm/s-figure-4a").runs
    assert len(list(run.methods[0].expand())) == 5 * 4 * 4
    models = found.model_files(run.scenario, run.block)
    assert len(models) == 1
    figure = found.exhibit("pfnm/figure-2a")
    assert models[0] in {m for r in figure.runs for m in found.model_files(r.scenario, r.block)}


def test_matching_or_size_shares_all_but_the_pruned_networks():
    found = plan("paper")
    own = runs_of(found, "matching-or-size") - runs_of(found, "figure-2a", "figure-2b")
    assert {run.methods[0].name for run in own} == {"pruned_concatenation"}


def test_a_swept_method_in_rounds_has_a_run_for_each_setting():
    exhibit = plan("paper").exhibit("pfnm/s-figure-3b")
    streams = [run for run in exhibit.runs if run.methods[0].name == "pfnm_streaming"]
    assert [run.methods[0]["sigma2"] for run in streams] == [0.01, 0.1, 1.0, 10.0]


def test_long_runs_are_measured_seldom_and_others_in_every_round():
    found = plan("paper")
    every = {run: found.measured_every[found.metrics_file(run)] for run in found.runs}
    assert {n for run, n in every.items() if run.methods[0].values.get("rounds") == 8000} == {40}
    assert {n for run, n in every.items() if run.methods[0].values.get("rounds") == 1000} == {10}
    few = (run for run in every if run.methods[0].values.get("rounds") not in (1000, 8000))
    assert {every[run] for run in few} == {1}


def test_shown_settings_are_columns_and_others_are_chosen():
    exhibit = plan("quick").exhibit("pfnm/erratum-options")
    (measure,) = exhibit.measures
    assert exhibit.shown == ["popularity", "class_weights", "count_cap"]
    assert len(measure.groups) == 8
    assert all(len(group) == 8 for group in measure.groups.values())
    assert measure.chosen == ("sigma2",)


def test_cases_are_called_by_their_data_where_these_differ():
    found = plan("quick")
    assert [p.values["case"] for p in found.exhibit("pfnm/figure-2").points[::5]] == [
        "Digits (8×8), homogeneous",
        "Digits (8×8), heterogeneous",
        "Coloured shapes, homogeneous",
        "Coloured shapes, heterogeneous",
    ]
    assert {p.values["case"] for p in found.exhibit("pfnm/matching-or-size").points} == {
        "homogeneous",
        "heterogeneous",
    }


def test_digits_never_stand_for_photographs():
    for scale in ("tiny", "quick"):
        for key, exhibit in plan(scale).exhibits.items():
            if key[-1] in "cd" and "figure" in key:
                assert {p.scenario.dataset.name for p in exhibit.points} == {"shapes"}


def test_exhibits_share_what_they_have_in_common():
    once = {**FILES["pfnm"].exhibits, "twin": FILES["pfnm"].exhibits["figure-2a"]}
    twins = FILES["pfnm"].model_copy(update={"exhibits": once})
    assert set(Plan(Config(), {"pfnm": twins}, "tiny").runs) == set(plan().runs)


def test_selection_does_not_change_paths():
    one = plan(exhibits=["pfnm/figure-2a"])
    assert [e.key for e in one.selected] == ["pfnm/figure-2a"]
    assert one.metrics_files(one.selected[0]) == plan(exhibits="all").metrics_files(one.selected[0])


@pytest.mark.parametrize("size", ["all", 1, 2])
def test_methods_per_job_groups_methods_without_parameters(size):
    runs = plan(granularity=Granularity(methods_per_job=size)).runs
    shared = [run for run in runs if len(run.methods) > 1]
    assert bool(shared) == (size != 1)
    for run in runs:
        assert size == "all" or len(run.methods) <= size
        if len(run.methods) > 1:
            names = {spec.name for spec in run.methods}
            assert not names & {"pfnm", "distillation", "downpour_sgd", "pooled"}


def test_granularity_cuts_training_into_jobs():
    fine = plan(granularity=Granularity(clients_per_job=1, trials_per_job=1))
    run = next(r for r in fine.runs if r.scenario.partition.token == "homogeneous+clients~4")
    assert len(fine.model_files(run.scenario, Block(0, 1))) == 8
    assert len(fine.model_files(run.scenario, Block(0, 0))) == 4
    assert len(plan().model_files(run.scenario, Block(0, 0))) == 1


def test_a_network_is_trained_in_as_many_trials_as_it_is_drawn_in():
    made = plan("paper")
    deep = [r for r in made.exhibit("pfnm/figure-3c").runs if not r.federated]
    trained = {
        r.scenario.model["hidden"]: made.model_files(r.scenario, r.block)
        for r in deep
        if r.scenario.partition.name == "homogeneous"
    }
    assert len(trained) == 6
    for hidden, files in trained.items():
        (file,) = files
        # figure 2c has the network of one layer, in more trials, on the same partition
        assert ("trials=0-9" if len(hidden) == 1 else "trials=0-5") in file
    cuts = {made.partition_file(r.scenario.dataset, r.scenario.partition) for r in deep}
    assert all("trials=0-9" in path for path in cuts)


def test_all_wildcards_of_a_job_stay_under_200_bytes():
    for scale in ("tiny", "quick", "paper"):
        for run in plan(scale).runs:
            path = plan(scale).metrics_file(run)
            parts = [p.split("=", 1)[1] for p in path.split("/") if "=" in p]
            assert sum(map(len, parts)) + len(scale) < 200
            assert all(p.count("=") <= 1 and "," not in p for p in path.split("/"))
    assert sum(LIMITS.values()) + len("paper") + len("999999") + len("0-9999") <= 200


def test_names_in_paths_lead_back_to_full_tokens():
    found = plan("quick")
    for run in found.runs:
        assert found.tokens["methods", methods_name(run.methods)]
        for spec in run.scenario.specs:
            token = found.tokens[spec.kind, spec.short(LIMITS[spec.kind])]
            assert parse_token(spec.kind, token) == spec


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"methods": [{"name": "pfmn"}]}, "unknown method 'pfmn'.*did you mean 'pfnm'"),
        ({"methods": [{"name": "pfnm", "sigma": 1}]}, "unknown parameter 'sigma'.*'sigma2'"),
        ({"methods": [{"name": "pfnm", "sigma2": [1, 2]}]}, "say how one is chosen"),
        (
            {"methods": [{"name": "pfnm", "sigma2": [1, 2], "gamma0": [1, 2]}]},
            "sweeps sigma2 and gamma0; sweep one",
        ),
        (
            {"methods": [{"name": "pfnm", "show": ["gamma0"]}]},
            "shows every value of gamma0, but lists no values of it",
        ),
        ({"methods": [{"name": "pfnm", "sigma2": -1}]}, "must be above 0"),
        ({"model": {"name": "logistic"}}, "combines mlp models, not 'logistic'"),
        ({"dataset": {"name": "mnits"}}, "unknown dataset 'mnits'.*did you mean 'mnist'"),
        ({"sweep": {"clients": [1]}}, "not of the form component.parameter"),
        ({"sweep": {"partition.client": [1]}}, "did you mean 'clients'"),
        ({"trials": 0}, "'trials' is 0"),
        ({"drawing": "pie"}, "'drawing' is 'pie'"),
    ],
)
def test_a_mistake_in_an_exhibit_is_a_sentence_that_says_where(change, sentence):
    with pytest.raises(FedreproError, match=sentence) as caught:
        Plan(Config(), changed(**change), "paper")
    assert "config/exhibits/pfnm.yaml, x at scale paper" in str(caught.value)


def test_an_unknown_exhibit_is_a_sentence():
    with pytest.raises(FedreproError, match="did you mean 'pfnm/figure-2"):
        plan(exhibits=["pfnm/figure-2x"]).selected  # noqa: B018


@given(st.integers(1, 200), st.none() | st.integers(1, 50))
def test_blocks_cover_everything_once(count, size):
    found = blocks(count, size)
    assert [i for block in found for i in block] == list(range(count))
    assert all(size is None or len(list(block)) <= size for block in found)
    assert [Block.parse(str(block)) for block in found] == found


@pytest.mark.parametrize("text", ["3", "5-2", "a-b", "1-2-3", ""])
def test_a_bad_range_is_a_sentence(text):
    with pytest.raises(FedreproError, match="is not a range; write first-last"):
        Block.parse(text)


def test_a_long_token_keeps_paths_short():
    model = components("model")["mlp"].spec({"hidden": [100 + i for i in range(12)]})
    named = (("dataset", "digits"), ("partition", "pooled"), ("training", "adam"))
    parts = [components(kind)[name].spec() for kind, name in named]
    scenario = Scenario(parts[0], parts[1], model, parts[2])
    path = Paths("quick", 0).models(scenario, Block(0, 0), Block(0, 0))
    assert "model=mlp+id~" in path


def test_what_had_to_be_shortened_can_be_looked_up():
    found = {name: token for _, name, token in plan("paper").shortened}
    shared = next(run for run in plan("paper").runs if len(run.methods) > 1)
    name = methods_name(shared.methods)
    assert name.startswith("several+id~")
    assert found[name].split(";") == sorted(spec.token for spec in shared.methods)


@pytest.mark.parametrize(("first", "last", "size"), [(0, 9, 3), (4, 4, 1), (3, 10, 20)])
def test_pieces_of_a_range_are_written_and_read(first, last, size):
    pieces = Pieces(Block(first, last), size)
    assert Pieces.parse(str(pieces)) == pieces
    assert [i for block in pieces for i in block] == list(range(first, last + 1))
    assert all(block.last - block.first < size for block in pieces)


def test_pieces_written_otherwise_are_a_sentence():
    with pytest.raises(FedreproError, match="'0-9' is not a range cut in pieces; write 0-999:10"):
        Pieces.parse("0-9")
