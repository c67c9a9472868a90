"""Pages on data, exhibits and models: examples work and numbers are true; `fedrepro data`."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

import jobs
import loaded
import pandas as pd
import pytest
import yaml
from small_exhibits import small
from synthetic import ROOT, plan
from test_datasets import write_mnist

from fedrepro.cli.main import main
from fedrepro.core import user_component_files as component_files
from fedrepro.core.checkpoint_and_model_files import read_models
from fedrepro.core.checksummed_files import read_json, write_json
from fedrepro.core.registry import components, parse_token
from fedrepro.data.raw_files import raw_files
from fedrepro.networks.predict import network_of
from fedrepro.numbers.verdicts.verdicts_on_printed_values import read_published, require_cells
from fedrepro.planning.config_files import Config, ExhibitFile, table_names
from fedrepro.planning.plan import Plan
from fedrepro.planning.scenarios_runs_and_jobs import public_data_of
from fedrepro.training.flat_models_and_optimiser_steps import Layout

PAGE = (ROOT / "docs/data.md").read_text()


def test_the_example_of_a_million_clients_and_every_data_set_have_their_place() -> None:
    (code,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    (target,) = re.findall(r"reports/quick/(\S+)\.svg", code)
    file = ExhibitFile.model_validate(yaml.safe_load(code))
    exhibit = Plan(Config(), {file.paper: file}, "quick").exhibit(target)
    assert {run.scenario.clients for run in exhibit.trials} == {10**6}
    assert sorted(re.findall(r"^\| `(\w+)` \|", PAGE, re.M)) == sorted(components("dataset"))
    for name, item in components("dataset").items():
        assert re.search(rf"^### .*\b{name}\b", PAGE, re.M), name
        assert item.meta["licence"] in PAGE
        assert (ROOT / "docs" / "figures" / f"data-{name}.svg").exists()
        assert f"(figures/data-{name}.svg)" in PAGE
    assert all(f"`{name}`" in PAGE or name == "pixels" for name in components("feature"))
    assert {token.partition("+")[0] for token, _, _ in COUNTED} == set(components("model"))


ROWS = [f"{i / 7},{'rose' if i % 3 else 'lily'},{i % 5}" for i in range(90)]
FLOWERS = "\n".join(["length,kind,width", *ROWS])


def listed(folder: Path, file: str, code: str, name: str) -> str:
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
    return run.stdout + run.stderr


def test_the_example_of_ones_own_data_set_works(tmp_path: Path) -> None:
    _, code, _ = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (tmp_path / "config").symlink_to(ROOT / "config")
    said = listed(tmp_path, "moons.py", code, "moons+examples~1000")
    assert "moons: Two moons" in said
    assert "moons+examples~1000: train 1000, " in said


def test_the_example_of_a_csv_of_ones_own_works(tmp_path: Path) -> None:
    *_, code = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (tmp_path / "config").mkdir()
    table = (ROOT / "config" / "datasets.csv").read_text()
    (row,) = re.findall(r"^    (flowers,.*)$", PAGE, re.M)
    (tmp_path / "config" / "datasets.csv").write_text(f"{table}{row}\n")
    (tmp_path / "config" / "config.yaml").write_text("scale: quick\nmirror: mine\n")
    (tmp_path / "mine" / "flowers").mkdir(parents=True)
    (tmp_path / "mine" / "flowers" / "flowers.csv").write_text(FLOWERS)
    assert "flowers: train 70, " in listed(tmp_path, "flowers.py", code, "flowers")


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


@pytest.mark.parametrize("scale", ["quick", "tiny"])
def test_small_scales_download_nothing(scale: str) -> None:
    exhibits = plan(scale, exhibits="all").exhibits.values()
    runs = [run for exhibit in exhibits for run in exhibit.trials if run.scenario]
    data = {one for run in runs for one in (run.scenario.dataset, public_data_of(run.method))}
    assert runs
    assert not [one.token for one in data if one and raw_files(one)]


EXHIBIT_PAGE = (Path(__file__).parents[2] / "docs/adding-an-exhibit.md").read_text(encoding="utf-8")


(EXHIBITS,), (PRINTED,) = (
    re.findall(f"```{x}\n(.*?)```", EXHIBIT_PAGE, re.S) for x in ("yaml", "csv")
)
FILES = {"mine": ExhibitFile.model_validate(yaml.safe_load(EXHIBITS))}


def test_exhibits_and_tuned_methods_can_be_planned_and_printed_values_belong_to_cells(tmp_path):
    for scale in ("tiny", "quick", "paper"):
        made = Plan(Config(exhibits="all"), FILES, scale)
        assert list(made.exhibits) == ["mine/figure-1", "mine/table-1"]
        table = made.exhibit("mine/table-1")
        assert [len(m.settings) for m in table.measures] == [1, 1, 2, 2]
        assert {run.scenario.training["lr"] for run in table.trials} == {0.01, 0.003, 0.001}
    assert table_names(FILES)["paper/mine"] == ["table-1"]
    path = tmp_path / "mine.csv"
    path.write_text(PRINTED)
    values = read_published(path)
    assert [value.tolerance for value in values] == [None, pytest.approx(0.0124), None]
    require_cells([Plan(Config(), FILES, "paper").exhibit("mine/table-1")], values)
    entries = yaml.safe_load(
        "\n".join(re.findall(r"^    (- \{name: .*tune.*\})$", EXHIBIT_PAGE, re.M))
    )
    assert [entry["name"] for entry in entries] == ["average", "local", "raw"]
    made = small(methods=entries, dataset={"name": "digits", "validation": 200})
    assert all(run.tune for run in made.trials)


MODELS_PAGE = (ROOT / "docs" / "models.md").read_text()
COUNTED = re.findall(
    r"^\| `([^`]+)` \| .*? \| ([\d,]+)(?: on ([^|]+?)| with 80 codes)? \|", MODELS_PAGE, re.M
)
SHAPES = {
    "MNIST": (28, 28),
    "CIFAR-10": (3, 32, 32),
    "spectrograms": (32, 32),
    "32×32 images": (3, 32, 32),
}


def test_numbers_of_parameters_are_those_of_the_networks():
    for token, count, data in COUNTED:
        model = parse_token("model", token)
        shape, classes = SHAPES.get(data, (28, 28)), 10
        if model.name == "char_lstm":
            shape, classes = (80,), 80
        if "pool_every~2+" not in token and token.endswith("padding~valid+pool_every~2"):
            shape = (3, 32, 32)
        found = Layout(network_of(model, shape, classes).shapes).numbers
        assert f"{found:,}" == count, token


def test_the_example_of_ones_own_model_trains(tmp_path, monkeypatch):
    code = next(
        code for code in re.findall(r"```python\n(.*?)```", MODELS_PAGE, re.S) if "hourgl" in code
    )
    (tmp_path / "hourglass.py").write_text(code)
    monkeypatch.setenv(component_files.NAMED, str(tmp_path / "hourglass.py"))
    made = jobs.divided(tmp_path, "iid+clients~2", trials="0")
    made += ["--model", "hourglass+narrow~5", "--training", "sgd+epochs~1+init~fan_in"]
    made += ["--clients", "0-1", "--out", tmp_path / "m"]
    assert jobs.stage("train", *made) == 0
    assert read_models([tmp_path / "m"], [0])[0].tensors["weight1"].shape == (2, 100, 5)
    monkeypatch.setenv(component_files.NAMED, "")
    assert "hourglass" not in components("model")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder whose mirror holds an MNIST of 230 and 40 examples, and nothing else."""
    config, mirror = tmp_path / "config", tmp_path / "mirror" / "mnist"
    config.mkdir()
    mirror.mkdir(parents=True)
    (config / "config.yaml").symlink_to(ROOT / "config" / "config.yaml")
    write_mnist(mirror)
    table = pd.read_csv(ROOT / "config" / "datasets.csv", dtype=str, keep_default_na=False)
    table["urls"] = ""
    for at, file in table[table["name"] == "mnist"]["file"].items():
        data = (mirror / file).read_bytes()
        checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
        table.loc[at, ["checksum", "bytes"]] = checksum, str(len(data))
    table.to_csv(config / "datasets.csv", index=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDREPRO_MIRROR", str(tmp_path / "mirror"))
    return tmp_path


def test_what_is_fetched_is_prepared_and_listed(workplace, capsys):
    assert main(["data", "list"]) == 0
    said = capsys.readouterr().out
    for name, item in components("dataset").items():
        assert f"{name}: {item.meta['title']}\n  licence: {item.meta['licence']}\n" in said
    assert "file cifar-10-python.tar (repacked, in mirrors only): 131,484,300 bytes" in said
    assert "no checksum known" in said
    assert main(["data", "fetch", "mnist+validation~30", "p2p_nodes", "--scale", "tiny"]) == 0
    folder = workplace / "results" / "tiny" / "prepare"
    assert "mnist+validation~30: prepared in" in capsys.readouterr().out
    (path,) = folder.glob("mnist-*/dataset.json")
    info = read_json(path)
    assert sum(info["counts"]["validation"]) == 30
    assert [source["form"] for source in info["sources"]] == ["publisher"] * 4
    write_json(path, info | {"sources": info["sources"][1:]})  # as of other files
    assert main(["data", "fetch", "mnist+validation~30", "--scale", "tiny"]) == 0
    assert "mnist+validation~30: prepared in" in capsys.readouterr().out


def test_what_is_ready_is_not_prepared_again(workplace, capsys):
    assert main(["data", "fetch", "digits"]) == 0
    path = next((workplace / "results").rglob("dataset.json"))
    before = path.stat().st_mtime_ns
    assert main(["data", "fetch", "digits"]) == 0
    assert "digits: ready in" in capsys.readouterr().out
    assert path.stat().st_mtime_ns == before
    # other versions or parameters under the same name are made anew
    info = json.loads(path.read_text())
    info["provenance"]["resolved"] = "digits;v0;test~360"
    path.write_text(json.dumps(info))
    assert main(["data", "fetch", "digits"]) == 0
    assert "digits: prepared in" in capsys.readouterr().out


def test_mistakes_are_sentences_and_what_is_fetched_is_said(workplace, capsys):
    for words, sentence in (
        ([], "Missing argument"),
        (["cifar10"], "cifar-10/cifar-10-python.tar.gz or cifar-10/cifar-10-batches-py.tar.xz"),
        (["mnist+features~lite1"], "did you mean 'lite0'"),
    ):
        assert main(["data", "fetch", *words]) == 2
        assert sentence in capsys.readouterr().err
    assert main(["data", "fetch", "digits", "p2p_nodes"]) == 0
    assert "p2p_nodes: prepared in" in capsys.readouterr().out
