"""Files are whole or absent, versioned, and the same bytes for the same inputs."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import socket
import stat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedrepro.cli.main import main
from fedrepro.core import artifacts
from fedrepro.core.artifacts import (
    atomic,
    load_state,
    map_array,
    models,
    read_json,
    read_models,
    read_provenance,
    read_source,
    read_table,
    save_state,
    target_of,
    write_array,
    write_json,
    write_models,
    write_table,
)
from fedrepro.core.errors import FedreproError

SOURCE = {"seed": 0}


def some_models(path, trials=(0, 0, 1, 1), clients=(0, 1, 0, 1)):
    rng = np.random.default_rng(0)
    tensors = {
        "weight0": rng.random((4, 3, 2), np.float32),
        "bias0": rng.random((4, 2), np.float32),
    }
    write_models(path, trials, clients, [5, 6, 7, 8], tensors, SOURCE)
    return tensors


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})

    def fail():
        with atomic(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert read_json(path) == {"a": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_leftovers_of_a_killed_process_are_removed_but_not_those_of_a_live_one(tmp_path):
    dead = tmp_path / f".a.json.{2**22 + 1}.tmp"
    live = tmp_path / f".a.json.{os.getppid()}.tmp"
    dead.write_text("half")
    live.write_text("half")
    write_json(tmp_path / "a.json", {"a": 1})
    assert sorted(os.listdir(tmp_path)) == sorted([live.name, "a.json"])


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(tmp_path):
        listener.bind("socket")
    before = sorted(os.listdir(tmp_path))
    kinds = {"pipe": "a pipe", "folder": "a folder", "socket": "a socket", "link": "a pipe"}
    for name, kind in kinds.items():
        with pytest.raises(FedreproError, match=f"cannot write .*{name}: it is {kind} and no file"):
            write_json(tmp_path / name, {"a": 1})
    with pytest.raises(FedreproError, match=r"cannot write .*loop \(too many levels"):
        write_json(tmp_path / "loop", {"a": 1})
    assert sorted(os.listdir(tmp_path)) == before
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    with pytest.raises(FedreproError, match="it is a device and no file"):
        target_of(os.devnull)  # asked only: as root, one that fails replaces it


def test_what_a_command_reads_it_does_not_write(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "raw.svg").write_text("kept")
    (tmp_path / "link").symlink_to("data")
    monkeypatch.setattr("fedrepro.cli.draw.raw_files", lambda _: ["raw.svg"])
    prepare = ["stage", "prepare", "--dataset", "digits", "--raw", "data", "--out"]
    for command, sentence in (
        ([*prepare, "data"], "cannot write data: this command reads it"),
        ([*prepare, "link"], "cannot write link: this command reads it, which is data,"),
        (
            ["draw", "partition", "iid+clients~3", "--raw", ".", "--out", "raw.svg"],
            "this command reads it",
        ),
    ):
        assert main(command) == 2
        assert sentence in capsys.readouterr().err
    assert (tmp_path / "raw.svg").read_text() == "kept"
    assert not any((tmp_path / "data").iterdir())


def test_links_are_followed(tmp_path):
    (tmp_path / "folder").mkdir()
    write_json(tmp_path / "folder/a.json", {"a": 0})
    for name, leads_to in (("old", "folder/a.json"), ("new", "folder/b.json")):
        (tmp_path / name).symlink_to(leads_to)
        write_json(tmp_path / name, {"a": 1})
        assert (tmp_path / name).is_symlink()
        assert read_json(tmp_path / leads_to) == {"a": 1}
    assert sorted(os.listdir(tmp_path / "folder")) == ["a.json", "b.json"]


def test_a_full_disk_is_a_sentence(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(artifacts.os, "replace", full)
    with pytest.raises(FedreproError, match=r"the disk is full.*free some space"):
        write_json(tmp_path / "a.json", {"a": 1})
    assert os.listdir(tmp_path) == []


def test_equal_tables_have_equal_bytes(tmp_path):
    for name in ("a", "b"):
        some_models(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_table_for_a_repository_is_the_same_in_fewer_bytes(tmp_path):
    rng = np.random.default_rng(0)
    table = {"trial": np.repeat(np.arange(20), 500), "value": rng.choice(rng.random(500), 10000)}
    for name, kept in (("usual", False), ("kept", True)):
        write_table(tmp_path / f"{name}.parquet", table, "metrics", {}, kept=kept)
    usual, kept = (
        read_table(tmp_path / f"{name}.parquet", "metrics") for name in ("usual", "kept")
    )
    assert kept.replace_schema_metadata().equals(usual.replace_schema_metadata())
    sizes = [(tmp_path / f"{name}.parquet").stat().st_size for name in ("kept", "usual")]
    assert 2 * sizes[0] < sizes[1]


def test_local_models_come_back_by_trial_and_client(tmp_path):
    tensors = some_models(tmp_path / "m.parquet")
    found = read_models([tmp_path / "m.parquet"], [0, 1])
    for name, value in tensors.items():
        assert np.array_equal(found[0].tensors[name], value[:2])
        assert np.array_equal(found[1].tensors[name], value[2:])
    assert found[1].examples.tolist() == [7, 8]


def test_local_models_are_gathered_from_blocks_in_any_order(tmp_path):
    tensors = some_models(tmp_path / "all.parquet")
    parts = []
    for i, client in ((3, 1), (2, 0)):
        path = tmp_path / f"{client}.parquet"
        one = {k: v[[i]] for k, v in tensors.items()}
        write_models(path, [1], [client], [5 + i], one, SOURCE)
        parts.append(path)
    joined = read_models(parts, [1])[1]
    whole = read_models([tmp_path / "all.parquet"], [1])[1]
    assert all(np.array_equal(joined.tensors[k], whole.tensors[k]) for k in tensors)
    assert joined.examples.tolist() == whole.examples.tolist()


@pytest.mark.parametrize(("most", "groups"), [(1, 4), (70, 2), (10**6, 1)])
def test_a_row_group_of_large_models_stays_below_what_parquet_takes(
    tmp_path, monkeypatch, most, groups
):
    monkeypatch.setattr(models, "ROW_GROUP_BYTES", most)  # a model has 32
    tensors = some_models(tmp_path / "m.parquet")
    assert pq.ParquetFile(tmp_path / "m.parquet").num_row_groups == groups
    found = read_models([tmp_path / "m.parquet"], [1])[1].tensors
    assert all(np.array_equal(found[name], tensors[name][2:]) for name in tensors)


def test_local_models_that_were_stored_as_lists_are_read(tmp_path):
    tensors = some_models(tmp_path / "m.parquet")
    table = read_table(tmp_path / "m.parquet", "local_models")
    values = [np.frombuffer(one, np.float32) for one in table["values"].to_pylist()]
    at = table.schema.get_field_index("values")
    table = table.set_column(at, "values", pa.array(values, pa.list_(pa.float32())))
    write_table(tmp_path / "old.parquet", table, "local_models", SOURCE)
    found = read_models([tmp_path / "old.parquet"], [1])[1].tensors
    assert all(np.array_equal(found[name], tensors[name][2:]) for name in tensors)


def test_a_missing_client_is_a_sentence(tmp_path):
    some_models(tmp_path / "m.parquet", clients=(0, 1, 0, 2))
    with pytest.raises(FedreproError, match="some clients of trial 1 are missing"):
        read_models([tmp_path / "m.parquet"], [0, 1])
    with pytest.raises(FedreproError, match="trial 5"):
        read_models([tmp_path / "m.parquet"], [5])


def test_pandas_reads_local_models_in_one_line(tmp_path):
    pd = pytest.importorskip("pandas")
    tensors = some_models(tmp_path / "m.parquet")
    frame = pd.read_parquet(tmp_path / "m.parquet")
    row = frame.query("trial == 1 and client == 0 and tensor == 'weight0'").iloc[0]
    values = np.frombuffer(row["values"], np.float32).reshape(row["shape"])
    assert np.array_equal(values, tensors["weight0"][2])


def test_a_truncated_parquet_is_a_sentence(tmp_path):
    path = tmp_path / "m.parquet"
    some_models(path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(FedreproError, match="missing or damaged; delete it and start again"):
        read_models([path], [0])


def test_a_table_of_another_kind_or_schema_is_a_sentence(tmp_path):
    path = tmp_path / "t.parquet"
    write_table(path, {"x": [1]}, "metrics", SOURCE)
    with pytest.raises(FedreproError, match="holds metrics, but timings was expected"):
        read_table(path, "timings")
    table = pq.read_table(path)
    newer = {**table.schema.metadata, b"fedrepro.schema": b"99"}
    pq.write_table(table.replace_schema_metadata(newer), path)
    for read in (lambda: read_table(path, "metrics"), lambda: read_source(path)):
        with pytest.raises(FedreproError, match="schema version 99, this fedrepro reads"):
            read()
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(FedreproError, match="holds no fedrepro table"):
        read_table(path, "metrics")


def test_provenance_travels_with_the_table(tmp_path):
    write_table(tmp_path / "t.parquet", {"x": [1]}, "metrics", {"seed": 7})
    assert read_provenance(read_table(tmp_path / "t.parquet", "metrics")) == {"seed": 7}


def test_columns_of_folders_are_not_read_into_a_table(tmp_path):
    path = tmp_path / "dataset=digits" / "t.parquet"
    write_table(path, {"x": [1]}, "metrics", SOURCE)
    assert read_table(path, "metrics").column_names == ["x"]


def test_arrays_are_mapped_not_loaded(tmp_path):
    write_array(tmp_path / "x.npy", np.arange(6).reshape(2, 3))
    found = map_array(tmp_path / "x.npy")
    assert isinstance(found, np.memmap)
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]
    (tmp_path / "x.npy").write_bytes(b"not an array")
    with pytest.raises(FedreproError, match="damaged"):
        map_array(tmp_path / "x.npy")


def test_states_have_equal_bytes_whatever_their_file_is_called(tmp_path):
    import torch

    state = {"round": 3, "weights": torch.arange(4.0), "nested": {"x": [1.5, None, "a"]}}
    save_state(tmp_path / "a.pt", state)
    save_state(tmp_path / "b.pt", state)
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "b.pt").read_bytes()
    found = load_state(tmp_path / "a.pt")
    assert torch.equal(found.pop("weights"), state["weights"])
    assert found == {"round": 3, "nested": {"x": [1.5, None, "a"]}}


def test_a_damaged_state_is_a_sentence_and_never_runs_code(tmp_path):
    import pickle

    (tmp_path / "a.pt").write_bytes(b"nothing")
    with pytest.raises(FedreproError, match="missing or damaged"):
        load_state(tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(pickle.dumps(os.system))
    save_state(tmp_path / "c.pt", os.system)  # whose checksum is right
    for name in ("b.pt", "c.pt"):
        with pytest.raises(FedreproError, match="missing or damaged"):
            load_state(tmp_path / name)


# ------------------------------------------------------------------------------------ checksums


def flipped(path, at, bit=0):
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def as_before_checksums(path, kind="metrics"):
    """A table as it was written before there were checksums."""
    metadata = {
        "fedrepro.kind": kind,
        "fedrepro.schema": "1",
        "fedrepro.provenance": '{"seed": 7}',
    }
    pq.write_table(pa.table({"x": [1, 2]}).replace_schema_metadata(metadata), path)


@pytest.mark.parametrize("part", ["pages", "footer", "length", "magic"])
def test_a_flipped_bit_anywhere_in_a_table_is_found(tmp_path, part):
    path = tmp_path / "t.parquet"
    write_table(path, {"x": list(range(1000))}, "metrics", {"noise": [0.25]})
    at = {"pages": 10, "footer": path.read_bytes().rindex(b"0.25"), "length": -6, "magic": -1}
    flipped(path, at[part])
    with pytest.raises(FedreproError, match="cannot be read"):
        read_table(path, "metrics")


def test_a_table_whose_checksum_cannot_be_found_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    write_table(path, {"x": [1]}, "metrics", SOURCE)
    flipped(path, path.read_bytes().rindex(b"fedrepro.checksum"))
    with pytest.raises(FedreproError, match="its checksum is missing"):
        read_table(path, "metrics")


def test_tables_of_before_checksums_are_read(tmp_path):
    as_before_checksums(tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet", "metrics")
    assert table["x"].to_pylist() == [1, 2]
    assert read_provenance(table) == {"seed": 7}


def test_other_programs_read_tables_and_states(tmp_path):
    import zipfile

    duckdb = pytest.importorskip("duckdb")
    write_table(tmp_path / "t.parquet", {"x": [1, 2]}, "metrics", SOURCE)
    found = duckdb.sql(f"select sum(x) from '{tmp_path / 't.parquet'}'").fetchall()
    assert found == [(3,)]
    save_state(tmp_path / "a.pt", {"round": 3})
    assert zipfile.ZipFile(tmp_path / "a.pt").testzip() is None


@pytest.mark.parametrize("kind", ["table", "state"])
def test_a_file_that_lies_where_another_belongs_is_refused(tmp_path, kind):
    one, two = (tmp_path / f"seed=0/dataset=digits/trials={i}-{i}/a" for i in (0, 1))
    if kind == "table":
        for path in (one, two):
            write_table(path, {"x": [1]}, "metrics", SOURCE)
        read = lambda path: read_table(path, "metrics")  # noqa: E731
    else:
        for path in (one, two):
            save_state(path, {"round": 1})
        read = load_state
    read(two)
    two.write_bytes(one.read_bytes())
    with pytest.raises(FedreproError, match=r"it was made as seed=0/dataset=digits/trials=0-0/a"):
        read(two)
    # a copy outside of any tree may be called anything
    (tmp_path / "copy").write_bytes(one.read_bytes())
    read(tmp_path / "copy")


def test_json_carries_a_checksum_of_what_it_holds(tmp_path):
    path = tmp_path / "a.json"
    value = {"schema": 2, "b": [1.5, None, "ä"], "c": {"d": True}}
    write_json(path, value)
    assert read_json(path) == value
    # reformatting is no damage
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert read_json(path) == value
    path.write_text(path.read_text().replace("1.5", "1.4"))
    with pytest.raises(FedreproError, match="its checksum is not that of what it holds"):
        read_json(path)
    path.write_text(json.dumps(value))
    with pytest.raises(FedreproError, match="its checksum is not that of what it holds"):
        read_json(path)


def test_json_of_before_checksums_and_of_others_is_read(tmp_path):
    for value in ({"schema": 1, "b": 2}, {"b": 2}, [1, 2]):
        (tmp_path / "a.json").write_text(json.dumps(value))
        assert read_json(tmp_path / "a.json") == value


@pytest.mark.parametrize("bad", [b"", b"[" * 100_000, b'"\xff"', b'{"a": 1'])
def test_what_is_no_json_is_a_sentence(tmp_path, bad):
    (tmp_path / "a.json").write_bytes(bad)
    with pytest.raises(FedreproError, match=r"a\.json cannot be read"):
        read_json(tmp_path / "a.json")


# ----------------------------------------------------------------------------------- the disk


class Full(io.RawIOBase):
    """A file on a disk that has no room left."""

    def writable(self):
        return True

    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")


WRITERS = {
    "json": lambda path: write_json(path, {"a": 1}),
    "array": lambda path: write_array(path, np.zeros((100, 100))),
    "table": lambda path: write_table(path, {"x": [1]}, "metrics", SOURCE),
    "state": lambda path: save_state(path, {"round": 1}),
}


def test_an_array_that_does_not_fit_the_disk_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(type(tmp_path), "open", lambda *_: io.BufferedWriter(Full()))
    with pytest.raises(FedreproError, match=r"the disk is full: cannot write .*x\.npy"):
        write_array(tmp_path / "x.npy", np.zeros((100, 100)))


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.EROFS, "the disk is read-only"), (errno.EACCES, "you may not write there")],
)
def test_a_folder_that_must_not_be_written_to_is_a_sentence(
    tmp_path, monkeypatch, kind, code, words
):
    def refused(path, *_args, **_more):
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(type(tmp_path), "mkdir", refused)
    with pytest.raises(FedreproError, match=f"cannot write .*: {words}"):
        WRITERS[kind](tmp_path / "new" / "file")


def test_a_file_where_a_folder_should_be_is_a_sentence(tmp_path):
    (tmp_path / "results").write_text("")
    with pytest.raises(FedreproError, match="a file stands where a folder should be"):
        write_json(tmp_path / "results" / "a.json", {"a": 1})


def test_what_cannot_be_read_is_not_called_unwritable(tmp_path):
    def reading():
        with atomic(tmp_path / "a"):
            raise PermissionError(errno.EACCES, "Permission denied", "/elsewhere/source")

    with pytest.raises(PermissionError):
        reading()


def test_a_table_without_an_origin_is_a_sentence():
    with pytest.raises(FedreproError, match="does not say where it comes from"):
        read_provenance(pa.table({"a": [1]}))


def test_the_recorded_files_name_their_origin_under_the_same_key():
    """Files outlive the rooms of the code: what they call their provenance must not move."""
    paths = sorted((Path(__file__).parents[2] / "reports/record").rglob("*.parquet"))
    assert paths
    assert all(read_provenance(read_table(path, "metrics")) for path in paths)


@pytest.mark.parametrize("pieces", [(150,), (1, 149), (63, 1, 86), (64, 86), (50, 50, 50)])
def test_models_are_written_in_groups_of_equal_size_however_they_come(tmp_path, pieces):
    """So the bytes of a file do not depend on how training was cut into companies."""
    path, done = tmp_path / "models.parquet", 0
    with artifacts.model_writer(path, SOURCE) as writer:
        for count in pieces:
            place = list(range(done, done + count))
            tensors = {"w": np.arange(done, done + count, dtype=np.float32)[:, None]}
            writer.write([0] * count, place, [1] * count, tensors)
            done += count
    groups = pq.ParquetFile(path).metadata
    rows = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
    assert rows == [64, 64, 22]
    found = artifacts.read_models([path], [0])[0]
    assert found.tensors["w"].ravel().tolist() == list(range(150))


def test_weights_are_stored_as_they_are_and_texts_by_dictionary(tmp_path):
    """What of a model file is large: compressed it takes twice as long to write and to read."""
    path = tmp_path / "models.parquet"
    some_models(path)
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    assert {column.compression for column in columns} == {"UNCOMPRESSED"}
    stored = {column.path_in_schema: column.encodings for column in columns}
    assert [name for name, how in stored.items() if "RLE_DICTIONARY" in how] == ["tensor"]
