"""fedrepro.start, run and compare: a working folder, and frames of what is computed in it."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from synthetic import KEY, draw, made_once, plan, plausible, undrawn, workplace

import fedrepro
from fedrepro.cli.main import main
from fedrepro.core import plugins, source_digests
from fedrepro.core.errors import FedreproError
from fedrepro.stages import snakemake_in_folder

__all__ = ["undrawn", "workplace"]
ROOT = Path(__file__).parents[2]
SNAKEMAKE = ["-P", "-m", "snakemake", "--nolock", "--rerun-incomplete"]


@pytest.fixture
def drawn(workplace, undrawn):
    """A working folder with one drawn exhibit."""
    made_once("notebook", lambda: draw(plan(), KEY, plausible))
    Path("workflow").mkdir(exist_ok=True)
    Path(snakemake_in_folder.WORKFLOW).touch()
    return Path.cwd()


@pytest.fixture
def snakemake(monkeypatch):
    """In the place of Snakemake: keeps its commands, and ends with what is set."""
    calls, ends = [], {"returncode": 0, "stdout": "", "stderr": ""}

    def popen(command, stdout, **_):
        calls.append((command[1:], os.getcwd()))
        stdout.write(ends["stdout"] + ends["stderr"])
        return SimpleNamespace(wait=lambda _=0: 0, returncode=ends["returncode"])

    monkeypatch.setattr(snakemake_in_folder.subprocess, "Popen", popen)
    return calls, ends


def test_who_has_a_wheel_is_told_what_to_install_and_where_to_start(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fedrepro.cli.app.find_spec", lambda name: None)
    assert main(["start", str(tmp_path / "new")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Snakemake, which is not installed here: pip install 'fedrepro[workflow]'" in said
    monkeypatch.chdir(tmp_path)
    for command in (["exhibits"], ["data", "list"]):
        assert main(command) == 2
        assert "a folder that `fedrepro start FOLDER` made" in capsys.readouterr().err
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fedrepro {fedrepro.__version__}\n"


def test_a_folder_begins_with_configuration_and_workflow_once(tmp_path):
    assert main(["start", str(tmp_path / "new")]) == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == set(
        snakemake_in_folder.BEGINNING
    )
    same = "config/config.yaml"
    assert (tmp_path / "new" / same).read_bytes() == (ROOT / same).read_bytes()
    (tmp_path / "new" / same).write_text("mine")
    with pytest.raises(FedreproError, match="new/Snakefile is there already: name a folder"):
        fedrepro.start(tmp_path / "new")
    assert (tmp_path / "new" / same).read_text() == "mine"


def test_a_wheel_brings_its_own_and_a_package_alone_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(source_digests, "PACKAGE", str(tmp_path / "lib/fedrepro"))
    with pytest.raises(FedreproError, match="has no workflow at"):
        fedrepro.start(tmp_path / "one")
    inside = tmp_path / "lib/fedrepro" / snakemake_in_folder.INSTALLED
    for name in set(snakemake_in_folder.BEGINNING) - {"Snakefile"}:
        (inside / name).mkdir(parents=True)
    (inside / "Snakefile").write_text("rule")
    (inside / snakemake_in_folder.WORKFLOW).touch()
    (inside / "workflow/a.json").touch()
    assert source_digests.on_disk(source_digests.PACKAGE) == {}  # digests are those of the checkout
    fedrepro.start(tmp_path / "two")
    assert (tmp_path / "two/Snakefile").read_text() == "rule"


def test_running_an_exhibit_gives_its_numbers(drawn, snakemake, monkeypatch, tmp_path):
    calls, _ = snakemake
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="where trials is 1, 2 are computed"):
        found = fedrepro.run(KEY, scale="tiny", folder=drawn, cores=3)
    target = f"reports/tiny/{KEY}.svg"
    assert calls == [([*SNAKEMAKE, "--cores", "3", "--", target], str(drawn))]
    assert Path.cwd() == tmp_path
    assert {"method", "metric", "split", "mean"} <= set(found)
    assert (found["metric"] == "accuracy").any()
    assert found.attrs["file"] == str(drawn / target)


def test_files_of_components_are_told_to_this_process_too(drawn, snakemake, monkeypatch):
    Path("config").unlink()  # a link to the repository's, which other tests read
    shutil.copytree(ROOT / "config", "config")
    with Path("config/config.yaml").open("a") as config:
        config.write("components: [mine.py]\n")
    Path("mine.py").write_text("x = 1\n")
    monkeypatch.delenv(plugins.NAMED, raising=False)
    with pytest.raises(FedreproError, match=r"mine\.py has no component"):
        fedrepro.run(KEY, scale="tiny")


def test_a_leaderboard_gives_its_table(drawn, snakemake):
    table = Path("reports/tiny/arena/1.csv")
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text("method,score\nfedavg,0.0\n")
    assert list(fedrepro.run("arena/1", scale="tiny")["method"]) == ["fedavg"]
    assert snakemake[0][0][0][-1] == str(table)


@pytest.mark.filterwarnings("ignore:pfnm/figure-2a")
def test_what_goes_wrong_is_one_sentence(drawn, snakemake, monkeypatch, tmp_path):
    _, ends = snakemake
    for said, told in (
        ("Error in rule x\nfedrepro: no data\nfedrepro: no data\n", r"svg was not made: no data$"),
        ("LockException:\n\n  Error: cannot be locked\n", r"made: LockException: \| Error: cannot"),
    ):
        ends |= {"returncode": 1, "stderr": said}
        with pytest.raises(FedreproError, match=told):
            fedrepro.run(KEY, scale="tiny")
    monkeypatch.setattr(snakemake_in_folder, "find_spec", lambda name: None)
    with pytest.raises(FedreproError, match=r"pip install 'fedrepro\[workflow\]'"):
        fedrepro.run(KEY, scale="tiny")
    with pytest.raises(FedreproError, match=r"has no workflow: call fedrepro\.start"):
        fedrepro.run(KEY, folder=tmp_path / "none")


def test_two_methods_beside_each_other_as_a_frame(drawn):
    labels = [measure.label for measure in plan().exhibit(KEY).measures][:2]
    found = fedrepro.compare(*labels, scale="tiny")
    assert set(found["exhibit"]) == {KEY}
    assert (found["method"] + "/" + found["other_method"]).unique().tolist() == ["/".join(labels)]
    assert found["difference"].tolist() == pytest.approx((found["one"] - found["other"]).tolist())
    assert labels[0] in found.attrs["verdict"]


def test_an_exhibit_beside_the_record_as_a_frame(drawn):
    assert main(["record", KEY, "--scale", "tiny"]) == 0
    found = fedrepro.compare(KEY, scale="tiny")
    assert (found["difference"] == 0).all()
    assert {"ours", "recorded", "method", "clients"} <= set(found)
    assert found.attrs["verdict"]


@pytest.mark.nightly
@pytest.mark.workflow
def test_the_notebook_of_the_documentation_runs(tmp_path, monkeypatch):
    cells = json.loads((ROOT / "docs/notebook.ipynb").read_text())["cells"]
    monkeypatch.chdir(tmp_path)
    known: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), known)
    text = "".join(line for cell in cells for line in cell["source"])
    assert re.search(r"fedrepro\.run\(", text)
    assert len(known["table"]) > 0
    assert known["difference"].attrs["verdict"]
