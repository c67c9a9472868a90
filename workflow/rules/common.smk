"""Functions of the rules: jobs of folders, their inputs, and what pages show."""

import itertools
import json
import os
import re
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from fedrepro.core.artifacts import SCHEMA_VERSION
from fedrepro.cli import job_server, snakemake_support
from fedrepro.planning.config import (
    SCALES,
    load_exhibits,
    read_config,
    table_names,
)
from fedrepro.data.raw_files import raw_files as files_of
from fedrepro.core.errors import FedreproError
from fedrepro.core.paper_files import OWN_EXHIBITS, claims_file, published_file
from fedrepro.core.source_digests import digest_of_file
from fedrepro.numbers.verdicts.printed_verdicts import leave_out_mistaken
from fedrepro.planning.jobs import METRICS, TIMINGS
from fedrepro.planning.plan import Plan, part_keys, parts_of
from fedrepro.core.registry import components
from snakemake.exceptions import WorkflowError

snakemake_support.add_scripts_to_path()


@contextmanager
def sentences():
    """Turn a refusal of the package into one of the workflow, without a traceback."""
    try:
        yield
    except FedreproError as error:
        raise WorkflowError(str(error)) from None


with sentences():
    CONFIG = read_config(config)
    EXHIBITS = load_exhibits(OWN_EXHIBITS if CONFIG.papers == "own" else None)
snakemake_support.export_settings(
    CONFIG.mirror_folder(), CONFIG.checkpoint_seconds, CONFIG.components
)


onstart:
    if workflow.is_main_process and workflow.executor_plugin.name == "slurm":
        with sentences():
            for sentence in snakemake_support.prepare_slurm(
                workflow.executor_settings, os.getcwd()
            ):
                print(f"fedrepro: {sentence}", file=sys.stderr)
    # only for jobs of this machine: elsewhere a job may have another environment
    if CONFIG.preload and workflow.is_main_process and workflow.local_exec:
        jobs = snakemake_support.waiting_jobs(workflow)
        lifeline = job_server.start_server(jobs)
    if workflow.is_main_process and workflow.local_exec:
        snakemake_support.lift_limit(workflow)


onsuccess:
    if workflow.is_main_process:
        failed = []
        for scale in scales_asked_for():
            sentences, drawn = snakemake_support.take_failed(scale)
            snakemake_support.forget(workflow, drawn)
            failed += sentences
        if failed:
            raise WorkflowError(
                *(f"fedrepro: {said}" for said in failed),
                "fedrepro: all else is drawn; the next run tries these again",
            )


onerror:
    if workflow.is_main_process:
        snakemake_support.repeat_errors(log)


with sentences():
    snakemake_support.join(workflow, onstart, onerror)

# Snakemake removes a job's files before it runs again. So jobs draw here, and finished drawings are
# copied to `reports`: an earlier figure stays if drawing it again fails.
DRAWN = "results/drawn/{scale}"
FIGURE = (".svg", ".png", ".csv", ".choice.csv", ".json", ".metrics.parquet")
TABLE = (".html", ".printed.csv", *FIGURE[2:])
BOARD = (".groups.svg", ".csv", ".scenarios.csv", ".times.csv", ".json", ".groups.png")
# names of exhibits that are written as tables, each after its scale and paper; others are drawn
TABLES = (
    "|".join(
        f"(?<=/{place}/)(?:{'|'.join(names)})"
        for place, names in table_names(EXHIBITS).items()
    )
    or "(?!)"
)
GPUS = int(CONFIG.device == "cuda")


def growing(amount):
    """Raise a limit in MB or minutes by `amount` with each attempt."""
    return lambda wildcards, attempt: amount * attempt


wildcard_constraints:
    scale="tiny|quick|paper",
    job="[^/]+",
    paper="[a-z0-9]+",
    exhibit=rf"(?!(?:claims|[1-9][0-9]*|{TABLES})\.)[a-z0-9-]+",
    board="[1-9][0-9]*",


@cache
def plan_of(scale):
    """Plan the exhibits of a scale."""
    with sentences():
        plan = Plan(CONFIG, EXHIBITS, scale)
        if workflow.is_main_process:
            leave_out_mistaken(plan)
        return plan


def scales_asked_for():
    """Return the scale of the configuration, and those in names of targets."""
    words = " ".join(sys.argv)
    return [s for s in SCALES if s == CONFIG.scale or f"/{s}/" in words]


if workflow.is_main_process:
    for scale in scales_asked_for():
        for sentence in plan_of(scale).mistakes:
            print(f"fedrepro: {sentence}", file=sys.stderr)


# ------------------------------------------------------------------------------ jobs that compute


def job_of(stage, wildcards):
    """Return the job of a folder."""
    with sentences():
        folder = f"results/{wildcards.scale}/{stage}/{wildcards.job}"
        return plan_of(wildcards.scale).job(folder)


# These take wildcards alone: Snakemake does not run a job again after a change of a parameter that
# depends on inputs or outputs.
def text_of(stage):
    """Return the json of a job of this stage."""
    return lambda wildcards: job_of(stage, wildcards).text


def digest_of(stage):
    """Return the digest by whose change it runs again: files and versions of its components."""
    return lambda wildcards: job_of(stage, wildcards).digest


def read_by(stage, name):
    """Return the inputs of this name of a job of this stage."""

    def paths(wildcards):
        job = job_of(stage, wildcards)
        return job.models if name == "local" else getattr(job, name) or []

    return paths


def raw_files(wildcards):
    """Return the files of a data set; none if a package includes it."""
    job = job_of("prepare", wildcards)
    return [f"{job.raw}/{name}" for name in files_of(job.specs["dataset"])]


# --------------------------------------------------------------------------------- jobs that draw


OF_PLAN = {"seed": CONFIG.seed, "granularity": CONFIG.granularity.model_dump()}


def drawing(stage, **keys):
    """Return the json of a job that draws; its keys may have wildcards, or be functions of them."""

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
    with sentences():
        key = f"{wildcards.paper}/{wildcards.exhibit}"
        return plan_of(wildcards.scale).exhibit(key)


def selected_keys(wildcards):
    return [exhibit.key for exhibit in plan_of(wildcards.scale).selected]


def shown_keys(wildcards):
    """Return the selected exhibits, and those drawn before, which pages show as they are."""
    from fedrepro.numbers.exhibit_files import whole_exhibits

    plan = plan_of(wildcards.scale)
    reports = Path(f"reports/{wildcards.scale}")
    drawn = whole_exhibits(reports, plan.exhibits, wildcards.scale)
    return list(dict.fromkeys([*selected_keys(wildcards), *drawn]))


def shown_keys_of_paper(wildcards):
    return [
        key for key in shown_keys(wildcards) if key.startswith(f"{wildcards.paper}/")
    ]


def report_of_configured_scale():
    """Return the target; plan first, so that a mistake is one sentence before any job runs.

    Where files are asked for by name, mistakes in other exhibits do not matter.
    """
    named = any(word.startswith(("reports/", "results/")) for word in sys.argv)
    with sentences():
        named or plan_of(CONFIG.scale).selected
    asked = any(word.partition("=")[0] == "--report" for word in sys.argv)
    if asked and not named:
        return there_for_report(SimpleNamespace(scale=CONFIG.scale))
    return f"reports/{CONFIG.scale}/index.html"


def there_for_report(wildcards):
    """Return the selected files that Snakemake's report can show; print which are left out.

    Verdicts and leaderboards need all of their exhibits.
    """
    from fedrepro.numbers.exhibit_files import whole_exhibits

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
    """Return the digest of a paper's claims, wherever the file lies."""
    return digest_of_file(str(claims_file(wildcards.paper)))


def read_by_exhibit(name):
    """Return the inputs of this name of an exhibit's one-shot jobs."""

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
    """Return the labels of an exhibit in Snakemake's report."""
    return {
        "exhibit": wildcards.exhibit,
        "shows": exhibit_of(wildcards).settings.title,
        "scale": wildcards.scale,
    }


def name_of_paper(wildcards):
    from fedrepro.record.site.pages import paper_name

    return paper_name(wildcards.paper)


def caption_of(wildcards):
    """Return the caption of an exhibit, with signs of reStructuredText escaped."""
    return re.sub(r"([*_`|\\])", r"\\\1", exhibit_of(wildcards).caption)


def exhibit_settings(wildcards):
    """Return everything that a drawing depends on; a changed label computes nothing."""
    exhibit = exhibit_of(wildcards)
    settings = exhibit.settings.model_dump_json()
    # a table compares with the paper's printed values, wherever their file lies
    printed = str(published_file(wildcards.paper)) if exhibit.is_table else ""
    digest = digest_of_file(printed)
    return f"{settings} {digest}" if digest else settings


def partitions_of_selected(wildcards):
    """Return the partitions of the selected exhibits in the first trial."""
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
    """Return everything that drawings of graphs depend on, files of weights included."""
    found = plan_of(wildcards.scale).graphs(selected_keys(wildcards))
    return ";".join(f"{graph.resolved} {nodes}" for graph, nodes in found)


def graph_maps_of_selected(wildcards):
    """Return the folder of drawings of graphs, if the selected exhibits have any."""
    plan = plan_of(wildcards.scale)
    return (
        [f"reports/{wildcards.scale}/graphs"]
        if plan.graphs(selected_keys(wildcards))
        else []
    )


def selected_keys_of_paper(wildcards):
    plan = plan_of(wildcards.scale)
    return [e.key for e in plan.selected if e.paper == wildcards.paper]


def selected_tables_of_paper(wildcards):
    """Return the numbers by which the claims of a paper are judged."""
    return [
        f"reports/{wildcards.scale}/{key}{suffix}"
        for key in selected_keys_of_paper(wildcards)
        for suffix in (".csv", ".json")
    ]


def claims_of_selected(wildcards):
    """Return the verdicts of every paper with selected exhibits and claims."""
    papers = dict.fromkeys(e.paper for e in plan_of(wildcards.scale).selected)
    return [
        f"reports/{wildcards.scale}/{paper}/claims.csv"
        for paper in papers
        if claims_file(paper).exists()
    ]


def parts_of_board(wildcards):
    """Return the numbers of all exhibits of a leaderboard."""
    plan, paper = plan_of(wildcards.scale), wildcards.paper
    if wildcards.board not in plan.files[paper].boards:
        raise WorkflowError(f"there is no leaderboard {paper}/{wildcards.board}")
    return [
        plan.exhibit_file(exhibit.key, suffix)
        for exhibit in parts_of(plan, paper, wildcards.board)
        for suffix in (".csv", ".choice.csv", ".json")
    ]


def board_settings(wildcards):
    """Return a leaderboard's settings; a changed title computes nothing."""
    return EXHIBITS[wildcards.paper].boards[wildcards.board].model_dump_json()


def boards_of_selected(wildcards):
    """Return the leaderboards whose exhibits are all selected."""
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
    """Return the table or figure of each selected exhibit."""
    plan = plan_of(wildcards.scale)
    return [plan.exhibit_file(e.key, e.suffix) for e in plan.selected]


def selected_timings(wildcards):
    plan = plan_of(wildcards.scale)
    runs = dict.fromkeys(path for e in plan.selected for path in plan.metrics_files(e))
    return [path.replace(METRICS, TIMINGS) for path in runs]
