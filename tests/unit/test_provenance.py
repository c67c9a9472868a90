"""What a file says of its origin: the sources that were loaded, and nothing of the present."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_stages import compute, data, local, rounds, stage, train  # noqa: F401

from fedrepro.core import provenance, source_digests
from fedrepro.core.artifacts import read_json, read_source
from fedrepro.core.provenance import Sources, origin, origins
from fedrepro.core.registry import components
from fedrepro.core.state_and_model_files import load_state, read_models

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/fedrepro"
METHOD = "methods/average.py"


# --------------------------------------------------------------------------------- sources


def test_a_digest_tells_names_and_contents_apart():
    files = [{"a": b"bc"}, {"ab": b"c"}, {"a": b"b", "c": b""}, {"a": b"", "b": b"c"}, {}]
    assert len({source_digests.digest(one) for one in files}) == len(files)
    assert source_digests.digest({"a": b"bc"}) == source_digests.digest(files[0])


@pytest.fixture
def package(tmp_path):
    """A copy of the package, in a git repository of its own."""
    copied = tmp_path / "clone/src/fedrepro"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    # its compiled modules are no change, in a copy as in the repository
    shutil.copy(ROOT / ".gitignore", tmp_path / "clone")
    commit(tmp_path / "clone")
    return copied


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=b"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(folder):
    """Everything in the folder as a revision, by the twelve digits that name it."""
    if not (folder / ".git").exists():
        git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")
    return git(folder, "rev-parse", "HEAD")[:12]


ASK = (
    "import json; from fedrepro.core.provenance import loaded;print(json.dumps(loaded()._asdict()))"
)


def asked(package, code=ASK, **env):
    """What a new process says of the sources that it loads from there."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(package.parent), **env},
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def edit(path):
    path.write_text(path.read_text() + "\n# changed\n")


def test_a_revision_is_dirty_if_a_file_of_the_package_is_another_one(package, tmp_path):
    head = git(package, "rev-parse", "HEAD")[:12]
    before = asked(package)
    assert before["revision"] == head
    (package.parents[1] / "notes.txt").write_text("no file of the package")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("x")
    commit(tmp_path / "other")
    # wherever the work is done, and whatever a hook of another repository says
    assert asked(package, GIT_DIR=str(tmp_path / "other/.git")) == before
    edit(package / METHOD)
    edited = asked(package)
    assert edited["revision"] == f"{head}-dirty"
    assert edited["digest"] != before["digest"]
    head = commit(package.parents[1])
    assert asked(package) == {"digest": edited["digest"], "revision": head}
    (package / METHOD).rename(package / "methods/mine.py")
    assert asked(package)["revision"] == f"{head}-dirty"
    shutil.copy(package / "methods/mine.py", package / METHOD)
    assert asked(package)["revision"] == f"{head}-dirty"  # by the new file alone


def test_where_no_repository_tracks_the_package_its_digest_tells_it_apart(package, tmp_path):
    """An environment within some other project, as virtual environments are; and without git."""
    installed = tmp_path / "project/.venv/lib/fedrepro"
    shutil.copytree(package, installed)
    (tmp_path / "project/.gitignore").write_text(".venv\n")
    commit(tmp_path / "project")
    unknown = {"digest": asked(package)["digest"], "revision": "unknown"}
    assert asked(installed) == asked(package, PATH="/nowhere") == unknown


def test_sources_that_change_after_they_were_loaded_are_told(package):
    code = (
        "import json, sys; from fedrepro.core.provenance import loaded, origin; loaded();"
        f"open({str(package / METHOD)!r}, 'a').write('# changed');"
        "print(json.dumps(origin()))"
    )
    before = asked(package)
    found = asked(package, code)
    assert {key: found[key] for key in before} == before
    assert found["changed_to"] == asked(package)["digest"]


def test_every_file_of_the_package_counts(package):
    files = {str(p.relative_to(package)) for p in package.rglob("*") if p.is_file()}
    files -= {name for name in files if name.startswith("papers/") and not name.endswith(".py")}
    assert files == set(source_digests.on_disk(str(package)))
    (package / "__pycache__").mkdir()
    (package / "__pycache__/rng.cpython-311.pyc").write_bytes(b"compiled")
    (package / ".rng.py").write_bytes(b"an editor's")
    (package / "methods/just_gone.py").symlink_to("nowhere")
    assert files == set(source_digests.on_disk(str(package)))


# ------------------------------------------------------------------------------------ files


def files_of(data, tmp_path):  # noqa: F811
    """Provenance of a file of every kind, by kind."""
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
    return {
        "data": read_json(data / "data/dataset.json")["provenance"],
        "state": load_state(tmp_path / "rounds/global.pt")["provenance"],
        **{kind: read_source(path) for kind, path in tables.items()},
    }


def test_every_computed_file_says_where_it_comes_from(data, local, tmp_path):  # noqa: F811
    here = json.loads(json.dumps(origin()))
    assert set(here) == {"revision", "digest", "versions", "arithmetic", "device", "machine"}
    for kind, found in files_of(data, tmp_path).items():
        assert {key: found[key] for key in here} == here, kind
        assert "behind" not in found, kind
        assert found["resolved"], kind


def test_parameters_are_resolved_as_they_were_computed_with(data, local, tmp_path):  # noqa: F811
    found = files_of(data, tmp_path)
    assert found["data"]["resolved"].startswith("digits;v1;")
    assert found["local"]["resolved"]["training"][0].startswith("adam;v1;amsgrad~true+")
    assert "epochs~2" in found["local"]["resolved"]["training"][0]
    assert found["metrics"]["resolved"]["method"] == ["average;v1;weighted~true"]
    assert "rounds~2" in found["state"]["resolved"]["method"][0]
    assert set(found["metrics"]["resolved"]) == {
        "dataset", "partition", "model", "training", "method"
    }  # fmt: skip


def as_if_loaded(monkeypatch, digest, revision="earlier"):
    """As if this process had been started when the sources were others."""
    monkeypatch.setattr(provenance, "loaded", lambda: Sources(digest, revision))
    monkeypatch.setattr(source_digests, "digest", lambda files: digest)


def test_what_went_into_a_file_keeps_its_own_origin(data, tmp_path, monkeypatch):  # noqa: F811
    with monkeypatch.context() as earlier:
        as_if_loaded(earlier, "12" * 16)
        assert train(data, tmp_path) == 0
    words = ["--local", tmp_path / "local.parquet", "--method", "average"]
    assert compute("aggregate", data, tmp_path, *words, "--out", tmp_path / "m") == 0
    found = read_source(tmp_path / "m")
    assert found["digest"] == origin()["digest"]
    assert [one["digest"] for one in found["behind"]] == ["12" * 16]
    assert {one["revision"] for one in origins([found])} == {"earlier", origin()["revision"]}


def test_local_models_say_that_sources_changed_while_they_were_trained(
    data,  # noqa: F811
    local,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    true, asked = source_digests.digest, []

    def changing(files):
        asked.append(files)
        return true(files) if len(asked) == 1 else "56" * 16

    monkeypatch.setattr(source_digests, "digest", changing)
    assert train(data, tmp_path) == 0
    for name in ("local.parquet", "timings.parquet"):
        found = read_source(tmp_path / name)
        assert found["digest"] == read_source(local)["digest"]
        assert found["changed_to"] == "56" * 16
    one, two = read_models([local], [0, 1]), read_models([tmp_path / "local.parquet"], [0, 1])
    for trial in (0, 1):
        for name, value in one[trial].tensors.items():
            assert value.tobytes() == two[trial].tensors[name].tobytes()


def test_origins_are_counted_once_and_those_of_earlier_files_kept():
    old = {"revision": "a", "versions": {"torch": "2"}, "seed": 0}
    new = {"revision": "b", "digest": "12", "versions": {"torch": "2"}, "behind": [old]}
    assert origins([new, new, {"nothing": 1}]) == [
        {"digest": "12", "revision": "b", "versions": {"torch": "2"}},
        {"revision": "a", "versions": {"torch": "2"}},
    ]


def test_features_are_said_to_be_computed_where_they_are(monkeypatch):
    from fedrepro.core.registry import parse_token
    from fedrepro.stages.data import _device

    monkeypatch.setattr("fedrepro.components.features.by_networks.best_device", lambda: "cuda")
    assert _device(parse_token("dataset", "cifar10+features~convnet")) == "cuda"
    assert _device(parse_token("dataset", "cifar10")) == "cpu"
    assert _device(parse_token("dataset", "cifar10+features~centred")) == "cpu"
    assert _device(parse_token("dataset", "digits")) == "cpu"


def test_a_gpu_has_its_name_and_no_number(monkeypatch):
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "H200")
    names = [origin(device)["device"] for device in ("cpu", "cuda:0", "cuda:3")]
    assert names == ["cpu", "cuda (H200)", "cuda (H200)"]


def test_a_component_is_named_by_its_version_and_its_file():
    item = components("method")["average"]
    assert provenance.file_of(item) == f"{item.version} {source_digests.digest_of_file(item.file)}"
