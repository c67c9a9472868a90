"""What surrounds the code: pinned packages, make targets, profiles, citation."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TARGETS = ("all", "env", "test", "nightly", "lint", "bench", "bench-peers", "clean")
PAPERS = ("PFNM", "FedAvg", "GEMS", "RM+AH", "P2P")


def pinned() -> list[Requirement]:
    lines = (ROOT / "envs/requirements.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def asked_for() -> list[Requirement]:
    project = PROJECT["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    build = PROJECT["build-system"]["requires"]
    found = [Requirement(line) for line in (*project["dependencies"], *extras, *build)]
    return [requirement for requirement in found if requirement.name != project["name"]]


def make(*words: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Make as from a fresh shell, not as a part of a `make test` that runs these tests."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MAKE") and k != "MFLAGS"}
    return subprocess.run(words, cwd=folder, env=clean, capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(not shutil.which("taskset"), reason="no taskset")
def test_make_without_a_word_is_the_quick_scale_in_as_many_jobs_as_it_was_given_processors():
    one = ("taskset", "-c", str(min(os.sched_getaffinity(0))), "make", "-n")
    said = make(*one).stdout
    assert "--cores 1 " in said
    assert said == make(*one, "quick").stdout


def test_every_package_is_pinned_to_one_version_and_no_address():
    for requirement in pinned():
        assert re.fullmatch(r"==[0-9][0-9a-z.]*", str(requirement.specifier)), requirement
        assert requirement.url is None
    names = [canonicalize_name(r.name) for r in pinned()]
    assert len(set(names)) == len(names)
    text = (ROOT / "envs/requirements.txt").read_text()
    assert "://" not in text
    assert not re.search(r"^\s*-", text, re.MULTILINE), "no options, such as another index"


def test_the_pins_hold_all_that_the_project_asks_for():
    versions = {canonicalize_name(r.name): next(iter(r.specifier)).version for r in pinned()}
    extras = PROJECT["project"]["optional-dependencies"]
    of_extras = [Requirement(line) for lines in extras.values() for line in lines]
    named = {extra for line in of_extras if line.name == "fedrepro" for extra in line.extras}
    assert set(extras) - named == {"all", "dev", "lite0"}
    assert named <= set(extras)
    for requirement in asked_for():
        name = canonicalize_name(requirement.name)
        assert name in versions, (
            f"{name} is not in envs/requirements.txt; its head says how to add it"
        )
        assert requirement.specifier.contains(versions[name], prereleases=True), name


def test_cuda_packages_are_for_linux_only_and_no_pin_depends_on_the_python_version():
    linux = {"sys_platform": "linux", "platform_machine": "x86_64"}
    marked = [r for r in pinned() if r.marker is not None]
    for start in ("nvidia-", "cuda-", "triton"):
        found = [r for r in pinned() if r.name.startswith(start)]
        assert found
        assert set(found) <= set(marked)
        assert not any(r.marker.evaluate({"sys_platform": "darwin"}) for r in found)
        assert all(r.marker.evaluate(linux) for r in found)
    for version in ("3.11.0", "3.12.0", "3.13.0"):
        for requirement in (r for r in marked if "python" in str(r.marker)):
            assert requirement.marker.evaluate({**linux, "python_full_version": version})


def test_make_has_the_targets_that_its_help_names():
    said = make("make", "help").stdout
    assert set(re.findall(r"^make ([\w-]+) ", said, re.MULTILINE)) == {*TARGETS, "site"}
    done = make("make", "-n", *TARGETS)
    assert done.returncode == 0, done.stderr


def copy_for_make(folder: Path) -> Path:
    """What make reads before it has an environment."""
    lock = "src/fedrepro/core/diagnostics/run_locked.py"
    for name in ("Makefile", "pyproject.toml", "envs/requirements.txt", lock):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text((ROOT / name).read_text())
    return folder


@pytest.mark.parametrize("answer", ["exit 1", "echo Python 3.10.4; exit 1"])
def test_another_python_is_refused_with_one_sentence(tmp_path, answer):
    folder = copy_for_make(tmp_path)
    other = folder / "python3.10"
    other.write_text(f"#!/bin/sh\n{answer}\n")
    other.chmod(0o755)
    done = make("make", "env", f"PYTHON={other}", folder=folder)
    assert done.returncode == 2
    sentences = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(sentences) == 1
    assert sentences[0].startswith("fedrepro needs Python 3.11, 3.12 or 3.13")
    assert not (folder / ".venv").exists()


def test_clean_keeps_the_record_the_data_and_the_environment(tmp_path):
    folder = copy_for_make(tmp_path)
    kept = ("reports/record/quick/a.csv", "resources/mnist/raw", ".venv/bin/python")
    gone = ("results/quick/a", "reports/quick/a", "reports/tiny/a", "reports/paper/a", "logs/a")
    for name in kept + gone:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    assert make("make", "clean", folder=folder).returncode == 0
    assert all((folder / name).exists() for name in kept)
    assert not any((folder / name).exists() for name in gone)


@pytest.mark.parametrize("name", ["default", "gpu", "slurm"])
def test_profiles_name_files_that_exist_and_settings_of_the_project(name):
    from fedrepro.planning.config import read_config

    profile = yaml.safe_load((ROOT / f"profiles/{name}/profile.yaml").read_text())
    assert "cores" not in profile, "--cores is for the user to say"
    if "configfile" in profile:
        assert (ROOT / profile["configfile"]).exists()
    if name != "default":
        read_config(yaml.safe_load((ROOT / f"profiles/{name}/config.yaml").read_text()))


def test_the_citation_names_the_five_papers_and_has_the_version_of_the_package():
    from fedrepro import __version__

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert (citation["title"], citation["version"]) == ("fedrepro", __version__)
    assert citation["license"] == PROJECT["project"]["license"]
    assert [r["abbreviation"] for r in citation["references"]] == list(PAPERS)
    for reference in citation["references"]:
        assert reference["title"]
        assert reference["authors"]
        assert 2017 <= reference["year"] <= 2019


def test_no_process_takes_files_of_its_folder_for_libraries():
    """With -P a `queue.py` of a run's folder is no library; -m alone puts that folder first."""
    files = [ROOT / "Makefile", *(p for f in ("src", "tools") for p in (ROOT / f).rglob("*.py"))]
    started = re.compile(r'(?:sys\.executable, "|(?:python|\(PYTHON\)) )(-[mcPI])\b')
    found = [(file.name, line) for file in files for line in file.read_text().splitlines()]
    flags = [(words[1], *at) for at in found if (words := started.search(at[1]))]
    assert len(flags) > 10
    assert not [at for at in flags if at[0] == "-m" and at[1] != "__main__.py"]
    assert not [at for at in flags if at[0] == "-c" and at[1] != "Makefile"]


def _text_without_encoding(call: ast.Call) -> bool:
    """Whether a call opens a file for text as the locale would have it."""
    function = ast.unparse(call.func)
    words = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
    modes = [word for word in words if re.fullmatch("[rwaxbt+]{1,3}", str(word))]
    if "utf-8" in words or ast.unparse(call).startswith(("os.fdopen(1", "os.fdopen(2")):
        return False  # the terminal's are the locale's
    opens = function in ("open", "os.fdopen") or (function.endswith(".open") and modes)
    return (
        (bool(opens) or function.endswith((".read_text", ".write_text")))
        and not any("b" in mode for mode in modes)
        and not any(keyword.arg == "encoding" for keyword in call.keywords)
    )


def test_files_are_utf_8_whatever_the_locale():
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for folder in ("src", "tools", "benchmarks")
        for file in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _text_without_encoding(node)
    ]
    assert found == []


def test_every_change_is_checked_on_each_python_that_is_supported():
    workflow = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text(encoding="utf-8"))
    assert set(workflow[True]) == {"push", "pull_request"}  # YAML takes `on` for true
    job = workflow["jobs"]["checks"]
    low, high = re.findall(r"3\.(\d+)", PROJECT["project"]["requires-python"])
    assert job["strategy"]["matrix"]["python"] == [f"3.{n}" for n in range(int(low), int(high))]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)
