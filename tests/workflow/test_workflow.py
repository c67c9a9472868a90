"""The workflow end to end, at the tiny scale: real data, real jobs, real files."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import exact
import loaded
import once
import pytest
from mirror import MIRROR, ROOT, needs_mirror

from fedrepro.core.paper_files import exhibits_of
from fedrepro.core.registry import components
from fedrepro.planning.config_files import ExhibitFile
from fedrepro.planning.scenarios_runs_and_jobs import dataset_folder

BIN = Path(sys.executable).parent
FIGURES = ("pfnm/figure-2a", "pfnm/figure-2b")
SUFFIXES = (".svg", ".png", ".csv", ".choice.csv", ".json", ".metrics.parquet")

DIGITS = components("dataset")["digits"].spec()

pytestmark = pytest.mark.workflow


def checkout(folder: Path, scale: str = "tiny") -> Path:
    """The working tree as a new clone would have it, set to a scale; the environment is shared."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file() and not name.startswith("tests/"):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    # what Python has compiled of these very files: else every clone compiles all of them anew
    for made in (ROOT / "src").rglob("__pycache__/*.pyc"):
        target = folder / made.relative_to(ROOT)
        if (target.parents[1] / f"{made.name.partition('.')[0]}.py").exists():
            target.parent.mkdir(exist_ok=True)
            shutil.copy2(made, target)
    edit(folder / "config/config.yaml", "scale: quick", f"scale: {scale}")
    (folder / ".venv").symlink_to(BIN.parent)
    return folder


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def own_exhibits(folder: Path) -> Path:
    """PFNM's exhibits as a file of this folder, to be changed: it goes before the paper's own."""
    path = folder / "config/exhibits/pfnm.yaml"
    if not path.exists():
        file = ExhibitFile.model_validate(exhibits_of("pfnm"))
        path.write_text(file.as_yaml(), encoding="utf-8")
    return path


def environment(**env: str) -> dict[str, str]:
    """As of a user who has not activated the environment."""
    clean = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "FEDREPRO_MIRROR")}
    clean["PATH"] = os.pathsep.join(
        p for p in os.environ["PATH"].split(os.pathsep) if p != str(BIN)
    )
    return {**clean, **env}


def snakemake(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return loaded.snakemake(folder, words, environment(**env))


def by_path(folder: Path) -> None:
    words = [".venv/bin/snakemake", "--cores", "2"]
    done = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]


def run(folder: Path, *words: str, **env: str) -> str:
    done = snakemake(folder, "--cores", "2", *words, **env)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr + done.stdout


def planned(folder: Path, *words: str, **env: str) -> set[str]:
    return rules_in(dry_run(folder, *words, **env))


def dry_run(folder: Path, *words: str, **env: str) -> str:
    done = snakemake(folder, "-n", *words, **env)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout + done.stderr


def rules_in(text: str) -> set[str]:
    if "Job stats:" not in text:
        assert "Nothing to be done" in text, text[-2000:]
        return set()
    table = text.split("Job stats:")[1].split("total")[0].split("\n")[3:]
    rules = {line.split()[0] for line in table if line.split()} - {"all"}
    return {rule for rule in rules if not rule.startswith("report_")}  # which only copy


def products(folder: Path) -> dict[str, bytes]:
    found = [p for top in ("results", "reports/tiny") for p in (folder / top).rglob("*")]
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in found
        if p.suffix in (".parquet", ".pt", ".csv") and p.name != "timings.parquet"
    }


@pytest.fixture(scope="session")
def finished() -> Path:
    """An undisturbed run of the tiny scale, which no test may change."""
    return once.folder("finished", lambda folder: by_path(checkout(folder)))


def test_one_command_writes_the_report_with_every_figure_and_nothing_half(finished):
    assert "site/index.html" in (finished / "reports/tiny/index.html").read_text()
    made = (finished / "reports/tiny/site/papers").glob("*.html")
    page = " ".join(path.read_text() for path in made)
    for key in FIGURES:
        for suffix in SUFFIXES:
            assert (finished / f"reports/tiny/{key}{suffix}").stat().st_size > 0
        assert f"reports/tiny/{key}.svg" in page
    assert not [p for p in finished.rglob("*.tmp") if ".snakemake" not in p.parts]
    assert not list(finished.rglob("checkpoints"))


@pytest.mark.skipif(not exact.PORTABLE, reason="libraries are not pinned")
def test_bytes_of_all_metrics_are_those_in_the_repository(finished):
    golden = {k: v for k, v in exact.kept().items() if k.startswith("tiny ")}
    found = {f"tiny {path}": value for path, value in exact.of_tiny(finished).items()}
    assert sorted(k for k in {*golden, *found} if golden.get(k) != found.get(k)) == [], exact.HINT


@pytest.mark.nightly
def test_an_interrupted_run_ends_with_the_bytes_of_an_undisturbed_one(finished, tmp_path):
    """Of an exhibit of each paper, in another folder, with SIGKILL for make, Snakemake and every
    job, amid rounds as well; then `make`, nothing else."""
    folder = checkout(tmp_path / "another folder, killed")
    drawn = sorted((finished / "reports/tiny").glob("*/*.metrics.parquet"))
    keys = {path.parent.name: path.name.removesuffix(".metrics.parquet") for path in drawn}
    named = [f"{paper}/{name}" for paper, name in keys.items()]
    edit(folder / "config/config.yaml", "exhibits: headline", f"exhibits: [{', '.join(named)}]")
    edit(folder / "config/config.yaml", "checkpoint_seconds: 20", "checkpoint_seconds: 0")
    make = ["make", "CORES=2", "READY="]
    for pattern in ("*.parquet", *["checkpoints/*.pt"] * 6):
        before = versions_of(folder, pattern)
        process = subprocess.Popen(
            make, cwd=folder, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        # each kill waits for new files, so that the moments differ and the run gets further
        wait_until(lambda p=pattern, b=before: bool(versions_of(folder, p) - b), process)
        kill_tree(process.pid)
        process.wait()
        # a job that had just begun, or was just ending, may outlive its parents for a moment
        while (now := versions_of(folder, "*")) != before:
            before = now
            time.sleep(1)
        if amid_rounds := bool(versions_of(folder, "checkpoints/*.pt")):
            break  # on a busy machine the last round may be over before the kill arrives
    assert amid_rounds
    last = subprocess.run(make, cwd=folder, capture_output=True, text=True)
    assert last.returncode == 0, last.stderr[-4000:]
    logs = (folder / "results/tiny/logs").rglob("*.log")
    assert any("going on from round" in log.read_text() for log in logs)
    whole, made = products(finished), products(folder)
    exhibits = {f"reports/tiny/{key}.csv" for key in named}
    jobs = {name for name in made if name.startswith("results/tiny/")}
    assert [name for name in exhibits | jobs if made[name] != whole.get(name)] == []
    assert any(name.endswith(".pt") for name in jobs)
    assert not list((folder / "results").rglob("*.tmp"))


def versions_of(folder: Path, pattern: str) -> set[tuple[Path, int]]:
    found = set()
    for path in (folder / "results").rglob(pattern):
        with contextlib.suppress(FileNotFoundError):  # a checkpoint that has just ended
            found.add((path, path.stat().st_mtime_ns))
    return found


def wait_until(true: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 300
    while time.monotonic() < end and process.poll() is None:
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("the run ended, or made no progress, before its moment came")


def kill_tree(root: int) -> None:
    """SIGKILL to a process and all below it, children found before their parent is gone."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True).stdout
    parents = {int(a): int(b) for a, b in (line.split() for line in listed.splitlines())}
    found, level = [root], [root]
    while level:
        level = [pid for pid, parent in parents.items() if parent in level]
        found += level
    for pid in found:
        kill(pid)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def made_anew(folder: Path) -> list[str]:
    found = [job["out"] for job in jobs_in(dry_run(folder, "--printshellcmds"))]
    return [out for out in found if out.startswith("results/tiny/")]


def test_an_edited_exhibit_leaves_finished_files_alone(finished, tmp_path):
    folder = copy_of(finished, tmp_path)
    assert "Nothing to be done" in run(folder)
    exhibits = own_exhibits(folder)
    edit(exhibits, "sigma2: [0.01, 0.05,", "sigma2: [0.02, 0.05,")
    said = dry_run(folder, "--printshellcmds")
    assert rules_in(said) == {"aggregate", "exhibit", "claims", "site"}
    measured = [job for job in jobs_in(said) if job["stage"] == "aggregate"]
    assert {job["method"]["sigma2"][0] for job in measured} == {0.02}
    edit(exhibits, "sigma2: [0.02, 0.05,", "sigma2: [0.01, 0.05,")

    had = {str(Path(path).parent) for path in products(folder) if path.startswith("results/")}
    average = "  - {name: average, label: parameter average}\n"
    added = "  - {name: concatenation, class_weights: false, label: as it is}\n"
    concatenation = "  - {name: concatenation, label"
    edit(exhibits, average + concatenation, average + added + concatenation)
    new = made_anew(folder)
    assert len(new) == 4  # two partitions, two numbers of clients
    assert all("-concatenation-" in path for path in new)

    fewer = "      trials: 2\n      trials_of: {KD: 1}\n"
    edit(exhibits, fewer, fewer.replace("trials: 2", "trials: 3", 1))
    new = made_anew(folder)
    assert not had & set(new)
    more = [path for path in new if "-concatenation-" not in path]
    assert more
    assert all("-trials-2-3" in path and "distillation" not in path for path in more)


@pytest.mark.parametrize(
    ("file", "old", "new", "rules"),
    [
        (
            "methods/downpour_sgd.py", "] = 10\n", "] = 11\n",
            {"federate", "exhibit", "claims", "site"},
        ),
        (
            "methods/average.py", "", "# another line\n",  # all that lies in the file
            {"aggregate", "exhibit", "table", "claims", "site"},
        ),
        (
            "components/trainings/optimisers.py", "lr: Lr = 0.01", "lr: Lr = 0.02",
            {"train", "aggregate", "federate", "peer", "exhibit", "table", "claims", "site"},
        ),
        (
            "components/datasets/digits_and_generated_shapes.py", "version=1", "version=9",
            {"prepare", "partition", "train", "aggregate", "federate", "peer", "exhibit",
             "table", "claims", "site"},
        ),
    ],
)  # fmt: skip
def test_a_changed_default_version_or_file_reruns_what_it_touches(
    finished, tmp_path, file, old, new, rules
):
    folder = copy_of(finished, tmp_path)
    path = folder / "src/fedrepro" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    if file == "components/trainings/optimisers.py":
        # the exhibit names the step size; it must not, for the default to count
        edit(own_exhibits(folder), "lr: 0.01, ", "")
    assert planned(folder, PYTHONPATH=str(folder / "src")) == rules


def copy_of(finished: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder, symlinks=True)
    return folder


def test_the_slurm_profile_plans_the_same_files_and_gives_more_to_a_job_that_failed(tmp_path):
    """Through a cluster on which every job fails."""
    folder = checkout(tmp_path / "slurm")
    pytest.importorskip("snakemake_executor_plugin_slurm")
    settings = folder / "profiles/slurm/config.yaml"
    edit(settings, "clients_per_job: 1", "clients_per_job: all")
    edit(settings, "trials_per_job: 1", "trials_per_job: auto")
    local, on_slurm = (
        commands_in(dry_run(folder, "--printshellcmds", *words))
        for words in ((), ("--profile", "profiles/slurm"))
    )
    assert len(local) > 20
    assert on_slurm == local
    (folder / "submit").write_text('grep "^# properties" "$1" >> submitted; exit 1')
    done = snakemake(
        folder, "--profile", "profiles/slurm", "--executor", "cluster-generic",
        "--cluster-generic-submit-cmd", "sh submit",
        # at the end it waits for the profile's half minute
        "--seconds-between-status-checks", "1", "--max-status-checks-per-second", "10",
        dataset_folder("tiny", DIGITS),
    )  # fmt: skip
    assert done.returncode != 0
    lines = (folder / "submitted").read_text().splitlines()
    given = [json.loads(line.partition(" = ")[2])["resources"] for line in lines]
    assert [one["mem_mb"] for one in given] == [3000, 6000, 9000]
    assert [one["runtime"] for one in given] == [120, 240, 360]


def test_a_machine_without_slurm_is_told_before_any_job(tmp_path):
    folder = checkout(tmp_path / "nowhere")
    pytest.importorskip("snakemake_executor_plugin_slurm")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "which"):
        (tools / name).symlink_to(shutil.which(name) or "")
    words = ["--profile", "profiles/slurm", dataset_folder("tiny", DIGITS)]
    done = snakemake(folder, *words, PATH=f"{tools}{os.pathsep}{BIN}")
    assert done.returncode != 0
    assert "sbatch, which gives jobs to SLURM, is not installed here" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(folder.glob(".snakemake/locks/*"))


def jobs_in(text: str) -> list[dict[str, Any]]:
    words = [shlex.split(command) for command in sorted(commands_in(text))]
    return [json.loads(line[2]) for line in words if line[:2] == ["fedrepro", "job"]]


def commands_in(text: str) -> set[str]:
    lines = text.split("\n")
    return {line.split(": ", 1)[1] for line in lines if line.startswith("Shell command: ")}


def test_a_mistake_in_the_config_is_one_sentence(tmp_path):
    folder = checkout(tmp_path / "bad")
    (folder / "own.yaml").write_text("scale: quick\nscale: tiny\n")
    edit(own_exhibits(folder), "name: pfnm\n", "name: pfmn\n")
    for words, sentence in (
        ([], "did you mean 'pfnm'"),
        (["--configfile", "own.yaml"], "the key 'scale' stands twice"),
    ):
        done = snakemake(folder, "-n", *words)
        assert done.returncode != 0
        assert sentence in done.stderr + done.stdout
        assert "Traceback" not in done.stderr + done.stdout


def test_a_figure_stays_where_a_truncated_file_stops_it_and_is_drawn_once_that_is_gone(
    finished, tmp_path
):
    folder = copy_of(finished, tmp_path)
    drawn = {path: path.read_bytes() for path in folder.glob("reports/tiny/pfnm/figure-2a.*")}
    assert len(drawn) == len(SUFFIXES)
    edit(own_exhibits(folder), "label: W-Ens", "label: Weighted")
    path = next((folder / "results/tiny/aggregate").glob("digits-majority-*/metrics.parquet"))
    whole, times = path.read_bytes(), path.stat()
    path.write_bytes(whole[:200])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    done = snakemake(folder, "--cores", "2", "reports/tiny/pfnm/figure-2a.svg")
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith(f"fedrepro: {path.relative_to(folder)}")
    assert "missing or damaged; delete it and start again" in done.stderr
    assert {path: path.read_bytes() for path in drawn} == drawn
    path.unlink()
    run(folder, str(path.relative_to(folder)))
    assert path.read_bytes() == whole
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert planned(folder) == {"exhibit", "claims", "site"}  # a label computes nothing again


ONE_FILE = """
paper: mine
title: Mine
source: nobody, nowhere, 2026
exhibits:
  table-mine:
    drawing: {name: table, rows: [clients], columns: [method]}
    title: Mine
    place: nowhere
    caption: None.
    trials: 1
    dataset: {name: shakespeare, source: tiny, stride: 100}
    model: {name: char_lstm}
    training: {name: adam}
    sweep: {partition.clients: [2]}
    partition: {name: homogeneous}
    methods: [{name: average, label: average}]
"""


@needs_mirror
def test_a_mirror_that_is_no_longer_set_does_not_fetch_again(tmp_path):
    folder = checkout(tmp_path / "mirror")
    (folder / "config/exhibits/mine.yaml").write_text(ONE_FILE)
    tiny = components("dataset")["shakespeare"].spec({"source": "tiny", "stride": 100})
    target = dataset_folder("paper", tiny)
    run(folder, target, FEDREPRO_MIRROR=str(MIRROR), FEDREPRO_PRELOAD="0")
    assert planned(folder, target, "--config", "checkpoint_seconds=1") == set()
