"""Pages on data sets: their examples work as they stand there, and they leave no data set out."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import loaded
import pytest
import yaml
from synthetic import plan

from fedrepro.core.registry import components
from fedrepro.data.raw_files import raw_files
from fedrepro.planning.config import Config, ExhibitFile
from fedrepro.planning.jobs import public_data_of
from fedrepro.planning.plan import Plan

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/data.md").read_text()


def test_the_example_of_a_million_clients_can_be_planned() -> None:
    (code,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    (target,) = re.findall(r"reports/quick/(\S+)\.svg", code)
    file = ExhibitFile.model_validate(yaml.safe_load(code))
    exhibit = Plan(Config(), {file.paper: file}, "quick").exhibit(target)
    assert {run.scenario.clients for run in exhibit.runs} == {10**6}


ROWS = [f"{i / 7},{'rose' if i % 3 else 'lily'},{i % 5}" for i in range(90)]
FLOWERS = "\n".join(["length,kind,width", *ROWS])


def listed(folder: Path, file: str, code: str, name: str) -> str:
    """What `fedrepro data list` says once a data set of this file was fetched."""
    (folder / file).write_text(code)
    # a second folder of the package stands for the file in src/fedrepro/components/datasets
    start = (
        "import sys, fedrepro.components.datasets as found; found.__path__.append(sys.argv[1])\n"
        "from fedrepro.cli.main import main\n"
        "sys.exit(main(['data', 'fetch', sys.argv[2]]) or main(['data', 'list']))\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "FEDREPRO_MIRROR"}
    run = loaded.python(["-c", start, str(folder), name], folder, env)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_example_of_ones_own_data_set_works(tmp_path: Path) -> None:
    _, code, _ = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (tmp_path / "config").symlink_to(ROOT / "config")
    said = listed(tmp_path, "moons.py", code, "moons+examples~1000")
    assert "moons: Two moons" in said
    assert "train: 1,000 (upper: 500, lower: 500)" in said
    assert "natural groups: 2" in said


def test_the_example_of_a_csv_of_ones_own_works(tmp_path: Path) -> None:
    *_, code = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (tmp_path / "config").mkdir()
    table = (ROOT / "config" / "datasets.csv").read_text()
    (row,) = re.findall(r"^    (flowers,.*)$", PAGE, re.M)
    (tmp_path / "config" / "datasets.csv").write_text(f"{table}{row}\n")
    (tmp_path / "config" / "config.yaml").write_text("scale: quick\nmirror: mine\n")
    (tmp_path / "mine" / "flowers").mkdir(parents=True)
    (tmp_path / "mine" / "flowers" / "flowers.csv").write_text(FLOWERS)
    assert "train: 70 (lily: 23, rose: 47)" in listed(tmp_path, "flowers.py", code, "flowers")


def test_a_csv_of_ones_own_needs_nothing_in_the_package(tmp_path: Path) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE, re.S)[0]
    (tmp_path / "mine.py").write_text(code)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text("scale: quick\ncomponents: [mine.py]\n")
    (tmp_path / "flowers.csv").write_text(FLOWERS)
    job = {"stage": "prepare", "dataset": {"name": "my_flowers"}, "raw": ".", "out": "data"}
    own = {"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"]}
    done = loaded.python(["-m", "fedrepro", "job", json.dumps(job)], tmp_path, own)
    assert done.returncode == 0, done.stderr
    assert "my_flowers: train 60, validation 10, test 20" in done.stderr


def test_every_data_set_and_extractor_has_its_place() -> None:
    table = re.findall(r"^\| `(\w+)` \|", PAGE, re.M)
    assert sorted(table) == sorted(components("dataset"))
    for name, item in components("dataset").items():
        assert re.search(rf"^### .*\b{name}\b", PAGE, re.M), name
        assert item.meta["licence"] in PAGE
        assert (ROOT / "docs" / "figures" / f"data-{name}.svg").exists()
        assert f"(figures/data-{name}.svg)" in PAGE
    assert all(f"`{name}`" in PAGE or name == "pixels" for name in components("feature"))


@pytest.mark.parametrize("scale", ["quick", "tiny"])
def test_small_scales_download_nothing(scale: str) -> None:
    """As docs/using.md says of them, whatever exhibits are drawn."""
    exhibits = plan(scale, exhibits="all").exhibits.values()
    runs = [run for exhibit in exhibits for run in exhibit.runs if run.scenario]
    data = {one for run in runs for one in (run.scenario.dataset, public_data_of(run.method))}
    assert runs
    assert not [one.token for one in data if one and raw_files(one)]
