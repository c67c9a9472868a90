"""A commit while the workflow runs: every file names the sources that computed it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_workflow import (
    SMALL,
    checkout,
    edit,
    environment,
    planned,
    smaller,
    versions_of,
    wait_until,
)

from fedrepro.core.artifacts import load_state
from fedrepro.core.provenance import provenance_of

pytestmark = pytest.mark.workflow


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=b", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")
    return git(folder, "rev-parse", "HEAD")


def sources_of(folder: Path) -> tuple[str, str]:
    """Digest and revision of what computes there now."""
    own = "from fedrepro.core.provenance import loaded; own = loaded().computing"
    words = [sys.executable, "-c", f"{own}; print(own.digest, own.revision)"]
    env = environment(PYTHONPATH=str(folder / "src"))
    digest, revision = subprocess.run(
        words, env=env, capture_output=True, text=True, check=True
    ).stdout.split()
    return digest, revision


def origins_in(folder: Path) -> dict[str, dict[str, object]]:
    """What every computed file says of its origin."""
    found = {}
    for path in sorted((folder / "results/tiny").rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".parquet":
            found[name] = provenance_of(path)
        elif path.name == "dataset.json":
            found[name] = json.loads(path.read_text())["provenance"]
        elif path.name == "global.pt":
            found[name] = load_state(path)["provenance"]
    return found


def test_a_commit_in_mid_run_is_named_by_what_it_computed_and_by_nothing_else(tmp_path):
    folder = smaller(checkout(tmp_path / "clone"))
    git(folder, "init", "-q")
    first = commit(folder)
    before = sources_of(folder)
    edit(
        folder / "src/fedrepro/methods/average.py",
        "from __future__",
        "# mended\nfrom __future__",
    )
    second = commit(folder)
    after = sources_of(folder)
    assert (before[1], after[1]) == (first[:12], second[:12])
    assert before[0] != after[0]
    git(folder, "reset", "-q", "--hard", first)

    env = {"PYTHONPATH": str(folder / "src")}
    process = subprocess.Popen(
        [".venv/bin/snakemake", "--cores", "2", f"{SMALL}.csv"],
        cwd=folder, env=environment(**env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    trained = "*-clients-*/timings.parquet"
    wait_until(lambda: len(versions_of(folder, trained)) == 1, process)
    there = {path: path.read_bytes() for path, _ in versions_of(folder, "*.parquet")}
    git(folder, "reset", "-q", "--hard", second)
    said, _ = process.communicate()
    assert process.returncode == 0, said.decode()[-4000:]

    found = origins_in(folder)
    at = {name: (one["digest"], one["revision"]) for name, one in found.items()}
    # a job that starts while git moves on may see new files and the old revision
    between = (after[0], f"{before[1]}-dirty")
    assert {before, after} <= set(at.values()) <= {before, after, between}
    changed = {(o["digest"], o["changed_to"]) for o in found.values() if "changed_to" in o}
    assert changed <= {(before[0], after[0])}  # of jobs that ran at that moment
    for path, content in there.items():
        assert path.read_bytes() == content
        assert at[str(path.relative_to(folder))] == before
    about = json.loads((folder / f"{SMALL}.json").read_text())
    assert {one["revision"] for one in about["computed"]} >= {before[1], after[1]}
    assert about["drawn"]["revision"] == after[1]
    # jobs of a changed file, of which some ran before it changed, run again
    assert planned(folder, f"{SMALL}.csv", **env) <= {"aggregate", "exhibit"}
