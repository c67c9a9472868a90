"""The base install, without extras: everything but drawing and the workflow, which say what is
missing. Packages that only extras bring are hidden from a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fedrepro.core.errors import EXTRAS, sentence_for

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

HIDING = """
import sys
from importlib.machinery import PathFinder
HIDDEN = set(sys.argv.pop().split())
class Installed(PathFinder):
    @classmethod
    def find_spec(cls, name, *rest):
        return None if name.partition(".")[0] in HIDDEN else PathFinder.find_spec(name, *rest)
sys.meta_path[:] = [Installed if finder is PathFinder else finder for finder in sys.meta_path]
"""
LIGHT = """
import fedrepro
assert callable(fedrepro.run) and callable(fedrepro.compare)
heavy = {"torch", "sklearn", "numba", "matplotlib", "snakemake"} & set(sys.modules)
assert not heavy, heavy
"""
WORK = """
import jobs
from fedrepro.cli.main import main
def command(*words, status=0): assert main(list(words)) == status, words
scenario = ["--dataset", "digits", "--partition", "iid+clients~3", "--model", "mlp+hidden~10",
            "--training", "adam+epochs~2"]
made = [*scenario, "--data", "d", "--members", "p", "--trials", "0", "--timings", "t"]
def stage(*words): assert jobs.stage(*words) == 0, words
stage("prepare", "--dataset", "digits", "--out", "d")
stage("partition", *scenario[2:4], "--data", "d", "--trials", "0", "--out", "p")
stage("train", *made, "--clients", "0-2", "--out", "m")
stage("aggregate", *made, "--method", "average", "--local", "m", "--out", "a")
stage("federate", *made, "--method", "fedavg+rounds~2", "--global-model", "g", "--out",
        "f")
command("methods")
command("check-method", "average")
command("start", "folder")
command("draw", "partition", "iid+clients~3", status=2)
try:
    fedrepro.run("pfnm/figure-2a", folder="folder")
except Exception as error:
    print("told:", error)
"""


def base() -> set[str]:
    """The packages that the base install comes to."""
    found: set[str] = set()
    todo = [Requirement(line).name for line in PROJECT["dependencies"]]
    while todo:
        name = canonicalize_name(todo.pop())
        if name in found:
            continue
        try:
            requires = distribution(name).requires or []
        except PackageNotFoundError:  # for another system
            continue
        found.add(name)
        lines = map(Requirement, requires)
        todo += [
            line.name for line in lines if not line.marker or line.marker.evaluate({"extra": ""})
        ]
    return found


@cache
def hidden() -> list[str]:
    """The modules of all other packages that are installed here."""
    there = base() | {"fedrepro"}
    return [
        module
        for module, owners in packages_distributions().items()
        if not there & {canonicalize_name(owner) for owner in owners}
    ]


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDING + code, " ".join(hidden())],
        cwd=folder, capture_output=True, text=True, timeout=300,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
    )  # fmt: skip


def test_the_package_imports_fast_and_the_base_install_computes(tmp_path):
    assert {"snakemake", "matplotlib", "sphinx"} <= {*hidden()}
    assert {"torch", "numpy", "fedrepro"}.isdisjoint(hidden())
    done = python(LIGHT + WORK, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "this needs matplotlib, which is not installed here: pip install 'fedrepro[plots]'" in (
        done.stderr
    )
    assert "told: computing an exhibit needs Snakemake, which is not installed" in done.stdout


def test_every_module_of_an_extra_says_which_extra_it_is_of():
    def names(lines):
        return {canonicalize_name(Requirement(line).name) for line in lines}

    for module, extra in EXTRAS.items():
        said = str(sentence_for(ModuleNotFoundError("no", name=f"{module}.part")))
        assert f"pip install 'fedrepro[{extra}]'" in said
        owners = names(packages_distributions()[module])
        assert owners & names(PROJECT["optional-dependencies"][extra]), module
    assert sentence_for(ModuleNotFoundError("no", name="os2")) is None
