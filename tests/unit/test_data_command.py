"""`fedrepro data`: what a person sees before anything is fetched, while, and afterwards."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_datasets import write_idx

from fedrepro.cli.main import main
from fedrepro.components.datasets.mnist import TEST, TRAIN
from fedrepro.core.registry import components

ROOT = Path(__file__).parents[2]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder whose mirror holds an MNIST of 230 and 40 examples, and nothing else."""
    config, mirror = tmp_path / "config", tmp_path / "mirror" / "mnist"
    config.mkdir()
    mirror.mkdir(parents=True)
    (config / "config.yaml").symlink_to(ROOT / "config" / "config.yaml")
    for (images, labels), count in ((TRAIN, 230), (TEST, 40)):
        write_idx(mirror / images, np.full((count, 28, 28), 7, np.uint8))
        write_idx(mirror / labels, (np.arange(count) % 10).astype(np.uint8))
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


def test_the_list_works_before_anything_is_fetched(workplace, capsys):
    assert main(["data", "list"]) == 0
    said = capsys.readouterr().out
    for name, item in components("dataset").items():
        assert f"{name}: {item.meta['title']}\n  licence: {item.meta['licence']}\n" in said
    assert "file cifar-10-python.tar (repacked, in mirrors only): 131,484,300 bytes" in said
    assert "no checksum known" in said
    assert "None is prepared yet: fedrepro data fetch NAME, or --all." in said


def test_what_is_fetched_is_prepared_and_listed(workplace, capsys):
    assert main(["data", "fetch", "mnist+validation~30", "p2p_nodes", "--scale", "tiny"]) == 0
    folder = workplace / "results" / "tiny" / "prepare"
    assert "mnist+validation~30: prepared in" in capsys.readouterr().out
    info = json.loads(next(folder.glob("mnist-*/dataset.json")).read_text())
    assert sum(info["counts"]["validation"]) == 30
    assert [source["form"] for source in info["sources"]] == ["publisher"] * 4
    assert main(["data", "list", "--scale", "tiny"]) == 0
    said = capsys.readouterr().out
    for words in (
        "image of 28×28, uint8; licence: CC BY-SA 3.0",
        "train: 200 (0: 20, 1: 20, 2: 20,",
        "validation: 30 (0: 3,",
        f"sha256 of the arrays: {info['sha256']}",
        "regression of 2, float32",
        "natural groups: 2",
    ):
        assert words in said
    assert main(["data", "list", "--scale", "quick"]) == 0
    assert "None is prepared yet" in capsys.readouterr().out


def test_what_is_ready_is_not_prepared_again(workplace, capsys, monkeypatch):
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


def test_all_prepares_what_it_can_and_says_what_is_missing(workplace, capsys):
    assert main(["data", "fetch", "--all"]) == 2
    out, err = capsys.readouterr()
    for name in ("digits", "mnist", "p2p_nodes"):
        assert f"{name}: prepared in" in out
    for name in ("cifar10", "fashion_mnist", "ham10000", "shakespeare", "speech_commands"):
        assert f"of data set '{name}'" in err
    assert "cifar-10/cifar-10-python.tar.gz or cifar-10/cifar-10-batches-py.tar.xz" in err
    assert not list(workplace.rglob("*.tmp"))


def test_a_damaged_prepared_set_is_named_and_the_others_are_listed(workplace, capsys):
    assert main(["data", "fetch", "digits", "p2p_nodes"]) == 0
    path = next((workplace / "results").rglob("digits-*/test_x.npy"))
    path.write_bytes(b"")
    capsys.readouterr()
    assert main(["data", "list"]) == 0
    said = capsys.readouterr().out
    assert f"{path.parent.name}/test_x.npy cannot be read" in said
    assert "regression of 2" in said


def test_a_mistake_is_one_sentence(workplace, capsys):
    for words, sentence in (
        ([], "name one or more data sets, or give --all"),
        (["digits", "--all"], "name one or more data sets, or give --all"),
        (["mnist+features~lite1"], "did you mean 'lite0'"),
    ):
        assert main(["data", "fetch", *words]) == 2
        assert sentence in capsys.readouterr().err
