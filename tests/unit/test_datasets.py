"""Data sets: what is read is what was published, and what is written is what is read."""

from __future__ import annotations

import gzip
import struct
from dataclasses import replace
from itertools import chain
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mirror import TABLE
from sklearn.datasets import load_digits

from fedrepro.components.datasets.mnist_and_fashion_mnist import TEST, TRAIN
from fedrepro.core.checksummed_files import read_json, write_json
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, parse_token
from fedrepro.data import raw_files as table_module
from fedrepro.data.prepared import PREPARED_FILES, SPLITS, Arrays, load_prepared, write_prepared
from fedrepro.data.raw_files import COLUMNS, forms, largest_unpacked, read_dataset_table
from fedrepro.data.stratified_samples_and_splits import apportion, split_groups, stratified_sample


def arrays_of(token, raw=Path()) -> Arrays:
    spec = parse_token("dataset", token)
    return spec.component.fn(raw, **spec.values)


def read_idx(path: Path) -> np.ndarray:
    """A second reader: two zero bytes, type (8: uint8), number of axes, big-endian sizes, bytes."""
    data = gzip.decompress(path.read_bytes())
    zero, kind, axes = struct.unpack(">HBB", data[:4])
    assert (zero, kind) == (0, 8)
    shape = struct.unpack(f">{axes}I", data[4 : 4 + 4 * axes])
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)


def write_idx(path: Path, array: np.ndarray) -> None:
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(head + array.tobytes()))


def write_mnist(raw: Path, train: int = 230, test: int = 40) -> Path:
    """Files of MNIST's form with so many examples; every pixel tells the example's number."""
    for (images, labels), count in ((TRAIN, train), (TEST, test)):
        x = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None], (count, 28, 28))
        write_idx(raw / images, x)
        write_idx(raw / labels, (np.arange(count) * 7 % 10).astype(np.uint8))
    return raw


@pytest.fixture
def small_mnist(tmp_path) -> Path:
    return write_mnist(tmp_path)


def numbered(token: str, raw: Path) -> dict[str, list[int]]:
    arrays = arrays_of(token, raw)
    found = {split: arrays.x[split][:, 0, 0].astype(int) for split in SPLITS}
    assert all(np.array_equal(arrays.y[split], own * 7 % 10) for split, own in found.items())
    return {split: own.tolist() for split, own in found.items()}


def test_mnist_sets_validation_examples_aside_and_keeps_so_many_by_class(small_mnist):
    tokens = ("mnist", "mnist+validation~50", "mnist+train~120+validation~50")
    plain, whole, fewer = (numbered(token, small_mnist) for token in tokens)
    for numbers, count in ((whole["validation"], 5), (fewer["train"], 12)):
        assert np.bincount(np.array(numbers) * 7 % 10).tolist() == [count] * 10
    assert plain["test"] == whole["test"] == fewer["test"]
    assert sorted([*whole["train"], *whole["validation"]]) == list(range(230))
    assert max(whole["validation"]) > 100, "the first examples of each class, not drawn ones"
    assert fewer["validation"] == whole["validation"]
    assert set(fewer["train"]) < set(whole["train"])
    for token in (tokens[1], "mnist+train~180+validation~50"):
        assert numbered(token, small_mnist) == whole


def test_splits_for_which_there_are_too_few_examples_are_refused(small_mnist):
    for token, sentence in (
        ("mnist+validation~225", "a class is left without training examples"),
        ("mnist+validation~100000", "a class is left without training examples"),
        ("mnist+train~181+validation~50", "train~181 is more than the 180 training examples"),
        ("digits+test~1797", "choose other numbers"),
        ("digits+test~900+validation~895", "choose smaller numbers"),
    ):
        with pytest.raises(FedreproError, match=sentence):
            arrays_of(token, small_mnist)


def test_damaged_mnist_files_are_named(small_mnist):
    path = small_mnist / TRAIN[0]
    good = path.read_bytes()
    swapped = (small_mnist / TRAIN[1]).read_bytes()
    short = gzip.compress(gzip.decompress(good)[:-5])
    for bad in (good[:-20], b"<html>not here</html>", swapped, short, gzip.compress(b""), None):
        path.write_bytes(bad) if bad is not None else path.unlink()
        with pytest.raises(FedreproError, match=f"{TRAIN[0]} cannot be read"):
            arrays_of("mnist", small_mnist)
    path.write_bytes(good)
    for file, labels, sentence in (
        (TEST[1], [*range(7), 47, *[1] * 32], f"{TEST[1]} cannot be read .*label 47.* 10 classes"),
        (TRAIN[1], [0] * 229, "do not fit labels"),
    ):
        write_idx(small_mnist / file, np.array(labels, np.uint8))
        with pytest.raises(FedreproError, match=sentence):
            arrays_of("mnist", small_mnist)


def test_digits_are_all_there_and_split_by_class():
    bunch = load_digits()
    arrays = arrays_of("digits+validation~200")
    assert np.array_equal(arrays_of("digits").x["test"], arrays.x["test"])
    assert [len(arrays.y[s]) for s in SPLITS] == [1237, 200, 360]
    rows = [np.column_stack([arrays.x[s].reshape(-1, 64), arrays.y[s]]) for s in SPLITS]
    published = np.column_stack([bunch.data.astype(int), bunch.target])
    assert sorted(np.concatenate(rows).tolist()) == sorted(published.tolist())
    for split in SPLITS:
        exact = np.bincount(bunch.target) * len(arrays.y[split]) / bunch.target.size
        assert np.abs(np.bincount(arrays.y[split]) - exact).max() < 1.5


def small_arrays(seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    sizes = {"train": 40, "validation": 0, "test": 12}
    return Arrays(
        x={s: rng.integers(0, 17, (n, 2, 3), np.uint8) for s, n in sizes.items()},
        y={s: rng.integers(0, 10, n) for s, n in sizes.items()},
        scale=16.0,
        shape=(2, 3),
        classes=tuple("0123456789"),
        stand_in="smaller images",
    )


def prepare(folder, arrays):
    write_prepared(folder, arrays, parse_token("dataset", "digits+test~12"), {"seed": 3})


@pytest.fixture
def prepared(tmp_path) -> Path:
    prepare(tmp_path, small_arrays())
    return tmp_path


def test_what_is_written_is_read_back_and_scaled_to_the_unit_interval(prepared):
    arrays, data = small_arrays(), load_prepared(prepared)
    assert sorted(p.name for p in prepared.iterdir()) == sorted(PREPARED_FILES)
    for split in SPLITS:
        assert np.array_equal(data.raw(split), arrays.x[split].reshape(-1, 6))
        assert np.array_equal(data.labels(split), arrays.y[split])
        assert isinstance(data.raw(split), np.memmap)
    assert (data.shape, data.classes) == ((2, 3), arrays.classes)
    assert (data.name, data.token, data.stand_in) == ("digits", "digits+test~12", "smaller images")
    assert data.info["counts"]["test"] == np.bincount(arrays.y["test"], minlength=10).tolist()
    assert (data.info["provenance"], data.info["licence"]) == ({"seed": 3}, "CC BY 4.0")
    inputs = data.inputs("train")
    assert (inputs.dtype, inputs.min(), inputs.max()) == (np.float32, 0, 1)
    assert np.array_equal(inputs * 16, data.raw("train"))
    assert np.array_equal(data.inputs("train", np.array([7, 3])), inputs[[7, 3]])
    before = {file: (prepared / file).read_bytes() for file in PREPARED_FILES}
    prepare(prepared, arrays)
    assert before == {file: (prepared / file).read_bytes() for file in PREPARED_FILES}
    arrays.x["test"][-1, -1, -1] ^= 1
    prepare(prepared, arrays)
    assert load_prepared(prepared).checksum != data.checksum


def test_damage_is_found_when_opening_and_a_folder_that_was_not_finished_is_none(prepared):
    for name in PREPARED_FILES:
        path = prepared / name
        good = path.read_bytes()
        for bad in (good[:-30], b"", None):
            path.write_bytes(bad) if bad is not None else path.unlink()
            with pytest.raises(FedreproError, match=f"{name} cannot be read"):
                load_prepared(prepared)
        path.write_bytes(good)
    writing = "fedrepro.data.prepared.artifacts.write_array"
    with pytest.raises(KeyboardInterrupt), patch(writing, side_effect=KeyboardInterrupt):
        prepare(prepared, small_arrays(1))
    assert not (prepared / "dataset.json").exists()


def test_folders_that_are_of_other_data_are_refused(tmp_path):
    folder = tmp_path / "prepare/digits-1"
    prepare(folder, small_arrays())
    info = read_json(folder / "dataset.json")
    for change, sentence in (
        ({"schema": 99}, "schema version 99"),
        ({"counts": None}, "it is another file: 'counts'"),
    ):
        write_json(folder / "dataset.json", info | change)
        with pytest.raises(FedreproError, match=sentence):
            load_prepared(folder)
    prepare(folder, small_arrays())
    with pytest.raises(FedreproError, match=r"it was made as prepare/digits-1"):
        load_prepared(folder.rename(tmp_path / "prepare/digits-2"))


def test_a_flipped_bit_is_found_when_its_array_is_used_and_not_before(prepared):
    path = prepared / "train_x.npy"
    path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))
    found = load_prepared(prepared)
    assert found.labels("train").size == 40
    for use in (lambda: found.raw("train"), lambda: found.inputs("train"), found.require_whole):
        with pytest.raises(FedreproError, match=r"train_x.npy cannot.*delete the folder"):
            use()


NOT_FINITE = np.zeros((12, 2, 3), np.float32)
NOT_FINITE[[4, 9], 1, 2] = np.nan, np.inf


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"x": np.zeros((12, 2, 3))}, "has .*test inputs float64"),
        ({"x": np.zeros((11, 2, 3), np.uint8)}, "has .*for 12 labels"),
        ({"x": NOT_FINITE}, "not finite, in 2 of 12 examples, the first of them number 4"),
        ({"x": None}, r"has .*no array x\['test'\]"),
        ({"y": np.zeros(12, np.int32)}, "has .*test labels int32"),
        ({"y": np.full(12, "seven")}, r"test labels <U5 .* number its classes from 0"),
        ({"y": np.full(12, 10)}, "has .*outside 0 .. 9"),
        ({"y": np.full(12, -1)}, "has .*outside 0 .. 9"),
        ({"y": [1] * 12}, r"has .*no array y\['test'\]"),
        ({"kind": "song"}, "of kind 'song' with 10 classes"),
        ({"kind": "regression"}, "of kind 'regression' with 10 classes"),
        ({"classes": ()}, "of kind 'image' with 0 classes"),
        ({"groups": {"test": np.zeros(12, np.int32)}}, "groups that lie outside -1 .. -1"),
        ({"groups": {"test": np.zeros(12, np.int64)}}, "test groups int64"),
        ({"groups": {"test": np.zeros(11, np.int32)}}, r"not int32 \(12,\)"),
    ],
)
def test_arrays_of_another_form_are_refused(changes, sentence):
    good = small_arrays()
    changed = {k: {**vars(good)[k], "test": v} if k in "xy" else v for k, v in changes.items()}
    with pytest.raises(FedreproError, match=sentence):
        replace(good, **changed)


@given(
    st.integers(0, 500),
    st.lists(st.integers(0, 90), min_size=1, max_size=12).filter(sum),
    st.integers(0, 5),
)
def test_shares_are_whole_complete_and_in_proportion(total, weights, seed):
    shares = apportion(total, np.array(weights), np.random.default_rng(seed))
    exact = total * np.array(weights) / sum(weights)
    assert shares.sum() == total
    assert np.abs(shares - exact).max() < 1
    assert not shares[np.array(weights) == 0].any()
    drawn = [apportion(1, np.ones(3, int), np.random.default_rng(k)) for k in range(30)]
    assert {int(share.argmax()) for share in drawn} == {0, 1, 2}  # ties are drawn


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.data())
def test_setting_aside_splits_the_examples_in_two(labels, data):
    y = np.array(labels)
    count = data.draw(st.integers(0, y.size))
    chosen, rest = stratified_sample(y, count, 4, np.random.default_rng(0))
    assert chosen.size == count
    assert sorted([*chosen, *rest]) == list(range(y.size))
    exact = np.bincount(y, minlength=4) * count / y.size
    assert np.abs(np.bincount(y[chosen], minlength=4) - exact).max() < 1


@given(st.lists(st.integers(0, 30), min_size=1, max_size=120), st.integers(0, 3))
def test_a_group_is_in_one_split_and_every_example_in_one(groups, seed):
    member = np.array(groups)
    labels = member % 3
    folds = split_groups(labels, member, np.random.default_rng(seed))
    assert sorted(np.concatenate([folds[split] for split in SPLITS])) == list(range(member.size))
    held = [set(member[folds[split]]) for split in SPLITS]
    assert sum(map(len, held)) == len(set(groups))
    for label in range(3):
        largest = np.bincount(member[labels == label], minlength=1).max()
        exact = 0.1 * (labels == label).sum()
        for split in ("validation", "test"):
            assert abs((labels[folds[split]] == label).sum() - exact) <= largest


def test_groups_are_written_and_mapped(prepared):
    plain, before = small_arrays(), load_prepared(prepared)
    groups = {s: (np.arange(plain.y[s].size) % 3 - 1).astype(np.int32) for s in SPLITS}
    prepare(prepared, replace(plain, groups=groups, group_names=("one", "two")))
    data = load_prepared(prepared)
    assert (data.kind, data.group_names) == ("image", ("one", "two"))
    assert data.checksum != before.checksum
    for split in SPLITS:
        assert isinstance(data.groups(split), np.memmap)
        assert np.array_equal(data.groups(split), groups[split])


def test_numbers_and_targets_are_kept_as_they_are_and_some_must_be_there(tmp_path):
    sizes, rng = {"train": 5, "validation": 0, "test": 2}, np.random.default_rng(0)
    x = {s: rng.standard_normal((n, 3)).astype(np.float32) for s, n in sizes.items()}
    y = {s: rng.standard_normal(n).astype(np.float32) for s, n in sizes.items()}
    arrays = Arrays(x=x, y=y, scale=1.0, shape=(3,), classes=(), kind="regression")
    for split in ("train", "test"):
        empty = replace(arrays, x={**x, split: x[split][:0]}, y={**y, split: y[split][:0]})
        with pytest.raises(FedreproError, match=f"the data set has no {split} examples"):
            prepare(tmp_path, empty)
    assert not list(tmp_path.iterdir())
    prepare(tmp_path, arrays)
    data = load_prepared(tmp_path)
    assert (data.kind, data.classes, data.info["counts"]["train"]) == ("regression", (), [5])
    for split in SPLITS:
        assert np.array_equal(data.inputs(split), x[split])
        assert np.array_equal(data.labels(split), y[split])
    unknown = {**y, "train": np.array([0, 0, np.inf, 0, 0], np.float32)}
    with pytest.raises(FedreproError, match="train targets that are not finite, in 1 of 5 exa"):
        replace(arrays, y=unknown)


def test_raw_files_are_in_the_table_under_their_licence_with_what_they_unpack_to():
    for component in components("dataset").values():
        given = component.meta["files"]
        for file in chain(*given.values()) if isinstance(given, dict) else given:
            for row in forms(component.name, file, TABLE):
                assert row.licence == component.meta["licence"]
                assert row.citation == component.meta["citation"]
    for row in read_dataset_table():
        assert row.unpacked or row.file.endswith(".csv"), row.file
        assert (row.unpacked or 0) >= (row.bytes or 0) or row.form == "reduced"


ROW = {
    "name": "letters", "version": "1", "file": "a.gz", "form": "publisher",
    "urls": "http://x/a.gz http://y/a.gz", "mirror": "", "checksum": "sha256:" + "0" * 64,
    "bytes": "12", "unpacked": "34", "licence": "MIT", "citation": "nobody",
}  # fmt: skip


def table_of(path, **changes):
    row = {**ROW, **changes}
    path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    return read_dataset_table(path)


def test_a_row_is_typed_and_one_that_makes_no_sense_is_named(tmp_path):
    (row,) = table_of(tmp_path / "t.csv")
    assert (row.urls, row.bytes, row.unpacked) == (("http://x/a.gz", "http://y/a.gz"), 12, 34)
    for column, text, words in (
        ("checksum", "md5:" + "0" * 64, "checksum must be sha256: or md5:"),
        ("bytes", "1.5", "bytes must be a whole number, not '1.5'"),
        ("unpacked", 5000 * "9", "unpacked must be a whole number"),
        ("name", "", "name must not be empty"),
    ):
        with pytest.raises(FedreproError, match=f"row 2: {words}"):
            table_of(tmp_path / "t.csv", **{column: text})


def test_an_absent_table_is_said_and_a_file_gets_as_large_as_any_of_its_forms(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    fewer = ",".join(c for c in COLUMNS if c not in ("urls", "bytes")) + "\n"
    absent = r"config/datasets.csv cannot be read .*`fedrepro start FOLDER`"
    for path, content, sentence in (
        ("config/datasets.csv", b"", absent),
        ("t.csv", fewer.encode(), "lacks the columns urls, bytes"),
        ("t.csv", b"name,version\n\xff\n", r"t\.csv cannot be read"),
    ):
        Path("t.csv").write_bytes(content)
        with pytest.raises(FedreproError, match=sentence):
            read_dataset_table(Path(path))
    (row,) = read_dataset_table(TABLE)[:1]
    rows = tuple(replace(row, unpacked=most) for most in (90, 100, None))
    monkeypatch.setattr(table_module, "read_dataset_table", lambda _: rows)
    assert largest_unpacked(row.name, Path(row.file)) == 100
    monkeypatch.setattr(table_module, "read_dataset_table", lambda _: rows[-1:])
    with pytest.raises(FedreproError, match=f"fill in the column .unpacked. of .*{row.file}"):
        largest_unpacked(row.name, Path(row.file))
    with pytest.raises(FedreproError, match=f"unknown file .*did you mean '{row.name}/{row.file}'"):
        forms(f"{row.name}s", row.file)


def test_shapes_and_speeches_are_the_same_in_all_runs_and_unlike_each_other():
    first, again = (arrays_of("shapes+test~50+train~200") for _ in range(2))
    more = arrays_of("shapes+test~50+train~300")
    assert np.array_equal(first.x["train"], again.x["train"])
    assert np.array_equal(first.x["train"], more.x["train"][:200])
    assert np.bincount(first.y["train"]).tolist() == [20] * 10
    assert (first.shape, "generated" in first.stand_in) == ((3, 12, 12), True)
    arrays = arrays_of("shapes+noise~0+test~100+train~100")
    for picture in arrays.x["train"]:  # two colours that can be told apart
        colours = np.unique(picture.reshape(3, -1), axis=1)
        assert colours.shape[1] == 2
        assert np.ptp(colours, axis=1).max() >= 0.3 * 255 - 1
    assert not np.array_equal(arrays.x["train"], arrays.x["test"])
    arrays, again = arrays_of("speeches"), arrays_of("speeches")
    x, y, roles = arrays.x["train"], arrays.y["train"], arrays.group("train")
    assert np.array_equal(x, again.x["train"])
    assert (len(arrays.group_names), "generated" in arrays.stand_in) == (20, True)
    own = (x[roles == role].ravel() for role in (0, 1))
    one, other = (np.bincount(codes, minlength=30) / codes.size for codes in own)
    assert np.abs(one - other).sum() > 0.05
    # a window begins with what the last one asked for
    assert np.array_equal(x[roles == 3][1:, 0], y[roles == 3][:-1])
