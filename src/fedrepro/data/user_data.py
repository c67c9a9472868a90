"""A user's own data from a csv or an npz: read, checked (or FedreproError), and split by class."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import math
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrepro.core.errors import FedreproError, shown, unknown
from fedrepro.core.rng import RngKey
from fedrepro.data.prepared import SPLITS, Arrays, last_axis_is_channels, not_finite
from fedrepro.data.stratified_samples_and_splits import stratified_sample

LARGEST = float(np.finfo(np.float32).max)
WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
NAMELESS = re.compile(r"(Unnamed: [0-9]+)?")  # what pandas calls a column without a name
PIXEL = 255  # the largest value of a pixel as it is stored


@dataclass(frozen=True)
class OwnExamples:
    """The checked examples of a user's file: x, uint8 or float32 (N, *shape), and y, int64 (N,).

    classes: names by label, sorted as numbers or texts; each has examples. notes: remarks on data.
    """

    x: np.ndarray
    y: np.ndarray
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_csv_examples(path: Path, label: str, labelled: bool = True) -> OwnExamples:
    """Read examples from a csv with a header: classes in column `label`, inputs in all others.

    Inputs are numbers, classes whole numbers or texts. Unless `labelled`, all are class 0.
    """
    header, lines = csv_lines(path)
    if len(set(header)) < len(header):
        raise _wrong(path, "names a column twice in its first line")
    if all(math.isfinite(_number(name)) for name in header):
        raise _wrong(path, "has numbers in its first line, which has to name the columns")
    if label not in header and labelled:
        raise unknown("column", label, header, f"the first line of {path}, which names them")
    at = header.index(label) if label in header else None
    names = [name for name in header if name != label]
    if not names:
        raise _wrong(path, f"has no column but '{label}', so nothing to learn from")
    x = np.empty((len(lines), len(names)), np.float32)
    labels = []
    for row, (line, fields) in enumerate(lines):
        if len(fields) != len(header):
            raise _wrong(path, f"has {len(fields)} fields in line {line}, not {len(header)}")
        found = "0" if at is None else fields.pop(at).strip()
        labels.append(found if labelled else "0")
        x[row] = [_number(field) for field in fields]
    for row, column in np.argwhere(~np.isfinite(x))[:1]:
        line, fields = lines[row]
        entry = f"{shown(fields[column])} in line {line}, column '{names[column]}'"
        point = " (decimals take a point)" if "," in fields[column] else ""
        raise _wrong(path, f"has {entry}, not a finite number{point}")
    return _examples(path, x, np.array(labels))


def _number(text: str) -> float:
    """Convert a text to a number; return NaN if it is not a number or too large for float32."""
    with contextlib.suppress(ValueError):
        if abs(number := float(text)) <= LARGEST:
            return number
    return math.nan


def csv_lines(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return a csv's header, and (line number, fields) of each later line that is not empty."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = next((line for line in file if line.strip()), "")
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=first.count))
            rows = [(reader.line_num, fields) for fields in reader if fields]
    except (OSError, ValueError, csv.Error) as error:
        why = getattr(error, "strerror", None)
        raise _unreadable(path, why or f"it is not a csv in UTF-8: {error}") from error
    if not rows:
        raise _wrong(path, "is empty")
    (_, first_line), *lines = rows
    header = [name.strip() for name in first_line]
    for number in (number for number, name in enumerate(header, 1) if NAMELESS.fullmatch(name)):
        what = f"has no name for column {number}, as where pandas writes its index"
        raise _wrong(path, what, "write it with index=False, or name the column,")
    return header, lines


NO_NPZ = (OSError, ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)


def read_npz(path: Path, labelled: bool = True, channels: str = "") -> OwnExamples:
    """Read examples from an npz file with inputs x (N, *shape) and labels y (N,).

    Inputs of uint8 stay, others become float32. Unless `labelled`, y is not read, and is 0 for all.
    `channels` is "last" for images (N, height, width, channels), which become (N, channels, height,
    width), or "first"; required if the last axis alone looks like channels.
    """
    arrays = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            for name in "xy" if labelled else "x":
                if name not in file:
                    raise unknown("array", name, file.files, str(path))
                arrays[name] = file[name]
    except NO_NPZ as error:
        why = getattr(error, "strerror", None)
        raise _unreadable(path, why or f"it is not a complete npz of arrays: {error}") from error
    x = arrays["x"]
    y = arrays.get("y", np.zeros(len(x) if x.ndim else 0, np.int64))
    if y.ndim == 1 and y.dtype.kind == "f" and (y == np.floor(y)).all() and np.isfinite(y).all():
        y = y.astype(np.int64)
    if y.ndim != 1 or y.dtype.kind not in "iubU":
        rows = " (of one column for each class: y.argmax(axis=1))" if y.ndim == 2 else ""
        raise _wrong(path, f"has y {y.dtype} {y.shape}: make it whole numbers or text, (N,){rows}")
    if x.ndim < 2 or len(x) != len(y) or x.dtype.kind not in "iubf" or not all(x.shape[1:]):
        raise _wrong(path, f"has x {x.dtype} {x.shape} for {len(y)} labels: make it numbers (N, D)")
    if x.ndim == 4 and last_axis_is_channels(x.shape[1:]) and not channels:
        fix = "say channels='last', or 'first' if it is not"
        raise FedreproError(f"{path} has x {x.shape}, whose last axis looks like channels: {fix}")
    if x.ndim == 4 and channels == "last":
        x = np.moveaxis(x, 3, 1)
    with np.errstate(over="ignore"):
        x = x if x.dtype == np.uint8 else x.astype(np.float32)
    if bad := not_finite(x):
        raise _wrong(path, f"has x that are {bad}")
    return _examples(path, x, y)


def _examples(path: Path, x: np.ndarray, labels: np.ndarray) -> OwnExamples:
    if not len(labels):
        raise _wrong(path, "has no examples")
    found, y = np.unique(labels, return_inverse=True)
    names = [_class_name(path, str(name).strip()) for name in found]
    if lacking := sum(not str(label).strip() for label in labels):
        raise _wrong(path, f"has {lacking} examples without a class")
    whole = all(name.lstrip("-").isdecimal() for name in names)  # 10 after 9, and not after 1
    classes = sorted(set(names), key=int if whole else None)
    place = {name: number for number, name in enumerate(classes)}
    return OwnExamples(x, np.array([place[name] for name in names], np.int64)[y], tuple(classes))


def _class_name(path: Path, text: str) -> str:
    """Return the class name for a label's `text`: 1 for 1.0 and 01; raise for 1.5."""
    try:
        number = float(text)
    except ValueError:
        return text
    if not number.is_integer():
        why = f"has the class {shown(text)}: a class is a whole number, or named by letters"
        raise _wrong(path, why)
    return str(int(text) if text.lstrip("+-").isdecimal() else int(number))


def split_by_class(
    examples: OwnExamples,
    test: int,
    validation: int = 0,
    *,
    scale: float = 1.0,
    kind: str = "features",
    stream: str = "own-split",
) -> Arrays:
    """Split a user's examples into train, validation and test, each class in proportion.

    `test` and `validation` are numbers of examples. `kind` is the data set's kind, such as image.
    `scale` divides inputs. `stream` names the random numbers, whose seed is fixed.
    """
    x, y, names, count = examples.x, examples.y, examples.classes, len(examples.classes)
    if count < 2:
        raise FedreproError(f"all examples have the class '{names[0]}': give examples of another")
    if not 0 < test < len(y) - validation:
        split = f"{test} cannot be for testing and {validation} for validation, with some left"
        raise FedreproError(f"of {len(y)} examples {split} for training: choose other numbers")
    least = 1 if x.dtype == np.uint8 else PIXEL / 2
    like_pixels = x.min() >= 0 and least < x.max() <= PIXEL and (np.floor(x) == x).all()
    note = f"inputs up to {x.max():g} are taken as they are: if they are pixels, give scale={PIXEL}"
    generator = RngKey(0).stream(stream)
    held, rest = stratified_sample(y, test, count, generator)
    inner, outer = stratified_sample(y[rest], validation, count, generator)
    rows = dict(zip(SPLITS, (rest[outer], rest[inner], held), strict=True))
    lost = np.flatnonzero(np.bincount(y[rows["train"]], minlength=count) == 0)
    if len(lost):
        split = f"with {test} test and {validation} validation examples none of class"
        fix = "choose smaller numbers, or leave that class out"
        raise FedreproError(f"{split} '{names[lost[0]]}' is left for training: {fix}")
    return Arrays(
        x={split: x[index] for split, index in rows.items()},
        y={split: y[index] for split, index in rows.items()},
        scale=scale,
        shape=x.shape[1:],
        classes=names,
        kind=kind,
        notes=(*examples.notes, *([note] if scale == 1 and like_pixels else [])),
    )


def input_checksum(path: Path) -> str:
    """Return "sha256:" and the digest of a file that a data set reads, to notice its changes."""
    try:
        return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    except OSError as error:
        raise _unreadable(path, error.strerror) from error


def _wrong(path: Path, what: str, fix: str = "fix the file") -> FedreproError:
    return FedreproError(f"{path} {what}; {fix} and start again")


def _unreadable(path: Path, why: str | None) -> FedreproError:
    return _wrong(path, f"cannot be read ({why})", "fix that")
