"""What the project adds to Snakemake's own planning: dry runs over thousands of jobs.

    .venv/bin/fedrepro bench planning

Granularity is set to one client and one trial per job, and the trials of one exhibit are raised
until it takes about the asked number of jobs. Against it stands a bare Snakefile with as
many jobs, rules, files and edges of the same shape, and nothing to compute in Python.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness
import yaml

from fedrepro.core.paper_files import exhibits_of
from fedrepro.planning.config_files import ExhibitFile

SNAKEMAKE = Path(sys.executable).with_name("snakemake")
EXHIBIT = "pfnm/figure-2a"
CLIENTS = (10, 20, 30, 40)
METHODS = 11  # of the exhibit, about

BARE = """
CLIENTS = {clients}
TRIALS = range({trials})
METHODS = range({methods})

rule all:
    input: expand("done/{{j}}/{{t}}/{{m}}.txt", j=CLIENTS, t=TRIALS, m=METHODS)

rule prepare:
    output: directory("data")
    shell: "mkdir {{output}}"

rule partition:
    input: "data"
    output: "parts/{{j}}/{{t}}.txt"
    shell: "touch {{output}}"

rule train:
    input: "data", "parts/{{j}}/{{t}}.txt"
    output: "models/{{j}}/{{t}}/{{c}}.txt", "models/{{j}}/{{t}}/{{c}}.times.txt"
    log: "logs/models/{{j}}/{{t}}/{{c}}.log"
    benchmark: "benchmarks/models/{{j}}/{{t}}/{{c}}.tsv"
    shell: "touch {{output}}"

rule aggregate:
    input:
        "data",
        "parts/{{j}}/{{t}}.txt",
        lambda w: [f"models/{{w.j}}/{{w.t}}/{{c}}.txt" for c in range(int(w.j))],
    output: "done/{{j}}/{{t}}/{{m}}.txt"
    log: "logs/done/{{j}}/{{t}}/{{m}}.log"
    shell: "touch {{output}}"
"""


def main() -> int:
    parser = harness.options(__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    given = parser.parse_args()
    each = sum(CLIENTS) + len(CLIENTS) * (METHODS + 1)
    trials = max(1, round(given.jobs / each))
    with tempfile.TemporaryDirectory() as folder:
        ours, bare = Path(folder, "ours"), Path(folder, "bare")
        copy(ours, trials)
        jobs, methods = count(dry_run(ours, f"reports/paper/{EXHIBIT}.csv"), trials)
        bare.mkdir()
        text = BARE.format(clients=CLIENTS, trials=trials, methods=methods)
        (bare / "Snakefile").write_text(text, encoding="utf-8")
        contenders = {
            "fedrepro": lambda: plan(ours, f"reports/paper/{EXHIBIT}.csv"),
            "bare Snakefile": lambda: plan(bare, "all"),
        }
        measured = harness.in_turn(contenders, given.runs, warm=False)
    bare_jobs = measured["bare Snakefile"][0].values["jobs"]
    slower = harness.times_faster(measured, "bare Snakefile", "fedrepro")
    return harness.conclude(
        "planning",
        given.results,
        {"jobs": jobs, "bare_jobs": bare_jobs, "runs": given.runs},
        measured,
        [harness.Target("times the seconds of bare rules", slower, 1.5, at_least=False)],
    )


def workflow_in(folder: Path) -> None:
    """The workflow and its configuration."""
    for name in ("workflow", "config", "envs"):
        shutil.copytree(harness.ROOT / name, folder / name)
    for name in ("Snakefile", "pyproject.toml"):
        shutil.copy(harness.ROOT / name, folder / name)


def copy(folder: Path, trials: int) -> None:
    """The same with one exhibit of very many small jobs."""
    workflow_in(folder)
    config = yaml.safe_load((folder / "config/config.yaml").read_text(encoding="utf-8"))
    config["granularity"] = dict.fromkeys(config["granularity"], 1)
    (folder / "config/config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    paper, name = EXHIBIT.split("/")
    path = folder / f"config/exhibits/{paper}.yaml"
    exhibits = yaml.safe_load(ExhibitFile.model_validate(exhibits_of(paper)).as_yaml())
    at = exhibits["exhibits"][name].setdefault("at", {}).setdefault("paper", {})
    at |= {"sweep": {"partition.clients": list(CLIENTS)}, "trials": trials}
    at |= {"trials_of": {"KD": trials}}
    path.write_text(yaml.safe_dump(exhibits), encoding="utf-8")


def dry_run(folder: Path, target: str) -> str:
    words = [SNAKEMAKE, target, "-n", "--cores", "2", "--quiet", "rules"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=dict(os.environ))
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nthe dry run failed")
    return done.stdout + done.stderr


def plan(folder: Path, target: str) -> harness.Timed:
    began = time.perf_counter()
    text = dry_run(folder, target)
    return harness.Timed(time.perf_counter() - began, {"jobs": count(text, 1)[0]})


def count(text: str, trials: int) -> tuple[int, int]:
    """Jobs of a dry run, and the methods for one number of clients in one of these trials."""
    rows = {name: int(jobs) for name, jobs in re.findall(r"^(\w+) +(\d+)$", text, re.MULTILINE)}
    methods = rows.get("aggregate", 0) + rows.get("federate", 0)
    return rows["total"], round(methods / len(CLIENTS) / trials)


if __name__ == "__main__":
    harness.main(main)
