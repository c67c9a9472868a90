"""Functions that rules call: the job of a folder, its inputs, and which exhibits pages show.

An exhibit is a figure or a table, named paper/exhibit; selected are those that the configuration
asks for. A scale, the size of experiments, is tiny, quick or paper.
"""

import gc
import json
import os
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from fedrepro.core.checksummed_files import SCHEMA_VERSION
from fedrepro.cli import preload_server, snakemake_hooks_and_slurm as hooks
from fedrepro.planning.config_files import Config, load_exhibits, table_names, validated
from fedrepro.planning.exhibit_config import SCALES
from fedrepro.data.raw_files import raw_files as files_of
from fedrepro.core.errors import FedreproError
from fedrepro.core.paper_files import OWN_EXHIBITS, claims_file, published_file
from fedrepro.core.source_digests import digest_of_file
from fedrepro.numbers.verdicts.verdicts_on_printed_values import leave_out_mistaken
from fedrepro.planning.scenarios_runs_and_jobs import METRICS, TIMINGS
from fedrepro.planning.plan import Plan
from fedrepro.core.registry import components
from snakemake.exceptions import WorkflowError

# nothing of a plan is garbage, and looking for some takes a fifth of planning
gc.set_threshold(100_000)
hooks.add_scripts_to_path()
# jobs are planned on one core; meanwhile the server loads on another
lifeline = (
    preload_server.start_server()
    if workflow.is_main_process
    and workflow.resource_settings.cores
    and not workflow.output_settings.dryrun
    else None
)


@contextmanager
def sentences():
    """Turn a FedreproError into a WorkflowError, which Snakemake prints without a traceback."""
    try:
        yield
    except FedreproError as error:
        raise WorkflowError(str(error)) from None


with sentences():
    CONFIG = validated(Config, config, "config/config.yaml")
    EXHIBITS = load_exhibits(OWN_EXHIBITS if CONFIG.papers == "own" else None)
hooks.export_settings(
    CONFIG.mirror_folder(), CONFIG.checkpoint_seconds, CONFIG.components
)


onstart:
    if workflow.is_main_process and workflow.executor_plugin.name == "slurm":
        with sentences():
            for sentence in hooks.prepare_slurm(
                workflow.executor_settings, os.getcwd()
            ):
                print(f"fedrepro: {sentence}", file=sys.stderr)
    # the server is for jobs on this machine alone: elsewhere a job may have another environment
    if lifeline and not workflow.local_exec:
        os.close(lifeline)
        del os.environ[preload_server.SOCKET]
    if workflow.is_main_process and workflow.local_exec:
        hooks.lift_limit(workflow)


onsuccess:
    if workflow.is_main_process:
        failed = []
        for scale in scales_asked_for():
            sentences, drawn = hooks.take_failed(scale)
            hooks.forget(workflow, drawn)
            failed += sentences
        if failed:
            raise WorkflowError(
                *(f"fedrepro: {said}" for said in failed),
                "fedrepro: all else is drawn; the next run tries these again",
            )


onerror:
    if workflow.is_main_process:
        hooks.repeat_errors(log)


# Snakemake removes a job's files before it runs again. So jobs draw here, and finished drawings are
# copied to `reports`: an earlier figure stays if drawing it again fails.
DRAWN = "results/drawn/{scale}"
FIGURE = (".svg", ".png", ".csv", ".choice.csv", ".json", ".metrics.parquet")
TABLE = (".html", ".printed.csv", *FIGURE[2:])
BOARD = (".groups.svg", ".csv", ".scenarios.csv", ".times.csv", ".json", ".groups.png")
# regular expression for names of tables, after their scale and paper; other exhibits are figures
TABLES = (
    "|".join(
        f"(?<=/{place}/)(?:{'|'.join(names)})"
        for place, names in table_names(EXHIBITS).items()
    )
    or "(?!)"
)


def growing(amount):
    """Return a limit, in MB or minutes, that grows by `amount` with each attempt of a job."""
    return lambda wildcards, attempt: amount * attempt


wildcard_constraints:
    scale="tiny|quick|paper",
    job="[^/]+",
    paper="[a-z0-9]+",
    exhibit=rf"(?!(?:claims|[1-9][0-9]*|{TABLES})\.)[a-z0-9-]+",
    board="[1-9][0-9]*",


@cache
def plan_of(scale):
    """Return the plan of a scale: its exhibits, and the jobs and files that they need."""
    with sentences():
        plan = Plan(CONFIG, EXHIBITS, scale)
        if workflow.is_main_process:
            leave_out_mistaken(plan)
        return plan


def scales_asked_for():
    """Return the configured scale, and scales in names of files on the command line."""
    words = " ".join(sys.argv)
    return [s for s in SCALES if s == CONFIG.scale or f"/{s}/" in words]


if workflow.is_main_process:
    for scale in scales_asked_for():
        for sentence in plan_of(scale).mistakes:
            print(f"fedrepro: {sentence}", file=sys.stderr)


def job_of(stage, wildcards):
    """Return the job that writes the folder with these wildcards (scale, job) in a stage."""
    with sentences():
        folder = f"results/{wildcards.scale}/{stage}/{wildcards.job}"
        return plan_of(wildcards.scale).job(folder)


# The next functions take wildcards alone: Snakemake does not run a job again after a change of a
# parameter that depends on inputs or outputs.
def of_job(stage, what):
    """Return a function from wildcards to the `text`, `digest` or `inputs` of a stage's job."""
    return lambda wildcards: getattr(job_of(stage, wildcards), what)


def raw_files(wildcards):
    """Return the paths of a data set's raw files; none if a Python package includes the data."""
    job = job_of("prepare", wildcards)
    return [f"{job.raw}/{name}" for name in files_of(job.specs["dataset"])]


def drawing(stage, **keys):
    """Return a function from wildcards to the json of a job that draws figures or pages.

    Values of `keys` may contain wildcards in braces, or be functions of the wildcards.
    """

    def filled(value, wildcards):
        if callable(value):
            return value(wildcards)
        return value.format(**wildcards) if isinstance(value, str) else value

    return lambda wildcards: json.dumps(
        {"stage": stage, **{key: filled(v, wildcards) for key, v in keys.items()}}
    )


def exhibit_of(wildcards):
    with sentences():
        key = f"{wildcards.paper}/{wildcards.exhibit}"
        return plan_of(wildcards.scale).exhibit(key)


def exhibit_config(wildcards):
    """Return a text of all that a drawing depends on besides numbers, such as labels."""
    exhibit = exhibit_of(wildcards)
    file = plan_of(wildcards.scale).files[exhibit.paper]
    # a table compares with the paper's printed values, wherever their file lies
    printed = str(published_file(wildcards.paper)) if exhibit.is_table else ""
    # the version of a user's drawing has a hash of its file
    version = components("drawing")[exhibit.settings.drawing.name].version
    settings = exhibit.settings.model_dump_json()
    return f"{settings} {file.title} {file.source} {version} {digest_of_file(printed)}"


def timings_of(metrics):
    return [path.replace(METRICS, TIMINGS) for path in metrics]


def read_by_exhibit(wildcards):
    metrics = plan_of(wildcards.scale).metrics_files(exhibit_of(wildcards))
    return [*metrics, *timings_of(metrics)]


def claims_said(wildcards):
    """Return the digest of the file with a paper's claims, independent of its folder."""
    return digest_of_file(str(claims_file(wildcards.paper)))


def board_settings(wildcards):
    """Return a leaderboard's configuration as json; a changed one draws it again."""
    return EXHIBITS[wildcards.paper].boards[wildcards.board].model_dump_json()


def parts_of_board(wildcards):
    """Return the csv and json files of all exhibits of a leaderboard."""
    plan, paper = plan_of(wildcards.scale), wildcards.paper
    if wildcards.board not in plan.files[paper].boards:
        raise WorkflowError(f"there is no leaderboard {paper}/{wildcards.board}")
    keys = plan.files[paper].parts(wildcards.board, plan.scale)
    suffixes = (".csv", ".choice.csv", ".json")
    return [plan.exhibit_file(key, suffix) for key in keys for suffix in suffixes]


def selected_keys(wildcards):
    return [exhibit.key for exhibit in plan_of(wildcards.scale).selected]


def of_paper(keys, paper):
    return [key for key in keys if key.startswith(f"{paper}/")]


def shown_keys(wildcards):
    """Return {key: ""} of selected exhibits, and of those drawn before, which pages show unchanged.

    These are inputs of no rule: their values are digests, by which they are noticed if drawn again.
    """
    from fedrepro.numbers.exhibit_files import whole_exhibits

    scale, shown = wildcards.scale, dict.fromkeys(selected_keys(wildcards), "")
    for key in whole_exhibits(Path("reports", scale), plan_of(scale).exhibits, scale):
        shown.setdefault(key, digest_of_file(f"reports/{scale}/{key}.json"))
    return shown


def shown_keys_of_paper(wildcards):
    shown = shown_keys(wildcards)
    return {key: shown[key] for key in of_paper(shown, wildcards.paper)}


def selected_tables_of_paper(wildcards):
    """Return the csv and json files with which the claims of a paper are judged."""
    keys = of_paper(selected_keys(wildcards), wildcards.paper)
    plan = plan_of(wildcards.scale)
    return [
        plan.exhibit_file(key, suffix) for key in keys for suffix in (".csv", ".json")
    ]


def pages_of_selected(wildcards):
    """Return the files of claims of papers with selected exhibits, and of selected leaderboards."""
    plan, keys = plan_of(wildcards.scale), selected_keys(wildcards)
    for paper in dict.fromkeys(key.partition("/")[0] for key in keys):
        if claims_file(paper).exists():
            yield plan.exhibit_file(f"{paper}/claims", ".csv")
    for paper, file in plan.files.items():
        for version in file.boards:
            parts = file.parts(version, plan.scale)
            if parts and set(parts) <= set(keys):
                yield plan.exhibit_file(f"{paper}/{version}", ".json")


def read_by_site(wildcards):
    plan = plan_of(wildcards.scale)
    runs = dict.fromkeys(path for e in plan.selected for path in plan.metrics_files(e))
    return [
        *(plan.exhibit_file(e.key, e.suffix) for e in plan.selected),
        *pages_of_selected(wildcards),
        *timings_of(runs),
    ]


def report_of_configured_scale():
    """Return the default target, the index page of the configured scale.

    The plan is made here, so that a mistake in an exhibit is reported before any job runs, unless
    files were asked for by name, since mistakes in other exhibits do not matter then.
    """
    if not any(word.startswith(("reports/", "results/")) for word in sys.argv):
        with sentences():
            plan_of(CONFIG.scale).selected
    return f"reports/{CONFIG.scale}/index.html"
