"""Data sets: what is read is what was published, and what is written is what is read."""

from __future__ import annotations

import gzip
import json
import struct
import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mirror import MIRROR, TABLE, needs_mirror

from fedrepro.components.datasets._idx import TEST, TRAIN
from fedrepro.core.artifacts import read_json, write_json
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, parse_token
from fedrepro.data import prepared as prepared_module
from fedrepro.data import table as table_module
from fedrepro.data.download import raw_sources
from fedrepro.data.prepared import (
    PREPARED_FILES,
    SPLITS,
    Arrays,
    load_prepared,
    write_prepared,
)
from fedrepro.data.stratify import apportion, set_aside, split_groups
from fedrepro.data.table import (
    COLUMNS,
    DatasetTable,
    FileRow,
    largest_unpacked,
    read_dataset_table,
)


def arrays_of(token: str, raw: Path) -> Arrays:
    spec = parse_token("dataset", token)
    return spec.component.fn(raw, **spec.values)  # type: ignore[no-any-return]


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


# ----------------------------------------------------------------------------------------- mnist


@needs_mirror
def test_mnist_is_what_was_published(tmp_path: Path) -> None:
    raw = MIRROR / "mnist"
    arrays = arrays_of("mnist", raw)
    write_prepared(
        tmp_path,
        arrays,
        parse_token("dataset", "mnist"),
        {},
        raw_sources("mnist", TRAIN + TEST, raw, read_dataset_table(TABLE)),
    )
    data = load_prepared(tmp_path)
    images, labels = read_idx(raw / TRAIN[0]), read_idx(raw / TRAIN[1])
    assert (len(images), len(data.labels("test")), len(data.labels("validation"))) == (
        60_000,
        10_000,
        0,
    )
    assert data.labels("train")[0] == labels[0] == 5
    assert data.inputs("train", np.arange(1)).mean() == pytest.approx(images[0].mean() / 255)
    assert np.array_equal(data.raw("train"), images.reshape(60_000, 784))
    assert np.array_equal(data.labels("train"), labels)
    assert np.array_equal(data.raw("test"), read_idx(raw / TEST[0]).reshape(10_000, 784))
    assert np.array_equal(data.labels("test"), read_idx(raw / TEST[1]))
    assert data.info["counts"]["test"] == np.bincount(data.labels("test")).tolist()
    assert [source["file"] for source in data.info["sources"]] == [*TRAIN, *TEST]


@pytest.fixture
def small_mnist(tmp_path: Path) -> Path:
    """Files of MNIST's form with 230 and 40 examples; every pixel tells the example's number."""
    raw = tmp_path / "raw"
    raw.mkdir()
    for (images, labels), count in ((TRAIN, 230), (TEST, 40)):
        x = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None], (count, 28, 28))
        write_idx(raw / images, x)
        write_idx(raw / labels, (np.arange(count) * 7 % 10).astype(np.uint8))
    return raw


def test_mnist_sets_validation_examples_aside_by_class(small_mnist: Path) -> None:
    plain, arrays = arrays_of("mnist", small_mnist), arrays_of("mnist+validation~50", small_mnist)
    assert np.bincount(arrays.y["validation"]).tolist() == [5] * 10
    assert np.array_equal(arrays.x["test"], plain.x["test"])
    number = {split: arrays.x[split][:, 0, 0] for split in ("train", "validation")}
    assert sorted([*number["train"], *number["validation"]]) == list(range(230))
    assert number["validation"].max() > 100, "the first examples of each class, not drawn ones"
    for split in number:
        assert np.array_equal(arrays.y[split], number[split].astype(int) * 7 % 10)
    again = arrays_of("mnist+validation~50", small_mnist)
    assert np.array_equal(again.x["validation"], arrays.x["validation"])


@pytest.mark.parametrize("validation", [230, 225, 100_000])
def test_mnist_refuses_to_leave_a_class_without_examples(
    small_mnist: Path, validation: int
) -> None:
    with pytest.raises(FedreproError, match="without training examples: choose a smaller one"):
        arrays_of(f"mnist+validation~{validation}", small_mnist)


def test_mnist_keeps_so_many_training_examples_by_class(small_mnist: Path) -> None:
    whole = arrays_of("mnist+validation~50", small_mnist)
    arrays = arrays_of("mnist+train~120+validation~50", small_mnist)
    assert np.bincount(arrays.y["train"]).tolist() == [12] * 10
    for split in ("validation", "test"):
        assert np.array_equal(arrays.x[split], whole.x[split])
    kept, given = (set(a.x["train"][:, 0, 0].tolist()) for a in (arrays, whole))
    assert kept < given
    assert np.array_equal(arrays.y["train"], arrays.x["train"][:, 0, 0].astype(int) * 7 % 10)
    every = arrays_of("mnist+train~180+validation~50", small_mnist)
    assert np.array_equal(every.x["train"], whole.x["train"])


def test_mnist_cannot_keep_more_than_there_are(small_mnist: Path) -> None:
    with pytest.raises(FedreproError, match="train~181 is more than the 180 training examples"):
        arrays_of("mnist+train~181+validation~50", small_mnist)


def test_damaged_mnist_files_are_named(small_mnist: Path) -> None:
    path = small_mnist / TRAIN[0]
    good = path.read_bytes()
    swapped = (small_mnist / TRAIN[1]).read_bytes()
    short = gzip.compress(gzip.decompress(good)[:-5])
    for bad in (good[:-20], b"<html>not here</html>", swapped, short, gzip.compress(b"")):
        path.write_bytes(bad)
        with pytest.raises(FedreproError, match=f"{TRAIN[0]} cannot be read"):
            arrays_of("mnist", small_mnist)
    path.unlink()
    with pytest.raises(FedreproError, match=f"{TRAIN[0]} cannot be read"):
        arrays_of("mnist", small_mnist)


def test_mnist_images_and_labels_must_fit(small_mnist: Path) -> None:
    write_idx(small_mnist / TRAIN[1], np.zeros(229, np.uint8))
    with pytest.raises(FedreproError, match="do not fit labels"):
        arrays_of("mnist", small_mnist)


def test_a_label_that_is_no_class_is_named_with_its_file(small_mnist: Path) -> None:
    labels = np.arange(40, dtype=np.uint8) % 10
    labels[7] = 47
    write_idx(small_mnist / TEST[1], labels)
    with pytest.raises(FedreproError, match=f"{TEST[1]} cannot be read .*label 47.* 10 classes"):
        arrays_of("mnist", small_mnist)


# ---------------------------------------------------------------------------------------- digits


def test_digits_are_all_there_and_split_by_class(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    arrays = arrays_of("digits+validation~200", tmp_path)
    assert [len(arrays.y[s]) for s in SPLITS] == [1237, 200, 360]
    rows = [
        (*image.ravel().tolist(), label)
        for s in SPLITS
        for image, label in zip(arrays.x[s], arrays.y[s], strict=True)
    ]
    published = zip(bunch.data.astype(int).tolist(), bunch.target.tolist(), strict=True)
    assert sorted(rows) == sorted((*image, label) for image, label in published)
    for split in SPLITS:
        exact = np.bincount(bunch.target) * len(arrays.y[split]) / bunch.target.size
        assert np.abs(np.bincount(arrays.y[split]) - exact).max() < 1.5


def test_the_test_digits_do_not_depend_on_validation(tmp_path: Path) -> None:
    first, second = arrays_of("digits", tmp_path), arrays_of("digits+validation~300", tmp_path)
    assert np.array_equal(first.x["test"], second.x["test"])


@pytest.mark.parametrize("token", ["digits+test~1797", "digits+test~900+validation~895"])
def test_digits_must_leave_something_to_learn_from(tmp_path: Path, token: str) -> None:
    with pytest.raises(FedreproError, match=r"choose (other|smaller) numbers"):
        arrays_of(token, tmp_path)


# ----------------------------------------------------------------------------- the prepared form


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


def prepare(folder: Path, arrays: Arrays) -> None:
    write_prepared(folder, arrays, parse_token("dataset", "digits+test~12"), {"seed": 3})


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    arrays = small_arrays()
    prepare(tmp_path, arrays)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(PREPARED_FILES)
    data = load_prepared(tmp_path)
    for split in SPLITS:
        assert np.array_equal(data.raw(split), arrays.x[split].reshape(-1, 6))
        assert np.array_equal(data.labels(split), arrays.y[split])
        assert isinstance(data.raw(split), np.memmap)
    assert (data.dims, data.shape, data.classes) == (6, (2, 3), arrays.classes)
    assert (data.name, data.token, data.stand_in) == ("digits", "digits+test~12", "smaller images")
    assert data.info["counts"]["test"] == np.bincount(arrays.y["test"], minlength=10).tolist()
    assert data.info["provenance"] == {"seed": 3}
    assert data.info["licence"] == "CC BY 4.0"


def test_inputs_are_scaled_to_the_unit_interval(tmp_path: Path) -> None:
    arrays = small_arrays()
    prepare(tmp_path, arrays)
    data = load_prepared(tmp_path)
    inputs = data.inputs("train")
    assert (inputs.dtype, inputs.min(), inputs.max()) == (np.float32, 0, 1)
    assert np.array_equal(inputs * 16, arrays.x["train"].reshape(40, 6))
    rows = np.array([7, 3])
    assert np.array_equal(data.inputs("train", rows), inputs[rows])


def test_equal_data_have_equal_bytes_and_one_pixel_changes_the_checksum(tmp_path: Path) -> None:
    for name in ("a", "b"):
        prepare(tmp_path / name, small_arrays())
    for file in PREPARED_FILES:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    arrays = small_arrays()
    arrays.x["test"][-1, -1, -1] ^= 1
    prepare(tmp_path / "b", arrays)
    checksums = {load_prepared(tmp_path / name).checksum for name in ("a", "b")}
    assert len(checksums) == 2


def test_damage_is_found_when_opening(tmp_path: Path) -> None:
    prepare(tmp_path, small_arrays())
    for name in PREPARED_FILES:
        path = tmp_path / name
        good = path.read_bytes()
        for bad in (good[:-30], b""):
            path.write_bytes(bad)
            with pytest.raises(FedreproError, match=f"{name} cannot be read"):
                load_prepared(tmp_path)
        path.unlink()
        with pytest.raises(FedreproError, match=f"{name} cannot be read"):
            load_prepared(tmp_path)
        path.write_bytes(good)
    np.save(tmp_path / "test_y.npy", np.zeros(11, np.int64))
    with pytest.raises(FedreproError, match=r"test_y.npy cannot be read .*\(11,\) instead of"):
        load_prepared(tmp_path)


def test_another_schema_or_another_kind_is_refused(tmp_path: Path) -> None:
    prepare(tmp_path, small_arrays())
    path = tmp_path / "dataset.json"
    info = read_json(path)
    write_json(path, {**info, "schema": 99})
    with pytest.raises(FedreproError, match="schema version 99"):
        load_prepared(tmp_path)
    write_json(path, {**info, "kind": "recipe"})
    with pytest.raises(FedreproError, match="does not describe a data set"):
        load_prepared(tmp_path)


def test_a_flipped_bit_is_found_when_its_array_is_used_and_not_before(tmp_path: Path) -> None:
    prepare(tmp_path, small_arrays())
    path = tmp_path / "train_x.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    found = load_prepared(tmp_path)
    assert found.labels("train").size == 40
    for use in (lambda: found.raw("train"), lambda: found.inputs("train"), found.require_whole):
        with pytest.raises(FedreproError, match=r"train_x.npy cannot.*delete the folder"):
            use()


@pytest.mark.parametrize("damage", [False, True])
def test_data_of_before_checksums_are_compared_with_their_sha256(
    tmp_path: Path, damage: bool
) -> None:
    prepare(tmp_path, small_arrays())
    path = tmp_path / "dataset.json"
    kept = {k: v for k, v in read_json(path).items() if k not in ("checksums", "place")}
    path.write_text(json.dumps({**kept, "schema": 1}))
    if damage:
        labels = bytearray((tmp_path / "test_y.npy").read_bytes())
        labels[-8] ^= 1
        (tmp_path / "test_y.npy").write_bytes(labels)
    found = load_prepared(tmp_path)
    if not damage:
        assert found.labels("test").size == 12
        return
    with pytest.raises(FedreproError, match=r"is not the file that dataset\.json names"):
        found.labels("test")


def test_data_in_the_folder_of_others_are_refused(tmp_path: Path) -> None:
    prepare(tmp_path / "prepare/digits-1", small_arrays())
    (tmp_path / "prepare/digits-1").rename(tmp_path / "prepare/digits-2")
    with pytest.raises(FedreproError, match=r"it was made as prepare/digits-1"):
        load_prepared(tmp_path / "prepare/digits-2")


def test_a_folder_that_was_not_finished_does_not_pass_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path, small_arrays())

    def killed(path: Path, array: np.ndarray) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prepared_module, "write_array", killed)
    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path, small_arrays(1))
    assert not (tmp_path / "dataset.json").exists()


def test_an_unknown_split_is_named(tmp_path: Path) -> None:
    prepare(tmp_path, small_arrays())
    with pytest.raises(FedreproError, match=r"unknown split 'tests'.*did you mean 'test'"):
        load_prepared(tmp_path).labels("tests")


NOT_FINITE = np.zeros((12, 2, 3), np.float32)
NOT_FINITE[[4, 9], 1, 2] = np.nan, np.inf


@pytest.mark.parametrize(
    ("part", "bad", "words"),
    [
        ("x", np.zeros((12, 2, 3)), "test inputs float64"),
        ("x", np.zeros((11, 2, 3), np.uint8), "for 12 labels"),
        ("x", NOT_FINITE, "not finite, in 2 of 12 examples, the first of them number 4"),
        ("x", -NOT_FINITE, "not finite, in 2 of 12 examples"),
        ("y", np.zeros(12, np.int32), "test labels int32"),
        ("y", np.full(12, "seven"), r"test labels <U5 .* number its classes from 0"),
        ("y", np.full(12, 10), "outside 0 .. 9"),
        ("y", np.full(12, -1), "outside 0 .. 9"),
        ("y", [1] * 12, r"no array y\['test'\]"),
        ("x", None, r"no array x\['test'\]"),
    ],
)
def test_arrays_of_another_form_are_refused(part: str, bad: np.ndarray, words: str) -> None:
    good = small_arrays()
    parts = {"x": dict(good.x), "y": dict(good.y)}
    parts[part]["test"] = bad
    with pytest.raises(FedreproError, match=f"the data set has .*{words}.*; fix what"):
        Arrays(**{**vars(good), **parts})


# ------------------------------------------------------------------- sharing out whole examples


@given(
    st.integers(0, 500),
    st.lists(st.integers(0, 90), min_size=1, max_size=12).filter(sum),
    st.integers(0, 5),
)
def test_shares_are_whole_complete_and_in_proportion(
    total: int, weights: list[int], seed: int
) -> None:
    shares = apportion(total, np.array(weights), np.random.default_rng(seed))
    exact = total * np.array(weights) / sum(weights)
    assert shares.sum() == total
    assert np.abs(shares - exact).max() < 1
    assert not shares[np.array(weights) == 0].any()


def test_ties_are_drawn() -> None:
    winners = {
        int(apportion(1, np.ones(3, int), np.random.default_rng(seed)).argmax())
        for seed in range(30)
    }
    assert winners == {0, 1, 2}


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.data())
def test_setting_aside_splits_the_examples_in_two(labels: list[int], data: st.DataObject) -> None:
    y = np.array(labels)
    count = data.draw(st.integers(0, y.size))
    chosen, rest = set_aside(y, count, 4, np.random.default_rng(0))
    assert chosen.size == count
    assert sorted([*chosen, *rest]) == list(range(y.size))
    exact = np.bincount(y, minlength=4) * count / y.size
    assert np.abs(np.bincount(y[chosen], minlength=4) - exact).max() < 1


@given(st.lists(st.integers(0, 30), min_size=1, max_size=120), st.integers(0, 3))
def test_a_group_is_in_one_split_and_every_example_in_one(groups: list[int], seed: int) -> None:
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


def test_groups_are_written_and_mapped(tmp_path: Path) -> None:
    plain = small_arrays()
    prepare(tmp_path, plain)
    assert (load_prepared(tmp_path).groups("test") == -1).all()
    checksum = load_prepared(tmp_path).checksum
    groups = {s: (np.arange(plain.y[s].size) % 3 - 1).astype(np.int32) for s in SPLITS}
    grouped = Arrays(**{**vars(plain), "groups": groups, "group_names": ("one", "two")})
    prepare(tmp_path, grouped)
    data = load_prepared(tmp_path)
    assert (data.kind, data.group_names) == ("image", ("one", "two"))
    assert data.checksum != checksum
    for split in SPLITS:
        assert isinstance(data.groups(split), np.memmap)
        assert np.array_equal(data.groups(split), groups[split])


def test_numbers_and_targets_are_kept_as_they_are(tmp_path: Path) -> None:
    sizes = {"train": 5, "validation": 0, "test": 2}
    rng = np.random.default_rng(0)
    arrays = Arrays(
        x={s: rng.standard_normal((n, 3)).astype(np.float32) for s, n in sizes.items()},
        y={s: rng.standard_normal(n).astype(np.float32) for s, n in sizes.items()},
        scale=1.0,
        shape=(3,),
        classes=(),
        kind="regression",
    )
    prepare(tmp_path, arrays)
    data = load_prepared(tmp_path)
    assert (data.kind, data.classes, data.info["counts"]["train"]) == ("regression", (), [5])
    for split in SPLITS:
        assert np.array_equal(data.inputs(split), arrays.x[split])
        assert np.array_equal(data.labels(split), arrays.y[split])
    data.inputs("train")[:] = 0
    assert np.array_equal(data.raw("train"), arrays.x["train"])
    unknown = {**arrays.y, "train": np.array([0, 0, np.inf, 0, 0], np.float32)}
    with pytest.raises(
        FedreproError, match="train targets that are not finite, in 1 of 5 examples"
    ):
        Arrays(**{**vars(arrays), "y": unknown})


NOTHING = {split: np.zeros((0, 2, 3), np.uint8) for split in SPLITS}
NOTHING_LABELLED = {split: np.zeros(0, np.int64) for split in SPLITS}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "song"}, "of kind 'song' with 10 classes"),
        ({"kind": "regression"}, "of kind 'regression' with 10 classes"),
        ({"classes": ()}, "of kind 'image' with 0 classes"),
        ({"groups": {"test": np.zeros(12, np.int32)}}, "groups that lie outside -1 .. -1"),
        ({"groups": {"test": np.zeros(12, np.int64)}}, "test groups int64"),
        ({"groups": {"test": np.zeros(11, np.int32)}}, r"not int32 \(12,\)"),
        ({"scale": 0.0}, r"scale 0.0 and shape \(2, 3\): none may be zero"),
        ({"shape": (0, 3)}, r"scale 16.0 and shape \(0, 3\): none may be zero"),
    ],
)
def test_kinds_and_groups_of_another_form_are_refused(
    changes: dict[str, object], words: str
) -> None:
    with pytest.raises(FedreproError, match=words):
        Arrays(**{**vars(small_arrays()), **changes})


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_data_set_without_examples_to_train_or_to_test_is_refused(tmp_path, split) -> None:
    arrays = small_arrays()
    x = {**arrays.x, split: NOTHING[split]}
    y = {**arrays.y, split: NOTHING_LABELLED[split]}
    with pytest.raises(FedreproError, match=f"the data set has no {split} examples"):
        prepare(tmp_path, Arrays(**{**vars(arrays), "x": x, "y": y}))
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------- table and components


def test_every_raw_file_of_a_component_is_in_the_table_under_its_licence() -> None:
    table = read_dataset_table(TABLE)
    for component in components("dataset").values():
        given = component.meta["files"]
        files = chain(*given.values()) if isinstance(given, dict) else given
        for file in files:
            for row in table.forms(component.name, file):
                assert row.licence == component.meta["licence"]
                assert row.citation == component.meta["citation"]


def table_with(path: Path, **changes: str) -> Path:
    row = {
        "name": "letters",
        "version": "1",
        "file": "a.gz",
        "form": "publisher",
        "urls": "http://x/a.gz http://y/a.gz",
        "mirror": "",
        "checksum": "sha256:" + "0" * 64,
        "bytes": "12",
        "unpacked": "34",
        "licence": "MIT",
        "citation": "nobody",
        **changes,
    }
    path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    return path


def test_a_table_row_is_typed(tmp_path: Path) -> None:
    table = read_dataset_table(table_with(tmp_path / "t.csv"))
    (row,) = table.forms("letters", "a.gz")
    assert row.urls == ("http://x/a.gz", "http://y/a.gz")
    assert (row.bytes, row.unpacked) == (12, 34)
    assert table.files("letters") == ("a.gz",)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"checksum": "abc"}, "row 2: checksum must be sha256: or md5:"),
        ({"checksum": "md5:" + "0" * 64}, "row 2: checksum must be sha256: or md5:"),
        ({"mirror": "../letters/a.gz"}, "mirror must stay inside"),
        ({"bytes": "1.5"}, "row 2: bytes must be a whole number, not '1.5'"),
        ({"unpacked": "1e9"}, "row 2: unpacked must be a whole number, not '1e9'"),
        ({"bytes": 5000 * "9"}, "row 2: bytes must be a whole number"),
        ({"unpacked": "²"}, "row 2: unpacked must be a whole number"),
        ({"file": "../a.gz"}, "must stay inside"),
        ({"file": "/etc/a.gz"}, "must stay inside"),
        ({"name": ""}, "row 2: name must not be empty"),
    ],
)
def test_a_row_that_makes_no_sense_is_named(
    tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    with pytest.raises(FedreproError, match=words):
        read_dataset_table(table_with(tmp_path / "t.csv", **changes))


def test_an_absent_or_incomplete_table_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        FedreproError, match=r"config/datasets.csv cannot be read .*`fedrepro start FOLDER`"
    ):
        read_dataset_table()
    path = tmp_path / "t.csv"
    path.write_text(",".join(c for c in COLUMNS if c not in ("urls", "bytes")) + "\n")
    with pytest.raises(FedreproError, match="lacks the columns urls, bytes"):
        read_dataset_table(path)
    path.write_bytes(b"name,version\n\xff\n")
    with pytest.raises(FedreproError, match=r"t\.csv cannot be read"):
        read_dataset_table(path)


def test_a_file_may_get_as_large_as_its_form_and_an_unknown_one_as_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "letters.xz"
    stated = [("publisher", 10, 100), ("repacked", 12, 90), ("odd", 14, None)]
    rows = tuple(
        FileRow("letters", "1", file.name, form, (), "", size, "MIT", "nobody", unpacked=most)
        for form, size, most in stated
    )
    monkeypatch.setattr(table_module, "read_dataset_table", lambda: DatasetTable(rows, tmp_path))
    for size, most in ((10, 100), (12, 90), (13, 100)):
        file.write_bytes(bytes(size))
        assert largest_unpacked("letters", file) == most
    file.write_bytes(bytes(14))
    with pytest.raises(FedreproError, match=r"does not state how large letters\.xz .* may get"):
        largest_unpacked("letters", file)


def test_every_packed_file_states_how_large_it_may_get() -> None:
    for row in read_dataset_table().rows:
        assert row.unpacked or row.file.endswith(".csv"), row.file
        assert (row.unpacked or 0) >= (row.bytes or 0) or row.form == "reduced"


def test_listing_data_sets_and_partitions_imports_nothing_heavy() -> None:
    code = (
        "import sys; from fedrepro.core.registry import components\n"
        "names = [*components('dataset'), *components('partition')]\n"
        "heavy = {'torch', 'torchvision', 'sklearn', 'scipy', 'pandas', 'pyarrow'}\n"
        "print(len(names) >= 5, sorted(heavy & set(sys.modules)))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "True []"


# ---------------------------------------------------------------------------------------- shapes


def test_shapes_are_the_same_in_all_runs_and_of_all_classes_alike() -> None:
    first, second = (arrays_of("shapes+test~50+train~200", Path()) for _ in range(2))
    more = arrays_of("shapes+test~50+train~300", Path())
    assert np.array_equal(first.x["train"], second.x["train"])
    assert np.array_equal(first.x["train"], more.x["train"][:200])
    assert np.bincount(first.y["train"]).tolist() == [20] * 10
    assert first.shape == (3, 12, 12)
    assert "generated" in first.stand_in


def test_a_shape_can_be_told_from_its_ground_and_from_the_other_splits() -> None:
    arrays = arrays_of("shapes+noise~0+test~100+train~100", Path())
    for picture in arrays.x["train"]:
        colours = np.unique(picture.reshape(3, -1), axis=1)
        assert colours.shape[1] == 2
        assert np.ptp(colours, axis=1).max() >= 0.3 * 255 - 1
    assert not np.array_equal(arrays.x["train"], arrays.x["test"])
