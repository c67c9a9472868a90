"""What the rules ask the plan: the jobs of folders, and what they read."""

import itertools
import json
import os
import re
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from fedrepro.core.artifacts import SCHEMA_VERSION
from fedrepro.cli import (
    hand_over,
    hooks,
    preload,
    put_on_path,
    say_again,
    slurm,
    take_failed,
)
from fedrepro.planning.boards import part_keys, parts_of
from fedrepro.planning.config import (
    SCALES,
    load_exhibits,
    read_config,
    table_names,
)
from fedrepro.data.table import raw_files as files_of
from fedrepro.core.errors import FedreproError
from fedrepro.core.packs import OWN_EXHIBITS, claims_file, published_file
from fedrepro.core.sources import digest_of_file
from fedrepro.verdicts.printed import leave_out_mistaken
from fedrepro.planning.jobs import METRICS, TIMINGS
from fedrepro.planning.plan import Plan
from fedrepro.core.registry import components
from snakemake.exceptions import WorkflowError

put_on_path()

try:
    CONFIG = read_config(config)
    EXHIBITS = load_exhibits(OWN_EXHIBITS if CONFIG.papers == "own" else None)
except FedreproError as error:
    raise WorkflowError(str(error)) from None
hand_over(CONFIG.mirror_folder(), CONFIG.checkpoint_seconds, CONFIG.components)


onstart:
    if workflow.is_main_process and workflow.executor_plugin.name == "slurm":
        try:
            for sentence in slurm.begin(workflow.executor_settings, os.getcwd()):
                print(f"fedrepro: {sentence}", file=sys.stderr)
        except FedreproError as error:
            raise WorkflowError(str(error)) from None
    # for jobs of this machine only: elsewhere the environment of a job may be another one
    if CONFIG.preload and workflow.is_main_process and workflow.local_exec:
        jobs = hooks.waiting_jobs(workflow)
        lifeline = preload.start(jobs)
    if workflow.is_main_process and workflow.local_exec:
        hooks.lift_limit(workflow)


onsuccess:
    if workflow.is_main_process:
        failed = []
        for scale in scales_asked_for():
            sentences, drawn = take_failed(scale)
            hooks.forget(workflow, drawn)
            failed += sentences
        if failed:
            raise WorkflowError(
                *(f"fedrepro: {said}" for said in failed),
                "fedrepro: all else is drawn; the next run tries these again",
            )


onerror:
    if workflow.is_main_process:
        say_again(log)


try:
    hooks.join(workflow, onstart, onerror)
except FedreproError as error:
    raise WorkflowError(str(error)) from None


# Snakemake removes what a job wrote before it runs again. So all is drawn here, and copied to
# `reports` once it is whole: a figure that was there stays while drawing it again fails.
DRAWN = "results/drawn/{scale}"
FIGURE = (".svg", ".png", ".csv", ".choice.csv", ".json", ".metrics.parquet")
TABLE = (".html", ".md", ".tex", ".printed.csv", *FIGURE[2:])
BOARD = (
    *(".groups.svg", ".csv", ".scenarios.csv", ".times.csv", ".json", ".groups.png"),
    *(".gains.svg", ".gains.png", ".bytes.svg", ".bytes.png"),
    *(".scenarios.svg", ".scenarios.png"),
)
# the names of exhibits that are written as tables, each behind its scale and paper; every other
# one is drawn
TABLES = (
    "|".join(
        f"(?<=/{place}/)(?:{'|'.join(names)})"
        for place, names in table_names(EXHIBITS).items()
    )
    or "(?!)"
)
GPUS = int(CONFIG.device == "cuda")


def growing(amount):
    """A limit in MB or minutes; a job that failed is tried again with once more as much."""
    return lambda wildcards, attempt: amount * attempt


wildcard_constraints:
    scale="tiny|quick|paper",
    job="[^/]+",
    paper="[a-z0-9]+",
    exhibit=rf"(?!(?:claims|[1-9][0-9]*|{TABLES})\.)[a-z0-9-]+",
    board="[1-9][0-9]*",


@cache
def plan_of(scale):
    """The plan of a scale; a mistake in the exhibits becomes one sentence."""
    try:
        plan = Plan(CONFIG, EXHIBITS, scale)
        if workflow.is_main_process:
            leave_out_mistaken(plan)
        return plan
    except FedreproError as error:
        raise WorkflowError(str(error)) from None


def scales_asked_for():
    """The scale of the configuration, and those of files that are asked for by name."""
    words = " ".join(sys.argv)
    return [s for s in SCALES if s == CONFIG.scale or f"/{s}/" in words]


if workflow.is_main_process:
    for scale in scales_asked_for():
        for sentence in plan_of(scale).mistakes:
            print(f"fedrepro: {sentence}", file=sys.stderr)


# ------------------------------------------------------------------------------ jobs that compute


def job_of(stage, wildcards):
    """The job of a folder, as the plan has it."""
    folder = f"results/{wildcards.scale}/{stage}/{wildcards.job}"
    try:
        return plan_of(wildcards.scale).job(folder)
    except FedreproError as error:
        raise WorkflowError(str(error)) from None


# What these return takes wildcards alone: Snakemake does not run a job again for a parameter that
# is made from its inputs or outputs.
def text_of(stage):
    """All that a job of this stage is told, as json."""
    return lambda wildcards: job_of(stage, wildcards).text


def digest_of(stage):
    """What makes it run again beside its text: files and versions of its components."""
    return lambda wildcards: job_of(stage, wildcards).digest


def read_by(stage, name):
    """The file or folder of this name that a job of this stage reads; all those of local models."""

    def paths(wildcards):
        job = job_of(stage, wildcards)
        return job.models if name == "local" else getattr(job, name) or []

    return paths


def raw_files(wildcards):
    """The files that a data set is made from; none if it is embedded in a package."""
    job = job_of("prepare", wildcards)
    return [f"{job.raw}/{name}" for name in files_of(job.specs["dataset"])]


# --------------------------------------------------------------------------------- jobs that draw


OF_PLAN = {"seed": CONFIG.seed, "granularity": CONFIG.granularity.model_dump()}


def drawing(stage, **keys):
    """The json of a job that draws.

    keys: its arguments; texts may hold wildcards, and a function is asked what they come to.
    """

    def text(wildcards):
        given = {
            key: (
                value.format(**wildcards)
                if isinstance(value, str)
                else value(wildcards) if callable(value) else value
            )
            for key, value in keys.items()
        }
        return json.dumps({"stage": stage, **given})

    return text


def exhibit_of(wildcards):
    try:
        return plan_of(wildcards.scale).exhibit(
            f"{wildcards.paper}/{wildcards.exhibit}"
        )
    except FedreproError as error:
        raise WorkflowError(str(error)) from None


def selected_keys(wildcards):
    return [exhibit.key for exhibit in plan_of(wildcards.scale).selected]


def shown_keys(wildcards):
    """The selected exhibits, and what was drawn before: a page of some forgets none of the others.

    These are shown as they are; nothing is computed for them.
    """
    from fedrepro.numbers.files import whole_exhibits

    plan = plan_of(wildcards.scale)
    reports = Path(f"reports/{wildcards.scale}")
    drawn = whole_exhibits(reports, plan.exhibits, wildcards.scale)
    return list(dict.fromkeys([*selected_keys(wildcards), *drawn]))


def shown_keys_of_paper(wildcards):
    return [
        key for key in shown_keys(wildcards) if key.startswith(f"{wildcards.paper}/")
    ]


def report_of_configured_scale():
    """The plan is made here, before any job, so that a mistake in what the configuration asks for
    ends in one sentence; where files are asked for by their names, others do not matter.
    """
    named = any(word.startswith(("reports/", "results/")) for word in sys.argv)
    try:
        named or plan_of(CONFIG.scale).selected
    except FedreproError as error:
        raise WorkflowError(str(error)) from None
    asked = any(word.partition("=")[0] == "--report" for word in sys.argv)
    if asked and not named:
        return there_for_report(SimpleNamespace(scale=CONFIG.scale))
    return f"reports/{CONFIG.scale}/index.html"


def there_for_report(wildcards):
    """What Snakemake's report can show of the selected exhibits; it says what is left out.

    Verdicts and leaderboards need all exhibits that they are made of.
    """
    from fedrepro.numbers.files import whole_exhibits

    plan, reports = plan_of(wildcards.scale), Path(f"reports/{wildcards.scale}")
    keys = selected_keys(wildcards)
    whole = set(whole_exhibits(reports, keys, wildcards.scale))
    found = [
        plan.exhibit_file(e.key, e.suffix) for e in plan.selected if e.key in whole
    ]
    missing = [key for key in keys if key not in whole]
    made = {
        path: [key for key in keys if key.startswith(f"{Path(path).parent.name}/")]
        for path in claims_of_selected(wildcards)
    }
    for path in boards_of_selected(wildcards):
        made[path] = part_keys(plan, Path(path).parent.name, Path(path).stem)
    for path, parts in made.items():
        there = Path(path).exists() and whole.issuperset(parts)
        (found if there else missing).append(path)
    if not found:
        raise WorkflowError(
            f"{reports} has nothing to report yet: run snakemake without --report first"
        )
    if missing:
        print(
            f"The report leaves out what is not there yet: {', '.join(missing)}",
            file=sys.stderr,
        )
    return found


def metrics_files(wildcards):
    return plan_of(wildcards.scale).metrics_files(exhibit_of(wildcards))


def timings_files(wildcards):
    return [path.replace(METRICS, TIMINGS) for path in metrics_files(wildcards)]


def claims_said(wildcards):
    """What the paper says in words, by its digest: where the file lies is no matter."""
    return digest_of_file(str(claims_file(wildcards.paper)))


def read_by_exhibit(name):
    """The files or folders of this name that the one-shot jobs of an exhibit read."""

    def paths(wildcards):
        jobs = plan_of(wildcards.scale).jobs_of(exhibit_of(wildcards))
        found = [
            job
            for job in jobs
            if "method" in job.specs
            and job.specs["method"].component.meta["kind"] == "one_shot"
        ]
        each = [
            job.models if name == "local" else [getattr(job, name)] for job in found
        ]
        return list(dict.fromkeys(itertools.chain(*each)))

    return paths


def labels_of(wildcards):
    """What Snakemake's report lists of an exhibit."""
    return {
        "exhibit": wildcards.exhibit,
        "shows": exhibit_of(wildcards).settings.title,
        "scale": wildcards.scale,
    }


def name_of_paper(wildcards):
    from fedrepro.site.pages import name_of

    return name_of(wildcards.paper)


def caption_of(wildcards):
    """The caption of an exhibit for the report, where signs of reStructuredText are plain."""
    return re.sub(r"([*_`|\\])", r"\\\1", exhibit_of(wildcards).caption)


def exhibit_settings(wildcards):
    """Everything that the drawing depends on; a changed label redraws and recomputes nothing."""
    exhibit = exhibit_of(wildcards)
    settings = exhibit.settings.model_dump_json()
    # a table sets what the paper printed beside ours; where that file lies is no matter
    printed = str(published_file(wildcards.paper)) if exhibit.is_table else ""
    digest = digest_of_file(printed)
    return f"{settings} {digest}" if digest else settings


def partitions_of_selected(wildcards):
    """The partitions that the selected exhibits are about, in the first trial."""
    plan = plan_of(wildcards.scale)
    (first,) = plan.blocks(1)
    return [
        plan.jobs.partition(*pair, first)
        for pair in plan.partitions(selected_keys(wildcards))
    ]


def data_of_selected(wildcards):
    plan = plan_of(wildcards.scale)
    datasets = dict.fromkeys(d for d, _ in plan.partitions(selected_keys(wildcards)))
    return [plan.jobs.dataset(dataset) for dataset in datasets]


def resolved_graphs(wildcards):
    """What the drawings of graphs depend on: all parameters and versions, and files of weights."""
    found = plan_of(wildcards.scale).graphs(selected_keys(wildcards))
    return ";".join(f"{graph.resolved} {nodes}" for graph, nodes in found)


def graph_maps_of_selected(wildcards):
    """The drawings of graphs, where the selected exhibits have methods on such."""
    plan = plan_of(wildcards.scale)
    return [plan.maps_folder("graphs")] if plan.graphs(selected_keys(wildcards)) else []


def selected_keys_of_paper(wildcards):
    plan = plan_of(wildcards.scale)
    return [exhibit.key for exhibit in plan.selected_of(wildcards.paper)]


def selected_tables_of_paper(wildcards):
    """What the claims of a paper are judged by: the numbers of its selected exhibits."""
    return [
        f"reports/{wildcards.scale}/{key}{suffix}"
        for key in selected_keys_of_paper(wildcards)
        for suffix in (".csv", ".json")
    ]


def claims_of_selected(wildcards):
    """The verdicts of every paper that has selected exhibits and published claims."""
    papers = dict.fromkeys(e.paper for e in plan_of(wildcards.scale).selected)
    return [
        f"reports/{wildcards.scale}/{paper}/claims.csv"
        for paper in papers
        if claims_file(paper).exists()
    ]


def parts_of_board(wildcards):
    """The numbers of all exhibits of a leaderboard."""
    plan, paper = plan_of(wildcards.scale), wildcards.paper
    if wildcards.board not in plan.files[paper].boards:
        raise WorkflowError(f"there is no leaderboard {paper}/{wildcards.board}")
    return [
        plan.exhibit_file(exhibit.key, suffix)
        for exhibit in parts_of(plan, paper, wildcards.board)
        for suffix in (".csv", ".choice.csv", ".json")
    ]


def board_settings(wildcards):
    """What a leaderboard is read by; a changed title draws it again and computes nothing."""
    return EXHIBITS[wildcards.paper].boards[wildcards.board].model_dump_json()


def boards_of_selected(wildcards):
    """The leaderboards whose exhibits are all selected."""
    plan = plan_of(wildcards.scale)
    chosen = {exhibit.key for exhibit in plan.selected}
    found = []
    for paper, file in plan.files.items():
        for version in file.boards:
            parts = set(part_keys(plan, paper, version))
            if parts and parts <= chosen:
                found.append(f"reports/{wildcards.scale}/{paper}/{version}.json")
    return found


def selected_files(wildcards):
    """What people look at: a table or a figure."""
    plan = plan_of(wildcards.scale)
    return [plan.exhibit_file(e.key, e.suffix) for e in plan.selected]


def selected_timings(wildcards):
    plan = plan_of(wildcards.scale)
    runs = dict.fromkeys(path for e in plan.selected for path in plan.metrics_files(e))
    return [path.replace(METRICS, TIMINGS) for path in runs]
