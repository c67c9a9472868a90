"""A job as a value: its json, its folder, and what makes it run again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import plan

from fedrepro.cli.main import main
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.planning.config import Config, Granularity
from fedrepro.planning.jobs import TrialBlock, folders_of, log_path, read_job
from fedrepro.planning.plan import Plan

FIRST = TrialBlock(0, 1)


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
        again = read_job(json.loads(job.text))
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
    found = plan("tiny")
    return next(run for run in found.splits if run.method.name == name)


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
    folders += [jobs.run(run, TrialBlock(2, 3)), empty(seed=1).run(run, FIRST)]
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
    files = map(Path, folders_of(jobs.local(run.scenario, FIRST)))
    pieces = [jobs.job(str(file.parent)).clients for file in files]
    assert [j for piece in pieces for j in piece] == list(range(run.scenario.clients))
    assert {len(piece) for piece in pieces[:-1]} <= {each}


def test_pieces_of_trials_and_clients_are_told_apart_and_a_log_lies_beside_the_stages():
    found = folders_of("x-trials-0-3:2-clients-0-2:2")
    assert found == [
        "x-trials-0-1-clients-0-1", "x-trials-0-1-clients-2",
        "x-trials-2-3-clients-0-1", "x-trials-2-3-clients-2",
    ]  # fmt: skip
    assert folders_of("results/tiny/train/x-trials-0-1") == ["results/tiny/train/x-trials-0-1"]
    assert log_path("results/tiny/train/x-1") == "results/tiny/logs/train/x-1.log"


def test_a_process_that_is_given_one_job_finds_it():
    """As on a cluster, where it is the first that the plan is asked for."""
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
        ({"method": "pfnm"}, "method must be {name: ...}, not 'pfnm'"),
        ({"method": {"name": "pfnm", "sigma": 1}}, "unknown parameter 'sigma'"),
        ({"method": {"name": "pfnm", "paired": 2}}, "does not list 2 settings"),
        ({"trials": [1, 0]}, "'trials' cannot be"),
        ({"trials": [0]}, "'trials' cannot be"),
        ({"trials": None}, "'trials' cannot be None"),
        ({"seed": -1}, "'seed' cannot be -1"),
        ({"seed": True}, "'seed' cannot be"),
        ({"evaluate": "test"}, "'evaluate' cannot be 'test'"),
        ({"every": 3}, "'every' cannot be 3"),
        ({"out": ""}, "the key 'out' is missing"),
        ({"out": "a\0b"}, "'out' cannot be"),
    ],
)
def test_what_a_job_cannot_say_is_one_sentence(change, sentence):
    with pytest.raises(FedreproError, match=sentence):
        read_job(JOB | change)


def test_a_job_lacks_something_or_is_of_another_stage(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for change, sentence in (
        ({"method": {"name": "average"}}, "its stage is aggregate, not simulate"),
        ({"stage": "train"}, "the job of stage train: the key 'dataset' is missing"),
    ):
        assert main(["job", json.dumps(JOB | change)]) == 2
        assert sentence in capsys.readouterr().err


def test_jobs_of_a_file_are_run_once_each(tmp_path, monkeypatch, capsys):
    """A list of jobs goes on where it was stopped; what was told otherwise is computed again."""
    monkeypatch.chdir(tmp_path)
    one = JOB | {"method": {"name": "finite_beliefs", "repeats": 2, "steps": 3}}
    two = one | {"trials": [1, 1], "out": "other"}
    Path("jobs").write_text(f"{json.dumps(one)}\n\n{json.dumps(two)}\n")
    times = []
    for _ in range(2):
        assert main(["job", "jobs"]) == 0
        Path("other/job.json").unlink()
        files = (Path(name, "metrics.parquet") for name in ("made", "other"))
        times.append([file.stat().st_mtime_ns for file in files])
    (made, other), (made_again, other_again) = times
    assert (made_again == made, other_again > other) == (True, True)
    assert json.loads(Path("made/job.json").read_text())["stage"] == "simulate"
    assert main(["job", "nothing"]) == 2
    assert "cannot be read as jobs" in capsys.readouterr().err
