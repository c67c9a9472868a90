"""Data of one's own: what is wrong with a csv or an npz is one sentence that says where."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import wraps
from pathlib import Path

import numpy as np
import pytest

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.data.prepared import load_prepared
from fedrepro.data.user_data import OwnExamples, read_csv_examples, read_npz, split_by_class
from fedrepro.stages.data import prepare
from fedrepro.stages.user_models.model_and_data_files import read_counts

GOOD = "a,kind,b\n1,x,2\n3.5,y,-4\n5,x,6e-3\n"


def told(path, call, *words):
    with pytest.raises(FedreproError) as raised:
        call(path)
    said = str(raised.value)
    assert str(path) in said
    assert "\n" not in said
    for word in words:
        assert word in said, said
    return said


@pytest.fixture
def csv(tmp_path):
    def write(content):
        path = tmp_path / "own.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def of_csv(path):
    return read_csv_examples(path, "kind")


def test_a_csv_is_read_in_its_order(csv):
    found = of_csv(csv(GOOD))
    assert found.x.dtype == np.float32
    assert found.x.tolist() == np.float32([[1, 2], [3.5, -4], [5, 6e-3]]).tolist()
    assert (found.y.tolist(), found.classes) == ([0, 1, 0], ("x", "y"))
    found = of_csv(csv("a,kind\n1,10\n2,9\n3,10\n4,-1\n"))  # whole numbers in their order
    assert (found.y.tolist(), found.classes) == ([2, 1, 2, 0], ("-1", "9", "10"))
    assert read_csv_examples(csv("a,kind\n1,x\n2,\n"), "kind", False).classes == ("0",)
    assert len(of_csv(csv(f"a,kind\n1,{10**18}\n2,{10**18 + 1}\n")).classes) == 2


@pytest.mark.parametrize("ends", ["\r\n", "\n\n"])
def test_ends_of_lines_empty_lines_and_separators_do_not_matter(csv, ends):
    plain = of_csv(csv(GOOD))
    for separator in (";", "\t"):
        assert (of_csv(csv("\n" + GOOD.replace(",", separator))).x == plain.x).all()
    other = of_csv(csv("\ufeff" + GOOD.replace("\n", ends).replace("kind", " kind ")))
    assert other.x.tolist() == plain.x.tolist()
    assert other.classes == plain.classes


@pytest.mark.parametrize("other", ["1.0", "01", "+1", " 1 ", "1e0", "1.000e+00"])
def test_one_number_is_one_class_however_it_is_written(csv, npz, other):
    file, arrays = csv(f"a,kind\n1,1\n2,{other}\n3,10\n"), npz(x=X, y=["1", other, "10"])
    for found in (of_csv(file), read_npz(arrays)):
        assert (found.y.tolist(), found.classes) == ([0, 0, 1], ("1", "10"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["is empty"]),
        ("a,kind\n", ["has no examples"]),
        ("1,2\n3,4\n", ["numbers in its first line, which has to name the columns"]),
        ("a,sort\n1,x\n2,y\n", ["unknown column 'kind'", "known are a, sort"]),
        ("kind\nx\ny\n", ["has no column but 'kind'"]),
        ("a,a,kind\n1,2,x\n", ["names a column twice"]),
        ("a,kind\n1,x\n2,y,3\n", ["has 3 fields in line 3, not 2"]),
        ("a,b,kind\n1,2,x\n3,nan,y\n", ["'nan' in line 3, column 'b'", "not a finite number"]),
        ("b,kind,a\n1,x,2\n3,y,-inf\n", ["'-inf' in line 3, column 'a'", "not a finite number"]),
        ("a,kind\n1,x\n\n1e39,y\n", ["'1e39' in line 4, column 'a'"]),
        ("a,kind\n1,x\n2, \n", ["1 examples without a class"]),
        (",a,kind\n0,1,x\n1,2,y\n", ["no name for column 1", "write it with index=False"]),
        ("Unnamed: 0,a,kind\n0,1,x\n1,2,y\n", ["no name for column 1"]),
        ("a;kind\n5,1;x\n3,2;y\n", ["'5,1' in line 2", "decimals take a point"]),
        ("a,kind\n1,x\n2,NaN\n", ["has the class 'NaN'"]),
        ("a,kind\n1,2.0\n2,1.37\n", ["has the class '1.37'", "whole number, or named by letters"]),
        (b"a,kind\n1,\xff\n", ["not a csv in UTF-8"]),
        ("a,kind\n1," + "x" * 200_000 + "\n", ["cannot be read"]),
    ],
)
def test_what_is_wrong_with_a_csv_is_one_sentence(csv, content, words):
    assert len(told(csv(content), of_csv, *words)) < 500


@pytest.fixture
def npz(tmp_path):
    def write(**arrays):
        path = tmp_path / "own.npz"
        np.savez(path, **arrays)
        return path

    return write


X = np.arange(12.0).reshape(3, 2, 2)


def test_an_npz_keeps_shapes_and_bytes(npz):
    found = read_npz(npz(x=X, y=["b", "a", "b"]))
    assert (found.x.dtype, found.x.tolist()) == (np.float32, X.tolist())
    assert (found.y.tolist(), found.classes) == ([1, 0, 1], ("a", "b"))
    found = read_npz(npz(x=X.astype(np.uint8), y=np.array([7, 7, 10])))
    assert (found.x.dtype, found.y.tolist(), found.classes) == (np.uint8, [0, 0, 1], ("7", "10"))
    found = read_npz(npz(x=X, y=[2.0, 1.0, 2.0]))
    assert (found.y.tolist(), found.classes) == ([1, 0, 1], ("1", "2"))
    assert not read_npz(npz(x=X, y=np.eye(3)), labelled=False).y.any()


def test_channels_that_may_be_last_are_asked_for(npz):
    x = np.arange(2 * 5 * 6 * 3).reshape(2, 5, 6, 3)
    path = npz(x=x, y=[0, 1])
    told(path, read_npz, "(2, 5, 6, 3)", "channels='last'")
    assert (read_npz(path, channels="last").x == x.transpose(0, 3, 1, 2)).all()
    assert read_npz(path, channels="first").x.shape == x.shape
    moved = npz(x=x.transpose(0, 3, 1, 2), y=[0, 1])
    assert read_npz(moved).x.shape == (2, 3, 5, 6)
    given = OwnExamples(np.zeros((40, 5, 6, 3), np.float32), np.arange(40) % 2, ("a", "b"))
    assert split_by_class(given, 4).shape == (5, 6, 3)
    with pytest.raises(FedreproError, match=r"shape \(5, 6, 3\): move channels"):
        split_by_class(given, 4, kind="image")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": X}, ["unknown array 'y'", "known are x"]),
        ({"x": X, "y": [0, 1]}, ["(3, 2, 2) for 2 labels"]),
        ({"x": X, "y": [[0], [1], [0]]}, ["(3, 1): make it whole numbers or text, (N,)"]),
        ({"x": X, "y": [0.5, 1.0, 0.0]}, ["y float64"]),
        ({"x": X, "y": [np.inf, 1.0, 0.0]}, ["y float64"]),
        ({"x": X, "y": np.eye(3)}, ["y float64 (3, 3)", "y.argmax(axis=1)"]),
        ({"x": X, "y": ["a", "nan", "b"]}, ["has the class 'nan'"]),
        ({"x": [1.0, 2.0], "y": [0, 1]}, ["x float64 (2,)"]),
        ({"x": np.empty((2, 0)), "y": [0, 1]}, ["(2, 0)"]),
        ({"x": [["a"], ["b"]], "y": [0, 1]}, ["for 2 labels: make it numbers"]),
        ({"x": [[1.0], [np.nan], [np.inf]], "y": [0, 1, 0]}, ["in 2 of 3 examples", "number 1"]),
        ({"x": [[1.0], [1e300]], "y": [0, 1]}, ["in 1 of 2 examples", "number 1"]),
        ({"x": np.empty((0, 2)), "y": np.empty(0, int)}, ["has no examples"]),
        ({"x": X, "y": ["a", "", "b"]}, ["1 examples without a class"]),
        ({"x": X, "y": np.array(["a", 1, None], object)}, ["not a complete npz of arrays"]),
    ],
)
def test_what_is_wrong_with_an_npz_is_one_sentence(npz, arrays, words):
    told(npz(**arrays), read_npz, *words)


def test_files_that_are_no_npz_or_not_there_are_sentences(npz, tmp_path):
    whole = npz(x=X, y=[0, 1, 0])
    content = whole.read_bytes()
    np.savez_compressed(whole, x=X, y=[0, 1, 0])
    packed = whole.read_bytes()
    for other in (content[:300], b"", GOOD.encode(), packed[:115] + packed[:9] + packed[124:]):
        whole.write_bytes(other)
        told(whole, read_npz, "cannot be read")
    np.save(tmp_path / "one.npy", X)
    told(tmp_path / "one.npy", read_npz, "not a complete npz")
    told(tmp_path / "none.csv", of_csv, "cannot be read (No such file")
    told(tmp_path, of_csv, "cannot be read (Is a directory")
    told(tmp_path / "none.npz", read_npz, "cannot be read (No such file")
    (tmp_path / "counts.csv").write_text(",cat,dog\n0,3,4\n1,5,6\n")
    with pytest.raises(FedreproError, match="write it with index=False"):
        read_counts(tmp_path / "counts.csv", [Path("a.pt"), Path("b.pt")])


def examples(*counts):
    y = np.repeat(np.arange(len(counts)), counts)
    x = np.arange(len(y), dtype=np.float32)[:, None]
    return OwnExamples(x, y, tuple(f"class {i}" for i in range(len(counts))))


def test_every_example_is_in_one_split_and_every_class_in_proportion():
    given = examples(40, 20)
    found = split_by_class(given, 12, 6)
    assert sorted(np.concatenate([*found.x.values()]).ravel()) == given.x.ravel().tolist()
    assert np.bincount(found.y["test"]).tolist() == [8, 4]
    assert np.bincount(found.y["validation"]).tolist() == [4, 2]
    for split, x in found.x.items():
        assert (given.y[x.ravel().astype(int)] == found.y[split]).all()
    assert (split_by_class(given, 12).x["test"] == found.x["test"]).all()


def test_pixels_that_are_not_scaled_are_said_and_kept_with_the_data(tmp_path, capsys):
    x = (np.arange(30 * 4).reshape(30, 2, 2) * 2).astype(np.uint8)
    for pixels in (x, x.astype(np.float32)):
        given = OwnExamples(pixels, np.arange(30) % 2, ("a", "b"))
        assert "scale=255" in split_by_class(given, 6).notes[0]
        assert not split_by_class(given, 6, scale=255).notes
        assert not split_by_class(replace(given, x=pixels // 255), 6).notes
    digits = components("dataset")["digits"].spec()
    fn = wraps(digits.component.fn)(lambda raw, **values: split_by_class(given, 6))
    prepare(replace(digits, component=replace(digits.component, fn=fn)), tmp_path, tmp_path / "o")
    data = load_prepared(tmp_path / "o")
    assert data.classes == ("a", "b")
    assert data.info["notes"][0] in capsys.readouterr().err


@pytest.mark.parametrize(("test", "validation"), [(0, 0), (60, 0), (30, 30), (-1, 0)])
def test_so_many_for_testing_and_validation_cannot_be(test, validation):
    with pytest.raises(FedreproError, match=re.escape(f"of 60 examples {test} cannot be")):
        split_by_class(examples(40, 20), test, validation)
    with pytest.raises(FedreproError, match="all examples have the class"):
        split_by_class(examples(40), 5)
    with pytest.raises(FedreproError, match="none of class 'class 1' is left for training"):
        split_by_class(examples(40, 1), 39)
