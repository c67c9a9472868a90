"""Files are whole or absent, versioned, and the same bytes for the same inputs."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import pickle
import socket
import stat
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedrepro.core import checkpoint_and_model_files as checkpoints
from fedrepro.core import checksummed_files as artifacts
from fedrepro.core.errors import FedreproError

SOURCE = {"seed": 0}
STATE = {"round": 3, "nested": {"x": [1.5, None, "a"]}}


def metrics(path, values=(1,), source=SOURCE):
    artifacts.write_table(path, {"x": list(values)}, "metrics", source)


def models(path, trials=(0, 0, 1, 1), clients=(0, 1, 0, 1), only=slice(None)):
    rng = np.random.default_rng(0)
    shapes = {"weight0": (4, 3, 2), "bias0": (4, 2)}
    tensors = {name: rng.random(shape, np.float32)[only] for name, shape in shapes.items()}
    own = (list(column)[only] for column in (trials, clients, [5, 6, 7, 8]))
    artifacts.write_table(path, checkpoints.model_rows(*own, tensors), checkpoints.KIND, SOURCE)
    return tensors


WRITE = {
    "json": lambda path: artifacts.write_json(path, {"a": 1}),
    "array": lambda path: artifacts.write_array(path, np.zeros((100, 100))),
    "table": metrics,
    "state": lambda path: checkpoints.save_state(path, STATE),
    "models": models,
}
READ = {
    "json": artifacts.read_json,
    "table": lambda path: artifacts.read_table(path, "metrics"),
    "state": checkpoints.load_state,
    "models": lambda path: checkpoints.read_models([path], [0, 1]),
}


def test_a_failed_write_leaves_the_old_file_and_leftovers_of_dead_processes_go(tmp_path):
    path = tmp_path / "a.json"
    artifacts.write_json(path, {"a": 1})
    with contextlib.suppress(RuntimeError), artifacts.atomic(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert artifacts.read_json(path) == {"a": 1}
    assert os.listdir(tmp_path) == ["a.json"]
    (tmp_path / f".a.json.{2**22 + 1}.tmp").write_text("half")
    artifacts.write_json(tmp_path / "a.json", {"a": 1})
    assert os.listdir(tmp_path) == ["a.json"]


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(tmp_path):
        listener.bind("socket")
    before = sorted(os.listdir(tmp_path))
    kinds = dict.fromkeys(("pipe", "socket", "link"), ": it is a pipe or a device;")
    kinds |= {"folder": ": it is a folder;"}
    for name, kind in kinds.items():
        with pytest.raises(FedreproError, match=f"cannot write .*{name}{kind}"):
            artifacts.write_json(tmp_path / name, {"a": 1})
    assert sorted(os.listdir(tmp_path)) == before
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    with pytest.raises(FedreproError, match="it is a pipe or a device; name a file"):
        artifacts.target_of(os.devnull)  # asked only: as root, one that fails replaces it


def test_links_are_followed(tmp_path):
    (tmp_path / "folder").mkdir()
    artifacts.write_json(tmp_path / "folder/a.json", {"a": 0})
    for name, leads_to in (("old", "folder/a.json"), ("new", "folder/b.json")):
        (tmp_path / name).symlink_to(leads_to)
        artifacts.write_json(tmp_path / name, {"a": 1})
        assert (tmp_path / name).is_symlink()
        assert artifacts.read_json(tmp_path / leads_to) == {"a": 1}
    assert sorted(os.listdir(tmp_path / "folder")) == ["a.json", "b.json"]


@pytest.mark.parametrize("kind", WRITE)
@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        ("mkdir", errno.EROFS, "cannot write .*read-only file system"),
        ("mkdir", errno.EACCES, "cannot write .*permission denied"),
        ("replace", errno.ENOSPC, "the disk is full.*free some space"),
    ],
)
def test_a_disk_that_takes_no_file_is_a_sentence(tmp_path, monkeypatch, kind, call, code, words):
    def refused(path, *_args, **_more):
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(artifacts.os if call == "replace" else type(tmp_path), call, refused)
    with pytest.raises(FedreproError, match=words):
        WRITE[kind](tmp_path / "new" / "file")
    assert not list(tmp_path.rglob("*file*"))


class Full(io.BytesIO):
    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_errors_of_the_disk_are_told_from_those_of_what_is_read(tmp_path, monkeypatch):
    with pytest.raises(PermissionError), artifacts.atomic(tmp_path / "a"):
        raise PermissionError(errno.EACCES, "Permission denied", "/elsewhere/source")
    (tmp_path / "results").write_text("")
    with pytest.raises(FedreproError, match=r"cannot write .*/results"):
        artifacts.write_json(tmp_path / "results" / "a.json", {"a": 1})
    monkeypatch.setattr(type(tmp_path), "open", lambda *_: Full())
    with pytest.raises(FedreproError, match=r"the disk is full: cannot write .*x\.npy"):
        artifacts.write_array(tmp_path / "x.npy", np.zeros((100, 100)))


@pytest.mark.parametrize("kind", WRITE)
def test_equal_values_have_equal_bytes_whatever_their_file_is_called(tmp_path, kind):
    for name in ("a", "b"):
        WRITE[kind](tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_other_programs_read_what_is_written_and_a_compact_table_is_the_same(tmp_path):
    torch, pd = pytest.importorskip("torch"), pytest.importorskip("pandas")
    tensors = models(tmp_path / "m.parquet")
    frame = pd.read_parquet(tmp_path / "m.parquet")
    row = frame.query("trial == 1 and client == 0 and tensor == 'weight0'").iloc[0]
    values = np.frombuffer(row["values"], np.float32).reshape(row["shape"])
    assert np.array_equal(values, tensors["weight0"][2])
    checkpoints.save_state(tmp_path / "a.pt", {**STATE, "weights": torch.arange(4.0)})
    assert zipfile.ZipFile(tmp_path / "a.pt").testzip() is None
    found = checkpoints.load_state(tmp_path / "a.pt")
    assert torch.equal(found.pop("weights"), torch.arange(4.0))
    assert found == STATE
    rng = np.random.default_rng(0)
    table = {"trial": np.repeat(np.arange(20), 500), "value": rng.choice(rng.random(500), 10000)}
    found = {}
    for way in (False, True):
        artifacts.write_table(tmp_path / str(way), table, "metrics", {}, compact=way)
        found[way] = artifacts.read_table(tmp_path / str(way), "metrics").replace_schema_metadata()
    assert found[True].equals(found[False])
    assert 2 * (tmp_path / "True").stat().st_size < (tmp_path / "False").stat().st_size


def test_json_carries_a_checksum_of_what_it_holds(tmp_path):
    path = tmp_path / "a.json"
    value = {"schema": 2, "b": [1.5, None, "ä"], "c": {"d": True}}
    artifacts.write_json(path, value)
    path.write_text(json.dumps(json.loads(path.read_text())))  # reformatting is no damage
    assert artifacts.read_json(path) == value
    unlike = "its checksum is not that of what it holds"
    for text in (path.read_text().replace("1.5", "1.4"), json.dumps(value), "[1, 2]"):
        path.write_text(text)
        with pytest.raises(FedreproError, match=unlike):
            artifacts.read_json(path)
    for bad in (b"", b"[" * 100_000, b'"\xff"', b'{"a": 1'):
        path.write_bytes(bad)
        with pytest.raises(FedreproError, match=r"a\.json cannot be read"):
            artifacts.read_json(path)


def test_a_table_says_where_it_comes_from_and_recorded_ones_under_the_same_key(tmp_path):
    metrics(tmp_path / "t.parquet", source={"seed": 7})
    assert artifacts.read_source(tmp_path / "t.parquet") == {"seed": 7}
    # Files outlive the rooms of the code: what they call their provenance must not move.
    paths = sorted((Path(__file__).parents[2] / "reports/record").rglob("*.parquet"))
    assert paths
    assert all(map(artifacts.read_source, paths))


@pytest.mark.parametrize(("most", "groups"), [(1, 4), (70, 2), (10**6, 1)])
def test_local_models_come_back_from_blocks_in_any_order(tmp_path, monkeypatch, most, groups):
    """From row groups that stay below what parquet takes: a model has 32 bytes."""
    monkeypatch.setattr(checkpoints, "GROUP_BYTES", most)
    tensors = models(tmp_path / "m.parquet")
    assert pq.ParquetFile(tmp_path / "m.parquet").num_row_groups == groups
    for i in (2, 3):
        models(tmp_path / f"{i}.parquet", only=slice(i, i + 1))
    whole = checkpoints.read_models([tmp_path / "m.parquet"], [0, 1])
    from_blocks = checkpoints.read_models([tmp_path / "3.parquet", tmp_path / "2.parquet"], [1])
    for name, value in tensors.items():
        assert np.array_equal(whole[0].tensors[name], value[:2])
    for found in (whole[1], from_blocks[1]):
        assert all(np.array_equal(found.tensors[name], tensors[name][2:]) for name in tensors)
        assert found.examples.tolist() == [7, 8]
    models(tmp_path / "m.parquet", clients=(0, 1, 0, 2))
    for trials, told in (([0, 1], "some clients of trial 1 are missing"), ([5], "trial 5")):
        with pytest.raises(FedreproError, match=told):
            checkpoints.read_models([tmp_path / "m.parquet"], trials)


def flipped(data, at, bit=0):
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


@pytest.mark.parametrize("kind", ["table", "state", "models"])
def test_a_flipped_bit_or_a_cut_anywhere_is_a_sentence(tmp_path, kind):
    path = tmp_path / "file"
    WRITE[kind](path)
    good = path.read_bytes()
    draw = np.random.default_rng(0)
    cases = [flipped(good, int(at), int(at) % 8) for at in draw.integers(len(good), size=60)]
    cases += [good[: int(length)] for length in draw.integers(len(good), size=5)]
    for bad in [*cases, b"", b"\0" * 99]:
        path.write_bytes(bad)
        with pytest.raises(FedreproError, match=r"file (cannot be read|holds a table of other)"):
            READ[kind](path)
    metrics(path)
    good = path.read_bytes()
    for text, words in ((b"seed", "of its bytes"), (b"xxh3:", "is missing")):
        path.write_bytes(flipped(good, good.rindex(text)))
        with pytest.raises(FedreproError, match=f"its checksum .*{words}"):
            artifacts.read_table(path, "metrics")


@pytest.mark.parametrize("kind", ["table", "state"])
def test_a_file_that_lies_where_another_belongs_is_refused(tmp_path, kind):
    one, two = (tmp_path / f"train/digits-trials-{i}/a" for i in (0, 1))
    for path in (one, two):
        WRITE[kind](path)
        READ[kind](path)
    for copy in (two, tmp_path / "copy"):
        copy.write_bytes(one.read_bytes())
    with pytest.raises(FedreproError, match=r"it was made as train/digits-trials-0/a"):
        READ[kind](two)
    READ[kind](tmp_path / "copy")  # outside of any tree it may be called anything
    assert artifacts.place_of("/home/train/results/tiny/train/x/a") == "train/x/a"


def test_tables_of_another_kind_are_refused_and_those_of_before_checksums_are_read(tmp_path):
    path = tmp_path / "t.parquet"
    metrics(path)
    with pytest.raises(FedreproError, match="holds metrics, but timings was expected"):
        artifacts.read_table(path, "timings")
    table = pq.read_table(path)
    newer = {**table.schema.metadata, b"fedrepro.schema": b"99"}
    pq.write_table(table.replace_schema_metadata(newer), path)
    for read in (READ["table"], artifacts.read_source):
        with pytest.raises(FedreproError, match="schema version 99, this fedrepro reads"):
            read(path)
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(FedreproError, match="holds a table of other software"):
        artifacts.read_table(path, "metrics")
    old = {"fedrepro.kind": "metrics", "fedrepro.schema": "1", "fedrepro.provenance": '{"seed": 7}'}
    pq.write_table(pa.table({"x": [1, 2]}).replace_schema_metadata(old), tmp_path / "t.parquet")
    table = artifacts.read_table(tmp_path / "t.parquet", "metrics")
    assert (table["x"].to_pylist(), artifacts.read_provenance(table)) == ([1, 2], {"seed": 7})


def test_a_damaged_state_is_a_sentence_and_never_runs_code(tmp_path):
    (tmp_path / "b.pt").write_bytes(pickle.dumps(os.system))
    checkpoints.save_state(tmp_path / "c.pt", os.system)  # whose checksum is right
    for name in ("b.pt", "c.pt"):
        with pytest.raises(FedreproError, match="missing or damaged"):
            checkpoints.load_state(tmp_path / name)


def test_a_temporary_folder_goes_with_what_is_in_it(tmp_path):
    with artifacts.temporary_folder(tmp_path) as own:
        (own / "file").write_text("x")
        assert own.parent == tmp_path
    assert not list(tmp_path.iterdir())
