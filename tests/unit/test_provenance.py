"""What a file says of its origin: the sources that were loaded, and nothing of the present."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_rooms import imported
from test_stages import SCENARIO, compute, data, local, rounds, stage, train  # noqa: F401

from fedrepro.core import provenance, sources
from fedrepro.core.artifacts import load_state, read_json
from fedrepro.core.local_models import read_models
from fedrepro.core.packs import packs
from fedrepro.core.provenance import Loaded, Sources, origin, origins, provenance_of
from fedrepro.core.registry import KINDS, components

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/fedrepro"
METHOD = "methods/average.py"


# --------------------------------------------------------------------------------- sources


def test_a_digest_is_of_names_and_contents():
    files = {"a.py": b"x = 1", "b.py": b"y = 2"}
    others = [{"a.py": b"x = 3", "b.py": b"y = 2"}, {"a.py": b"x = 1", "c.py": b"y = 2"}]
    assert sources.digest(dict(files)) == sources.digest(files)
    assert sources.digest(files) not in map(sources.digest, others)


@pytest.fixture
def package(tmp_path):
    """A copy of the package, in a git repository of its own."""
    copied = tmp_path / "clone/src/fedrepro"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
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
    "import json; from dataclasses import asdict; from fedrepro.core.provenance import loaded;"
    "print(json.dumps(asdict(loaded())))"
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


def test_a_clean_revision_is_named_wherever_the_work_is_done(package):
    head = git(package, "rev-parse", "HEAD")[:12]
    found = asked(package)
    assert found["computing"]["revision"] == found["whole"]["revision"] == head
    (package.parents[1] / "notes.txt").write_text("nothing that computes")
    assert asked(package) == found


def test_only_sources_that_compute_make_a_revision_dirty(package):
    before = asked(package)
    edit(package / "drawings/canvas.py")
    drawing = asked(package)
    assert drawing["computing"] == before["computing"]
    assert drawing["whole"]["revision"] == before["whole"]["revision"] + "-dirty"
    assert drawing["whole"]["digest"] != before["whole"]["digest"]
    edit(package / METHOD)
    both = asked(package)
    assert both["computing"]["revision"] == before["computing"]["revision"] + "-dirty"
    assert both["computing"]["digest"] != before["computing"]["digest"]
    head = commit(package.parents[1])
    after = asked(package)
    assert after["computing"] == {"digest": both["computing"]["digest"], "revision": head}


@pytest.mark.parametrize("change", ["a new file", "a file less"])
def test_files_that_came_or_went_make_it_dirty(package, change):
    if change == "a new file":
        shutil.copy(package / METHOD, package / "methods/mine.py")
    else:
        (package / METHOD).unlink()
    assert asked(package)["computing"]["revision"].endswith("-dirty")


def test_a_repository_that_does_not_track_the_package_is_not_named(package, tmp_path):
    """An environment within some other project, as virtual environments are."""
    installed = tmp_path / "project/.venv/lib/fedrepro"
    shutil.copytree(package, installed)
    (tmp_path / "project/.gitignore").write_text(".venv\n")
    commit(tmp_path / "project")
    found = asked(installed)
    assert found["computing"]["revision"] == found["whole"]["revision"] == "unknown"
    assert found["computing"]["digest"] == asked(package)["computing"]["digest"]


def test_a_hook_of_another_repository_does_not_mislead(package, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("x")
    commit(other)
    assert asked(package, GIT_DIR=str(other / ".git")) == asked(package)


def test_without_git_the_revision_is_unknown(package):
    assert asked(package, PATH="/nowhere")["computing"]["revision"] == "unknown"


def test_sources_that_change_after_they_were_loaded_are_told(package):
    code = (
        "import json, sys; from fedrepro.core.provenance import loaded, origin; loaded();"
        f"open({str(package / METHOD)!r}, 'a').write('# changed');"
        f"open({str(package / 'drawings/style.py')!r}, 'a').write('# changed');"
        "print(json.dumps(origin()))"
    )
    before = asked(package)
    found = asked(package, code)
    assert found["digest"] == before["computing"]["digest"]
    assert found["revision"] == before["computing"]["revision"]
    assert found["changed_to"] == asked(package)["computing"]["digest"]


def test_a_drawing_that_changes_is_no_matter_for_what_computes(package):
    code = (
        "import json; from fedrepro.core.provenance import loaded, origin; loaded();"
        f"open({str(package / 'drawings/style.py')!r}, 'a').write('# changed');"
        "print(json.dumps(origin()))"
    )
    assert "changed_to" not in asked(package, code)


def test_every_file_of_the_package_counts(package):
    files = {str(p.relative_to(package)) for p in package.rglob("*") if p.is_file()}
    files -= {name for name in files if name.startswith("papers/") and not name.endswith(".py")}
    assert files == set(sources.on_disk(str(package)))
    (package / "__pycache__").mkdir()
    (package / "__pycache__/rng.cpython-311.pyc").write_bytes(b"compiled")
    (package / ".rng.py").write_bytes(b"an editor's")
    (package / "methods/just_gone.py").symlink_to("nowhere")
    assert files == set(sources.on_disk(str(package)))


def test_the_table_names_only_what_there_is():
    names = sources.on_disk()
    for part in sources.OTHER:
        assert any(name.startswith(part) for name in names), part
    assert set(sources.COMPUTING) <= set(names)
    assert not [name for name in sources.COMPUTING if not name.startswith(tuple(sources.OTHER))]


def test_a_digest_tells_names_and_contents_apart():
    files = [{"a": b"bc"}, {"ab": b"c"}, {"a": b"b", "c": b""}, {"a": b"", "b": b"c"}, {}]
    assert len({sources.digest(one) for one in files}) == len(files)


STAGES = ("data", "train", "aggregate", "federate", "peer", "simulate")  # that compute


def test_what_counts_is_what_computing_stages_import():
    """With all components, which are found by their folder; the files, by name."""
    begin = [f"fedrepro.stages.{name}" for name in STAGES]
    own = (f"papers/*/{name.rpartition('.')[2]}" for name in KINDS.values())
    folders = "components", "methods", *own
    begin += [module_of(p) for folder in folders for p in PACKAGE.glob(f"{folder}/**/*.py")]
    needed = {str(path.relative_to(PACKAGE)) for path in imported_by(begin)}
    # these only say which paper it is
    needed -= {f"papers/{folder}__init__.py" for folder in ("", *(f"{name}/" for name in packs()))}
    counted = {name for name in sources.on_disk() if name.endswith(".py")}
    counted = {name for name in counted if sources.computes(name)}
    assert sorted(counted - needed) == [], "counted, and no computing stage loads them"
    assert sorted(needed - counted) == [], "left out, and computing stages load them"


def test_to_edit_how_verdicts_are_found_is_no_matter_for_what_computes(package):
    before = asked(package)
    for name in ("verdicts/printed.py", "verdicts/judging.py", "planning/measures.py"):
        edit(package / name)
    after = asked(package)
    assert after["computing"] == before["computing"]
    assert after["whole"] != before["whole"]


def module_of(path):
    inner = path.relative_to(PACKAGE.parent).with_suffix("")
    return ".".join(inner.parts).removesuffix(".__init__")


def imported_by(names):
    """The files of the package that these modules import, they themselves among them."""
    files = {module_of(path): path for path in PACKAGE.rglob("*.py")}
    found, left = set(), list(names)
    while left:
        words = left.pop().split(".")
        for count in range(1, len(words) + 1):
            path = files.get(".".join(words[:count]))
            if path and path not in found:
                found.add(path)
                left += imported(ast.parse(path.read_text(encoding="utf-8")))
    return found


def test_computing_stages_load_nothing_that_is_left_out_of_the_digest(tmp_path):
    """All that they load but the parsing of their command."""
    folder = tmp_path
    common = [
        *SCENARIO, "--data", folder / "d", "--members", folder / "p", "--trials", "0",
        "--timings", folder / "t",
    ]  # fmt: skip
    jobs = [
        ["prepare", "--dataset", "digits", "--out", folder / "d"],
        ["partition", "--partition", "dirichlet+clients~3", "--data", folder / "d",
         "--trials", "0", "--out", folder / "p"],
        ["train", *common, "--clients", "0-2", "--out", folder / "l"],
        ["aggregate", *common, "--method", "average", "--local", folder / "l",
         "--out", folder / "m"],
        ["federate", *common, "--method", "downpour_sgd+rounds~1", "--out", folder / "f",
         "--global-model", folder / "g"],
    ]  # fmt: skip
    code = (
        "import sys, json\n"
        "from fedrepro.cli.main import main\n"
        f"for job in json.loads({json.dumps([list(map(str, job)) for job in jobs])!r}):\n"
        "    assert main(['stage', *job]) == 0\n"
        "names = [name for name in sys.modules if name.startswith('fedrepro.')]\n"
        "print(json.dumps([name.replace('.', '/')[9:] + '.py' for name in names]))"
    )
    found = asked(PACKAGE, code)
    assert "stages/federate.py" in found
    left_out = {name for name in found if not sources.computes(name)} - {"cli.py"}
    left_out -= {f"papers/{name}.py" for name in packs()}  # these only say which paper it is
    assert left_out <= {"cli/main.py", "cli/stage.py"}


# ------------------------------------------------------------------------------------ files


def files_of(data, tmp_path):  # noqa: F811
    """Provenance of a file of every kind, by kind."""
    words = ["--local", data / "local.parquet", "--method", "average", "--out", tmp_path / "m"]
    assert compute("aggregate", data, tmp_path, *words) == 0
    assert rounds(data, tmp_path / "rounds", method="downpour_sgd+rounds~2") == 0
    tables = {
        "partition": data / "p.parquet",
        "local": data / "local.parquet",
        "timings of training": data / "timings.parquet",
        "metrics": tmp_path / "m",
        "timings": tmp_path / "timings.parquet",
        "rounds": tmp_path / "rounds/m.parquet",
    }
    return {
        "data": read_json(data / "data/dataset.json")["provenance"],
        "state": load_state(tmp_path / "rounds/global.pt")["provenance"],
        **{kind: provenance_of(path) for kind, path in tables.items()},
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
    own = Sources(digest, revision)
    monkeypatch.setattr(provenance, "loaded", lambda: Loaded(own, own))
    monkeypatch.setattr(sources, "digest", lambda files: digest)


def test_what_went_into_a_file_keeps_its_own_origin(data, tmp_path, monkeypatch):  # noqa: F811
    with monkeypatch.context() as earlier:
        as_if_loaded(earlier, "12" * 16)
        assert train(data, tmp_path) == 0
    words = ["--local", tmp_path / "local.parquet", "--method", "average"]
    assert compute("aggregate", data, tmp_path, *words, "--out", tmp_path / "m") == 0
    found = provenance_of(tmp_path / "m")
    assert found["digest"] == origin()["digest"]
    assert [one["digest"] for one in found["behind"]] == ["12" * 16]
    assert {one["revision"] for one in origins([found])} == {"earlier", origin()["revision"]}


def test_local_models_say_that_sources_changed_while_they_were_trained(
    data,  # noqa: F811
    local,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    true, asked = sources.digest, []

    def changing(files):
        asked.append(files)
        return true(files) if len(asked) == 1 else "56" * 16

    monkeypatch.setattr(sources, "digest", changing)
    assert train(data, tmp_path) == 0
    for name in ("local.parquet", "timings.parquet"):
        found = provenance_of(tmp_path / name)
        assert found["digest"] == provenance_of(local)["digest"]
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

    monkeypatch.setattr("fedrepro.components.features._images.best_device", lambda: "cuda")
    assert _device(parse_token("dataset", "cifar10+features~convnet")) == "cuda"
    assert _device(parse_token("dataset", "cifar10")) == "cpu"
    assert _device(parse_token("dataset", "cifar10+features~centred")) == "cpu"
    assert _device(parse_token("dataset", "digits")) == "cpu"


def test_a_gpu_has_its_name_and_no_number(monkeypatch):
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "H200")
    names = [provenance.device_in_words(device) for device in ("cpu", "cuda:0", "cuda:3")]
    assert names == ["cpu", "cuda (H200)", "cuda (H200)"]


def test_a_component_is_named_by_its_file_as_it_was_loaded(monkeypatch):
    """Whatever is on disk by now; a file of one's own, elsewhere, as it is on disk."""
    here, nothing = components("method")["average"], Sources("", "")
    inside = os.path.relpath(here.file, sources.PACKAGE)
    known = Loaded(nothing, nothing, {inside: "as loaded"})
    monkeypatch.setattr(provenance, "loaded", lambda: known)
    assert provenance.file_of(here) == f"{here.version} as loaded"
    other = components("method")["local"]
    assert provenance.file_of(other) == f"{other.version} {sources.digest_of_file(other.file)}"


def test_a_revision_is_a_commit_only_if_its_blobs_are_the_files():
    """Git names a blob by the hash of 'blob', its length and its bytes; commits are as long."""
    files = {"a.py": b"hello\n"}
    sha1 = "ce013625030ba8dba906f756967f9e9ca394464a"  # printf 'hello\n' | git hash-object --stdin
    sha256 = "2cf8d83d9ee29543b34a87727421fdecb7e3f3a183d337639025de576db9ebb4"
    for digits, blob in ((40, sha1), (64, sha256)):
        commit = "0123456789abcdef" * 4
        named = provenance._revision(files, commit[:digits], {"a.py": blob})
        assert named == "0123456789ab"
        for other in ({"a.py": "0" * digits}, {"a.py": blob, "b.py": blob}, {"b.py": blob}):
            assert provenance._revision(files, commit[:digits], other) == "0123456789ab-dirty"
    assert provenance._revision(files, "", {}) == "unknown"
