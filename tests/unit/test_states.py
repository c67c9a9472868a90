"""States of methods in rounds: what is kept comes back as it was, and all else is refused."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from pathlib import Path

import numpy as np
import pytest
import torch

from fedrepro.core import checkpoint_and_model_files as checkpoints
from fedrepro.core.errors import FedreproError

STATES = {
    "array": np.arange(6.0).reshape(2, 3),
    "array of bytes": np.arange(3, dtype=np.uint8),
    "array of 16 bits": np.arange(3, dtype=np.uint16),
    "array of truth": np.array([True, False]),
    "array of complex numbers": np.array([1 + 2j]),
    "array in columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "array of every other": np.arange(10)[::2],
    "array of nothing": np.empty((0, 3), np.float32),
    "array of one": np.array(3, np.int64),
    "numbers of NumPy": [np.float32(0.1), np.int64(-5), np.bool_(True)],
    "tuple": (1, (2.5, None), []),
    "dicts": {"a": {"b": {"c": np.zeros(2), "d": (1, {"e": 2})}}},
    "alike": {str(j): {"a": np.full((2, 3), j), "b": np.float32([j])} for j in (7, 3, 5)},
    "alike by other keys": {j: {"a": np.arange(3)[::-1]} for j in ((1, "x"), None, 2.5)},
    "alike but for types": {"x": {"a": np.zeros(2)}, "y": {"a": np.zeros(2, np.float32)}},
    "alike but for shapes": {"x": {"a": np.zeros(2)}, "y": {"a": np.zeros((2, 1))}},
    "alike but for names": {"x": {"a": np.zeros(2)}, "y": {"b": np.zeros(2)}},
    "alike and nothing": {"x": {}, "y": {}},
    "other keys": {1: "one", 2.5: "more", False: "no", None: "none", (1, "a"): "pair"},
    "tensors": [torch.arange(3), torch.zeros(2, 2, dtype=torch.float64)],
    "tensor on its side": torch.arange(6.0).reshape(2, 3).T,
    "large": 2**80,
    "text": "é\n",
}


def same(one, two):
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        keys = [list(map(repr, each)) for each in (one, two)]
        return keys[0] == keys[1] and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype == two.dtype and one.shape == two.shape and np.array_equal(one, two)
    if isinstance(one, torch.Tensor):
        return one.dtype == two.dtype and torch.equal(one, two)
    return one == two


@pytest.mark.parametrize("name", STATES)
def test_what_is_kept_comes_back_as_it_was_and_is_written_with_the_same_bytes(name, tmp_path):
    state = {"entry": STATES[name], "again": [STATES[name]]}
    assert same(checkpoints.normalized(state), state)
    checkpoints.save_state(tmp_path / "one.pt", checkpoints.to_plain(checkpoints.normalized(state)))
    back = checkpoints.from_plain(checkpoints.load_state(tmp_path / "one.pt"))
    assert same(back, state)
    checkpoints.save_state(tmp_path / "two.pt", checkpoints.to_plain(back))
    assert (tmp_path / "one.pt").read_bytes() == (tmp_path / "two.pt").read_bytes()
    checkpoints.save_state(tmp_path / "raw.pt", checkpoints.to_plain(state))
    assert same(checkpoints.from_plain(checkpoints.load_state(tmp_path / "raw.pt")), state)


def test_a_settled_state_shares_nothing():
    array, tensor = np.asfortranarray(np.ones((2, 3))), torch.ones(3, 2).T
    found = checkpoints.normalized({"array": array, "tensor": tensor})
    found["array"][0] = found["tensor"][0] = 7
    assert array.max() == tensor.max() == 1
    assert found["array"].flags.c_contiguous
    assert found["tensor"].is_contiguous()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (deque([1]), r"state\['a'\]\[1\] is a deque"),
        (OrderedDict(b=1), r"state\['a'\]\[1\] is a OrderedDict"),
        (defaultdict(int), r"state\['a'\]\[1\] is a defaultdict"),
        (lambda: 0, r"state\['a'\]\[1\] is a function"),
        (Path(), r"state\['a'\]\[1\] is a PosixPath"),
        (np.array(["x"]), r"state\['a'\]\[1\] is an array of <U1"),
        (np.array([None]), r"state\['a'\]\[1\] is an array of object"),
        ({"b": {np.int64(1): 2}}, r"the key np.int64\(1\) of state\['a'\]\[1\]\['b'\] is a int64"),
        ({"b": {(1, np.int64(1)): 2}}, r"of state\['a'\]\[1\]\['b'\] is a tuple"),
        ({1, 2}, r"state\['a'\]\[1\] is a set"),
        ({"fedrepro.kept": "array"}, r"state\['a'\]\[1\] is a dict"),
        (torch.nn.Parameter(torch.zeros(1)), r"state\['a'\]\[1\] is a Parameter"),
        (torch.zeros(1, requires_grad=True), r"is a tensor that needs a gradient"),
        (torch.zeros(1, device="meta"), r"is a tensor on meta"),
        (torch.zeros(2).to_sparse(), r"is a tensor on cpu, torch.sparse_coo"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(entry, said):
    with pytest.raises(FedreproError, match=said):
        checkpoints.normalized({"a": [0, entry]})


def test_what_clients_keep_is_packed_as_few_arrays_where_it_lies():
    kept = {str(j): {"weight": np.full((3, 4), j), "bias": np.full(4, -j)} for j in range(500)}
    tensors = checkpoints.to_plain({"kept": kept})["kept"]["each"].values()
    assert {tuple(tensor.shape) for tensor in tensors} == {(500, 3, 4), (500, 4)}
    # States of many nodes are a good part of a machine's memory.
    state = {"array": np.zeros((4, 5), np.float32), "tensor": torch.zeros(3), "read": np.ones(2)}
    state["read"].flags.writeable = False
    kept = checkpoints.to_plain(state)
    assert np.shares_memory(kept["array"]["value"].numpy(), state["array"])
    assert kept["tensor"].data_ptr() == state["tensor"].data_ptr()
    assert not np.shares_memory(kept["read"]["value"].numpy(), state["read"])
    back = checkpoints.from_plain(kept)
    assert not np.shares_memory(back["array"], state["array"])
    assert back["tensor"].data_ptr() != state["tensor"].data_ptr()
    back["array"] += 1
    assert not state["array"].any()


def test_a_state_shares_what_did_not_change_and_is_settled_whole_where_changed_in_place():
    first = checkpoints.normalized(
        {"w": np.zeros(3), "kept": {j: {"a": np.full(2, j)} for j in range(4)}}
    )
    new = {"w": first["w"] + 1, "kept": first["kept"] | {1: {"a": np.arange(4)[::2]}, 9: {}}}
    found, plain = checkpoints.normalized(new, first), checkpoints.normalized(new)
    assert same(found, plain)
    assert {j for j, own in found["kept"].items() if own is first["kept"].get(j)} == {0, 2, 3}
    assert found["kept"][1]["a"].flags.c_contiguous
    assert found["w"] is not new["w"]
    first = checkpoints.normalized({"kept": {}})
    first["kept"][1] = np.arange(4)[::2]
    assert checkpoints.normalized(first, first)["kept"][1].flags.c_contiguous
    first = checkpoints.normalized({"kept": {1: np.zeros(2)}})
    with pytest.raises(FedreproError, match=r"state\['kept'\]\[2\] is a deque"):
        checkpoints.normalized({"kept": {**first["kept"], 2: deque()}}, first)
    with pytest.raises(FedreproError, match=r"the key np.int64\(3\) of state\['kept'\] is a int64"):
        checkpoints.normalized({"kept": {**first["kept"], np.int64(3): 0}}, first)
