"""The plan, from exhibits to artifacts, and a job as a value: its json, folder and digest."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_exhibits import small
from synthetic import FILES as read_files
from synthetic import ROOT, plan

from fedrepro.cli.job import _plan
from fedrepro.cli.main import main
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.planning import scenarios_runs_and_jobs as job_values
from fedrepro.planning.config_files import Config, ExhibitFile, Granularity
from fedrepro.planning.plan import Plan

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


PLANNING = (
    "from fedrepro.planning.config_files import *; from fedrepro.planning.plan import Plan; "
    "p = Plan(Config(), load_exhibits(), 'paper'); [p.metrics_files(e) for e in p.selected]"
)
LOADING = "from fedrepro.core.registry import KINDS, components; [components(k) for k in KINDS]"
MATCHING = "from fedrepro.papers.pfnm import authors_code_comparison; import fedrepro.methods."


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        (PLANNING, "torch torchvision sklearn pandas scipy matplotlib snakemake pyarrow"),
        (
            "import fedrepro; fedrepro.run, fedrepro.results",
            "torch sklearn numba matplotlib snakemake",
        ),
        (LOADING, "torch torchvision sklearn scipy pandas pydantic"),
        (f"{MATCHING}pfnm_and_concatenation", "torch"),
    ],
)
def test_what_has_to_begin_soon_loads_no_heavy_package(code, heavy):
    code += f"; import sys; print([name for name in {heavy.split()} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert out.stdout.strip() == "[]", out.stderr


def test_the_pooled_control_is_one_run_and_a_swept_method_in_rounds_one_for_each_setting():
    (run,) = (r for r in plan().exhibit("pfnm/figure-2a").trials if r.method.name == "pooled")
    assert run.scenario.partition.token == "pooled"
    exhibit = plan("paper").exhibit("pfnm/s-figure-3b")
    streams = [run for run in exhibit.trials if run.method.name == "pfnm_streaming"]
    assert [run.method["sigma2"] for run in streams] == [0.01, 0.1, 1.0, 10.0]


def runs_of(found, *names):
    return {run for name in names for run in found.exhibit(f"pfnm/{name}").trials}


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
        for path in job_values.folders_of(found.local(run.scenario, block))
    }


def test_a_swept_switch_stands_in_tables_as_in_a_token_and_cases_go_by_their_data():
    balance = {"partition.balance": [True, False]}
    files = changed(drawing="table", partition={"name": "dirichlet", "clients": 3}, sweep=balance)
    points = Plan(Config(), files, "tiny").exhibit("pfnm/x").points
    assert [point.values for point in points] == [{"balance": "true"}, {"balance": "false"}]
    found = plan("quick")
    kinds = "homogeneous", "heterogeneous"
    assert [p.values["case"] for p in found.exhibit("pfnm/figure-2").points[::5]] == [
        f"{data}, {kind}" for data in ("Digits (8×8)", "Coloured shapes") for kind in kinds
    ]
    assert {p.values["case"] for p in found.exhibit("pfnm/matching-or-size").points} == {*kinds}


def test_granularity_cuts_training_into_jobs_and_a_network_has_the_trials_it_is_drawn_in():
    fine = plan(granularity=Granularity(clients_per_job=1, trials_per_job=1))
    run = next(r for r in fine.splits if r.stage == "aggregate" and r.scenario.clients == 4)
    assert [len(models_of(made, {run: 2})) for made in (fine, plan())] == [8, 1]
    made = plan("paper")
    exhibit = made.exhibit("pfnm/figure-3c")
    trained = {
        len(run.scenario.model["hidden"]): len(models_of(made, {run: trials}))
        for run, trials in exhibit.trials.items()
        if run.method.name == "average"
    }
    assert trained == dict.fromkeys(range(1, 7), 6)


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


def test_names_of_jobs_are_folders_and_do_not_depend_on_other_exhibits():
    asked = []
    for wanted, files in ("headline", edited("figure-2b", trials=30)), (["pfnm/figure-2a"], PFNM):
        found = Plan(Config(exhibits=wanted), files, "paper")
        exhibit = found.exhibit("pfnm/figure-2a")
        asked.append((found.metrics_files(exhibit), models_of(found, exhibit.trials)))
    assert asked[0] == asked[1]
    # Executors join wildcards with commas, and a file system has 255 bytes for a name.
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
        (
            {"methods": [{"name": "pfnm", "sigma2": [1, 2], "gamma0": [1, 2]}]},
            "sweeps sigma2 and gamma0; sweep one",
        ),
        (
            {"methods": [{"name": "pfnm", "show": ["gamma0"]}]},
            "shows every value of gamma0, but lists no values of it",
        ),
        ({"model": {"name": "logistic"}}, "combines mlp models, not 'logistic'"),
        ({"sweep": {"clients": [1]}}, "not component.parameter"),
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
    found = job_values.cut(range(count), size)
    assert [i for block in found for i in block] == list(range(count))
    assert all(len(block) <= size for block in found)
    pieces = f"x{job_values.block_name('trials', range(count))}:{size}"
    assert job_values.folders_of(pieces) == [
        "x" + job_values.block_name("trials", block) for block in found
    ]


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 50))
def test_blocks_of_more_trials_are_those_of_fewer_and_further_ones(few, many, size):
    few, many = sorted((few, many))
    blocks = Plan(Config(granularity=Granularity(trials_per_job=size)), {}, "tiny").blocks
    found = blocks(many)
    assert blocks(few) == found[: len(blocks(few))]
    assert {len(block) for block in found} == {size}
    assert [i for block in found for i in block][:many] == list(range(many))


def test_a_method_may_set_parameters_of_a_component_of_its_scenario():
    """Averaging from a shared start: other local models, from the same partition."""
    point = plan("paper").exhibit("pfnm/equal-size-photographs").points[0]
    runs = {(label, setting.token): run for (label, setting), run in point.runs.items()}
    shared = runs["parameter average, shared start", "average_shared"].scenario
    assert shared.training.token == "adam+l2~1e-05+lr~0.001+shared_init~true"
    assert shared.partition == point.scenario.partition
    assert runs["parameter average", "average"].scenario == point.scenario


def test_papers_alone_take_no_offence_at_methods_for_another_and_a_job_names_its_own():
    also = [{"name": "average", "label": "more"}]
    values = {"scale": "tiny", "seed": 0, "granularity": {}, "exhibit": "pfnm/figure-2a"}
    assert _plan(values | {"also": also}).exhibit("pfnm/figure-2a").measures[-1].label == "more"
    assert Plan(Config(papers="own", also={"gems": also}), PFNM, "tiny").exhibits
    with pytest.raises(FedreproError, match="unknown paper 'gmes'"):
        Plan(Config(papers="own", also={"gmes": also}), PFNM, "tiny")


FIRST = range(2)


def test_the_json_of_every_job_is_read_as_the_job_which_comes_behind_those_that_it_reads():
    """Of every stage: one-shot methods, in rounds, races, on graphs, tuned, simulations."""
    found, jobs = plan("tiny"), {}
    for exhibit in found.exhibits.values():
        seen = set()
        for job in found.jobs_of(exhibit):
            assert seen.issuperset(job.before)
            seen.add(job.out)
            jobs[job.out] = job
    for out, job in jobs.items():
        again = job_values.read_job(json.loads(job.text))
        assert (again, again.text, again.digest, again.out) == (job, job.text, job.digest, out)
    assert {job.stage for job in jobs.values()} == {
        "prepare", "partition", "train", "aggregate", "federate", "peer", "simulate",
    }  # fmt: skip
    assert any(job.tune is not None for job in jobs.values())
    assert any(job.every and job.every.race for job in jobs.values())


def empty(scale="tiny", each="all", **config):
    """A plan without exhibits."""
    return Plan(Config(granularity=Granularity(clients_per_job=each), **config), {}, scale)


def run_of(name="fedavg"):
    return next(run for run in plan("tiny").splits if run.method.name == name)


def test_two_folders_are_one_only_for_the_same_run():
    run, jobs = run_of(), empty()
    scenario, method = run.scenario, run.method
    adam = components("training")["adam"].spec({"lr": 0.777})
    others = [
        replace(run, method=method.component.spec({**method.values, "rounds": 777})),
        replace(run, every=replace(run.every, until=0.123)),
        replace(run, scenario=replace(scenario, dataset=components("dataset")["shapes"].spec())),
        replace(run, scenario=replace(scenario, training=adam)),
    ]
    folders = [jobs.run(one, FIRST) for one in (run, *others)]
    folders += [jobs.run(run, range(2, 4)), empty(seed=1).run(run, FIRST)]
    assert len(set(folders)) == len(folders)
    assert empty(each=1).run(replace(run), FIRST) == folders[0]


def test_splits_are_in_the_json_and_not_in_the_name():
    plain, more = empty(), empty()
    more.splits[run_of()] = (("test", "train"), ("train",))
    folder = plain.run(run_of(), FIRST)
    assert more.run(run_of(), FIRST) == folder
    one, two = plain.job(folder), more.job(folder)
    assert (one.evaluate, two.evaluate) == ((), ("test", "train"))
    assert (one.follow, two.follow) == ((), ("train",))
    assert one.text != two.text
    assert one.digest == two.digest


def test_a_changed_file_version_or_parameter_is_another_digest():
    jobs = empty()
    job = jobs.job(jobs.run(run_of(), FIRST))
    method = job.specs["method"]
    given, values = method.component, dict(method.values)
    specs = [
        replace(given, digest="0").spec(values),  # as another file would have it
        replace(given, version=99).spec(values),
        given.spec({**values, "rounds": 777}),
    ]
    found = {replace(job, specs={**job.specs, "method": spec}).digest for spec in specs}
    assert len(found | {job.digest}) == 4


@pytest.mark.parametrize("each", ["all", 1, 3])
def test_local_models_are_named_in_a_word(each):
    run = next(run for run in plan("paper").splits if run.scenario and run.stage == "aggregate")
    jobs = empty("paper", each)
    files = map(Path, job_values.folders_of(jobs.local(run.scenario, FIRST)))
    pieces = [jobs.job(str(file.parent)).clients for file in files]
    assert [j for piece in pieces for j in piece] == list(range(run.scenario.clients))
    assert {len(piece) for piece in pieces[:-1]} <= {each}


def test_pieces_of_trials_are_told_apart_and_a_process_of_one_job_finds_it():
    found = job_values.folders_of("x-trials-0-3:2-clients-0-2:2")
    assert found == [
        "x-trials-0-1-clients-0-1", "x-trials-0-1-clients-2",
        "x-trials-2-3-clients-0-1", "x-trials-2-3-clients-2",
    ]  # fmt: skip
    one = "results/tiny/train/x-trials-0-1"
    assert job_values.folders_of(one) == [one]
    assert job_values.log_path("results/tiny/train/x-1") == "results/tiny/logs/train/x-1.log"
    # As on a cluster, where it is the first that the plan is asked for.
    found = plan("tiny", granularity=Granularity(clients_per_job=1))
    job = plan("tiny").jobs_of(plan("tiny").exhibit("pfnm/figure-2a"))[-1]
    assert found.job(job.out).out == job.out
    with pytest.raises(FedreproError, match="no exhibit of scale tiny needs results/tiny/train/x"):
        found.job("results/tiny/train/x")


JOB = {
    "stage": "simulate", "method": {"name": "finite_beliefs"}, "trials": [0, 0], "out": "made",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"methods": {}}, "unknown key 'methods'.*did you mean 'method'"),
        ({"method": "pfnm"}, "'method' cannot be 'pfnm'"),
        ({"trials": [0]}, "'trials' cannot be"),
        ({"trials": None}, "'trials' cannot be None"),
        ({"every": 3}, "'every' cannot be 3"),
        ({"out": ""}, "the key 'out' is missing"),
    ],
)
def test_what_a_job_cannot_say_is_one_sentence(change, sentence):
    with pytest.raises(FedreproError, match=sentence):
        job_values.read_job(JOB | change)


def test_jobs_of_a_file_are_run_once_each(tmp_path, monkeypatch, capsys):
    """A list of jobs goes on where it was stopped; what was told otherwise is computed again."""
    monkeypatch.chdir(tmp_path)
    one = JOB | {"method": {"name": "finite_beliefs", "repeats": 2, "steps": 3}}
    two = one | {"trials": [1, 1], "out": "other", "data": "made"}  # and so comes behind it
    Path("jobs").write_text(f"{json.dumps(one)}\n\n{json.dumps(two)}\n")
    times = []
    for gone in ("other/job.json", "other/metrics.parquet", "made/job.json", "other/job.json"):
        assert main(["job", "jobs"]) == 0
        files = (Path(name, "metrics.parquet") for name in ("made", "other"))
        times.append([file.stat().st_mtime_ns for file in files])
        Path(gone).unlink()
    assert [len(set(own)) for own in zip(*times, strict=True)] == [2, 4]
    assert json.loads(Path("made/job.json").read_text())["stage"] == "simulate"
    assert main(["job", "jobs"]) == 0
    Path("made/job.json").unlink()
    assert main(["job", "jobs", "--seconds", "0"]) == 1
    assert not Path("other/job.json").exists()  # it reads what is made again, and is not done
    assert main(["job", "nothing"]) == 2
    Path("jobs").write_text(json.dumps({**one, "stage": "agregate"}))
    assert main(["job", "jobs"]) == 2
    said = capsys.readouterr().err
    assert "cannot be read as jobs" in said
    assert "unknown stage 'agregate' in jobs: did you mean 'aggregate'" in said


def test_a_list_of_one_value_in_a_sweep_is_that_value():
    drawn = {"methods": [{"name": "average"}], "drawing": "accuracy-and-size"}
    listed = small(sweep={"partition.clients": [[2], 4]}, **drawn)
    assert [point.values for point in listed.points] == [{"clients": 2}, {"clients": 4}]
