"""What surrounds the code: pinned packages, make targets, profiles, citation, extras."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fedrepro import __version__
from fedrepro.core.errors import EXTRAS, sentence_for
from fedrepro.planning.config_files import Config, load_yaml, validated

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TARGETS = ("all", "env", "test", "nightly", "lint", "bench", "bench-peers", "clean")
PAPERS = ("PFNM", "FedAvg", "GEMS", "RM+AH", "P2P")
LINES = (ROOT / "envs/requirements.txt").read_text().splitlines()
PINNED = [Requirement(line) for line in LINES if line and not line.startswith("#")]
OPTIONAL = PROJECT["project"]["optional-dependencies"]
OF_EXTRAS = [Requirement(line) for lines in OPTIONAL.values() for line in lines]


def make(*words: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MAKE") and k != "MFLAGS"}
    return subprocess.run(words, cwd=folder, env=clean, capture_output=True, text=True, timeout=60)


def test_packages_are_pinned_to_one_version_and_are_all_that_the_project_asks_for():
    for requirement in PINNED:
        assert re.fullmatch(r"==[0-9][0-9a-z.]*", str(requirement.specifier)), requirement
        assert requirement.url is None
    names = [canonicalize_name(r.name) for r in PINNED]
    assert len(set(names)) == len(names)
    # no options, such as another index
    assert not [line for line in LINES if "://" in line or line.strip().startswith("-")]
    versions = {canonicalize_name(r.name): next(iter(r.specifier)).version for r in PINNED}
    named = {extra for line in OF_EXTRAS if line.name == "fedrepro" for extra in line.extras}
    assert set(OPTIONAL) - named == {"all", "dev", "lite0"}
    assert named <= set(OPTIONAL)
    own = (*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"])
    for requirement in (*map(Requirement, own), *OF_EXTRAS):
        if (name := canonicalize_name(requirement.name)) != "fedrepro":
            assert name in versions, "the head of envs/requirements.txt says how to add it"
            assert requirement.specifier.contains(versions[name], prereleases=True), name
    linux = {"sys_platform": "linux", "platform_machine": "x86_64"}
    for start in ("nvidia-", "cuda-", "triton"):
        markers = [r.marker for r in PINNED if r.name.startswith(start)]
        assert markers
        assert not any(marker.evaluate({"sys_platform": "darwin"}) for marker in markers)
        assert all(marker.evaluate(linux) for marker in markers)
    for version in ("3.11.0", "3.12.0", "3.13.0"):
        for marker in (r.marker for r in PINNED if "python" in str(r.marker)):
            assert marker.evaluate({**linux, "python_full_version": version})


def test_make_has_the_targets_that_its_help_names():
    said = make("make", "help").stdout
    assert set(re.findall(r"^make ([\w-]+) ", said, re.MULTILINE)) == {*TARGETS, "site"}
    done = make("make", "-n", *TARGETS)
    assert done.returncode == 0, done.stderr
    assert make("make", "-n").stdout == make("make", "-n", "quick").stdout


def test_another_python_is_refused_and_clean_keeps_the_record_data_and_environment(tmp_path):
    lock = "src/fedrepro/core/command_under_lock.py"
    for name in ("Makefile", "pyproject.toml", "envs/requirements.txt", lock):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    other = tmp_path / "python3.10"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    done = make("make", "env", f"PYTHON={other}", folder=tmp_path)
    assert done.returncode == 2
    (told,) = (line for line in done.stderr.splitlines() if not line.startswith("make"))
    assert told.startswith("fedrepro needs Python 3.11, 3.12 or 3.13")
    assert not (tmp_path / ".venv").exists()
    kept = ("reports/record/quick/a.csv", "resources/mnist/raw", ".venv/bin/python")
    gone = ("results/quick/a", "reports/quick/a", "reports/tiny/a", "reports/paper/a", "logs/a")
    for path in (tmp_path / name for name in kept + gone):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert make("make", "clean", folder=tmp_path).returncode == 0
    assert [name for name in kept + gone if (tmp_path / name).exists()] == list(kept)


def test_profiles_name_files_that_exist_and_settings_of_the_project():
    for name in ("default", "gpu", "slurm"):
        profile = yaml.safe_load((ROOT / f"profiles/{name}/profile.yaml").read_text())
        assert "cores" not in profile, "--cores is for the user to say"
        assert (ROOT / profile.get("configfile", "config")).exists()
        if name != "default":
            validated(Config, load_yaml(ROOT / f"profiles/{name}/config.yaml"), name)


def test_the_citation_has_the_version_and_every_supported_python_is_checked():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    wanted = ("fedrepro", __version__, PROJECT["project"]["license"])
    assert tuple(citation[key] for key in ("title", "version", "license")) == wanted
    assert [r["abbreviation"] for r in citation["references"]] == list(PAPERS)
    workflow = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text(encoding="utf-8"))
    assert set(workflow[True]) == {"push", "pull_request"}  # YAML takes `on` for true
    job = workflow["jobs"]["checks"]
    low, high = map(int, re.findall(r"3\.(\d+)", PROJECT["project"]["requires-python"]))
    assert job["strategy"]["matrix"]["python"] == [f"3.{n}" for n in range(low, high)]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]


def test_files_are_utf_8_and_no_process_takes_those_of_its_folder_for_libraries():
    """With -P a `queue.py` of a run's folder is no library; -m alone puts that folder first."""
    files = [ROOT / "Makefile", *(p for f in ("src", "tools") for p in (ROOT / f).rglob("*.py"))]
    started = re.compile(r'(?:sys\.executable, "|(?:python|\(PYTHON\)) )(-[mcPI])\b')
    found = [(file.name, line) for file in files for line in file.read_text().splitlines()]
    flags = [(words[1], *at) for at in found if (words := started.search(at[1]))]
    assert len(flags) > 10
    assert not [at for at in flags if at[0] == "-m" and at[1] != "__main__.py"]
    assert not [at for at in flags if at[0] == "-c" and at[1] != "Makefile"]
    found = []
    for path in (p for f in ("src", "tools", "benchmarks") for p in (ROOT / f).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                given = ast.unparse(node)[len(name) :]
                opens = OPENING.match(name) or (name.endswith(".open") and MODE.search(given))
                found += [f"{path}:{node.lineno}"] if opens and not RIGHT.search(given) else []
    assert found == []


# calls that open a file for text, and what they say if they are of bytes or the terminal's
OPENING = re.compile(r"(?:open|os\.fdopen|.*\.(?:read|write)_text)$")
MODE = re.compile(r"'[rwaxt+]{1,3}'")
RIGHT = re.compile(r"encoding=|'utf-8'|'[rwax+]*b[rwax+]*'|^\([12]\b")


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
WORK = """
import fedrepro, jobs
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
command("check-method", "average")
command("start", "folder")
command("draw", "partition", "iid+clients~3", status=2)
try:
    fedrepro.run("pfnm/figure-2a", folder="folder")
except Exception as error:
    print("told:", error)
"""


def base() -> set[str]:
    found: set[str] = set()
    todo = [Requirement(line).name for line in PROJECT["project"]["dependencies"]]
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


def test_the_base_install_computes(tmp_path):
    assert {"snakemake", "matplotlib", "sphinx"} <= {*hidden()}
    assert {"torch", "numpy", "fedrepro"}.isdisjoint(hidden())
    done = python(WORK, tmp_path)
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
        assert owners & names(PROJECT["project"]["optional-dependencies"][extra]), module
    assert sentence_for(ModuleNotFoundError("no", name="os2")) is None
