"""Files are whole or absent, versioned, and the same bytes for the same inputs."""

from __future__ import annotations

import errno
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedrepro import artifacts
from fedrepro.artifacts import (
    atomic,
    load_state,
    map_array,
    read_models,
    read_provenance,
    read_table,
    save_state,
    write_array,
    write_json,
    write_models,
    write_table,
)
from fedrepro.errors import FedreproError

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
    write_json(path, 1)

    def fail():
        with atomic(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert json.loads(path.read_text()) == 1
    assert os.listdir(tmp_path) == ["a.json"]


def test_leftovers_of_a_killed_process_are_removed_but_not_those_of_a_live_one(tmp_path):
    dead = tmp_path / f".a.json.{2**22 + 1}.tmp"
    live = tmp_path / f".a.json.{os.getppid()}.tmp"
    dead.write_text("half")
    live.write_text("half")
    write_json(tmp_path / "a.json", 1)
    assert sorted(os.listdir(tmp_path)) == sorted([live.name, "a.json"])


def test_a_full_disk_is_a_sentence(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(artifacts.os, "replace", full)
    with pytest.raises(FedreproError, match=r"the disk is full.*free some space"):
        write_json(tmp_path / "a.json", 1)
    assert os.listdir(tmp_path) == []


def test_equal_tables_have_equal_bytes(tmp_path):
    for name in ("a", "b"):
        some_models(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


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
    assert np.array_equal(np.reshape(row["values"], row["shape"]), tensors["weight0"][2])


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
    with pytest.raises(FedreproError, match="schema version 99, this fedrepro reads"):
        read_table(path, "metrics")
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
    with pytest.raises(FedreproError, match="missing or damaged"):
        load_state(tmp_path / "b.pt")
