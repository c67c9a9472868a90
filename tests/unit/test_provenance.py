"""What a file says of its origin: the sources that were loaded, and nothing of the present."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from findings import ROOT
from test_stages import compute, data, local, rounds, stage, train  # noqa: F401

from fedrepro.core import provenance, source_digests
from fedrepro.core.checkpoint_and_model_files import load_state
from fedrepro.core.checksummed_files import read_json, read_source
from fedrepro.core.provenance import origin, origins
from fedrepro.core.registry import parse_token
from fedrepro.stages.data import _device

PACKAGE = ROOT / "src/fedrepro"
METHOD = "methods/average.py"


def test_digests_tell_names_apart_and_origins_are_counted_once():
    files = [{"a": b"bc"}, {"ab": b"c"}, {"a": b"b", "c": b""}, {"a": b"", "b": b"c"}, {}]
    assert len({source_digests.digest(one) for one in files}) == len(files)
    assert source_digests.digest({"a": b"bc"}) == source_digests.digest(files[0])
    old = {"revision": "a", "versions": {"torch": "2"}, "seed": 0}
    new = {"revision": "b", "digest": "12", "versions": {"torch": "2"}, "behind": [old]}
    assert origins([new, new, {"nothing": 1}]) == [
        {"digest": "12", "revision": "b", "versions": {"torch": "2"}},
        {"revision": "a", "versions": {"torch": "2"}},
    ]


@pytest.fixture
def package(tmp_path):
    copied = tmp_path / "clone/src/fedrepro"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    # its compiled modules are no change, in a copy as in the repository
    shutil.copy(ROOT / ".gitignore", tmp_path / "clone")
    return copied


def commit(folder):
    """Everything in the folder as a revision, by the twelve digits that name it."""
    who = "git -c user.name=a -c user.email=b"
    words = f"git init -q && git add -A && {who} commit -q -m x && git rev-parse HEAD"
    return subprocess.check_output(words, shell=True, cwd=folder, text=True)[:12]


def asked(package, **env):
    code = "from fedrepro.core.provenance import loaded_source; print(*loaded_source().values())"
    env = {**os.environ, "PYTHONPATH": str(package.parent), **env}
    said = subprocess.check_output([sys.executable, "-c", code], env=env, cwd="/", text=True)
    return dict(zip(("revision", "digest"), said.split(), strict=True))


def test_a_revision_is_dirty_if_a_file_of_the_package_is_another_one(package):
    head = commit(package.parents[1])
    before = asked(package)
    assert before["revision"] == head
    (package.parents[1] / "notes.txt").write_text("no file of the package")
    assert asked(package) == before  # wherever the work is done
    kept = (package / METHOD).read_text()
    (package / METHOD).write_text(f"{kept}\n# changed\n")
    edited = asked(package)
    assert edited["revision"] == f"{head}-dirty"
    assert edited["digest"] != before["digest"]
    (package / METHOD).write_text(kept)
    (package / "methods/mine.py").touch()
    assert asked(package)["revision"] == f"{head}-dirty"  # by the new file alone


def test_every_file_of_the_package_counts_and_without_a_repository_there_is_no_revision(package):
    files = {str(p.relative_to(package)) for p in package.rglob("*") if p.is_file()}
    files -= {name for name in files if name.startswith("papers/") and not name.endswith(".py")}
    assert files == set(source_digests.on_disk(str(package)))
    (package / ".rng.py").write_bytes(b"an editor's")
    (package / "methods/just_gone.py").symlink_to("nowhere")
    (package.parents[1] / ".gitignore").write_text("src\n")
    commit(package.parents[1])  # of some other project, as around virtual environments
    found = asked(package)  # which compiles some files
    assert found["revision"] == "unknown"
    assert asked(package, PATH="/nowhere") == found
    assert files == set(source_digests.on_disk(str(package)))


def test_every_computed_file_says_where_it_comes_from(data, local, tmp_path):  # noqa: F811
    words = ["--local", data / "local.parquet", "--method", "average", "--out", tmp_path / "m"]
    assert compute("aggregate", data, tmp_path, *words) == 0
    assert rounds(data, tmp_path / "rounds", method="downpour_sgd+rounds~2") == 0
    tables = {
        "partition": data / "members",
        "local": data / "local.parquet",
        "timings of training": data / "timings.parquet",
        "metrics": tmp_path / "m",
        "timings": tmp_path / "timings.parquet",
        "rounds": tmp_path / "rounds/m.parquet",
    }
    files = {
        "data": read_json(data / "data/dataset.json")["provenance"],
        "state": load_state(tmp_path / "rounds/global.pt")["provenance"],
        **{kind: read_source(path) for kind, path in tables.items()},
    }
    here = json.loads(json.dumps(origin()))
    assert set(here) == {"revision", "digest", "versions", "arithmetic", "device", "machine"}
    for kind, found in files.items():
        assert {key: found[key] for key in here} == here, kind
        assert "behind" not in found, kind
    resolved = {kind: found["resolved"] for kind, found in files.items()}
    assert all(resolved.values())
    assert resolved["data"].startswith("digits;v1;")
    (training,) = resolved["local"]["training"]
    assert training.startswith("adam;v1;amsgrad~true+")
    assert "epochs~2" in training
    assert resolved["metrics"]["method"] == ["average;v1;weighted~true"]
    assert "rounds~2" in resolved["state"]["method"][0]
    assert set(resolved["metrics"]) == {"dataset", "partition", "model", "training", "method"}


def test_what_went_into_a_file_keeps_its_own_origin(data, tmp_path, monkeypatch):  # noqa: F811
    with monkeypatch.context() as earlier:  # as if this process had been started then
        then = {"revision": "earlier", "digest": "12" * 16}.copy
        earlier.setattr(provenance, "loaded_source", then)
        earlier.setattr(source_digests, "digest", lambda files: "12" * 16)
        assert train(data, tmp_path) == 0
    words = ["--local", tmp_path / "local.parquet", "--method", "average"]
    assert compute("aggregate", data, tmp_path, *words, "--out", tmp_path / "m") == 0
    found = read_source(tmp_path / "m")
    assert found["digest"] == origin()["digest"]
    assert [one["digest"] for one in found["behind"]] == ["12" * 16]
    assert {one["revision"] for one in origins([found])} == {"earlier", origin()["revision"]}


def test_features_and_a_gpu_are_named_where_they_compute(monkeypatch):
    monkeypatch.setattr(
        "fedrepro.components.features.by_trained_networks.best_device", lambda: "cuda"
    )
    assert _device(parse_token("dataset", "cifar10+features~convnet")) == "cuda"
    for token in ("cifar10", "cifar10+features~centred", "digits"):
        assert _device(parse_token("dataset", token)) == "cpu"
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "H200")
    names = [origin(device)["device"] for device in ("cpu", "cuda:0", "cuda:3")]
    assert names == ["cpu", "cuda (H200)", "cuda (H200)"]
