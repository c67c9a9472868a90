"""Data of one's own, from a csv or an npz: read, checked, and split by class.

Whatever is wrong with a file is one sentence that says where in it. For components of data sets,
which hand over a path in `raw`: see docs/data.md, "From a file of one's own".
"""

from __future__ import annotations

import csv
import hashlib
import math
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrepro.core.errors import FedreproError, shown, unknown
from fedrepro.core.rng import Rng
from fedrepro.data.prepared import SPLITS, Arrays
from fedrepro.data.stratify import set_aside

LARGEST = float(np.finfo(np.float32).max)
WHOLE = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class OwnExamples:
    """Checked examples. x: uint8 or float32 (N, *shape), finite; y: int64 (N,), numbers of classes.

    classes: their names, sorted, whole numbers by value; every one of them has examples.
    """

    x: np.ndarray
    y: np.ndarray
    classes: tuple[str, ...]


def read_csv(path: Path, label: str, least: int = 2, labelled: bool = True) -> OwnExamples:
    """Examples of a csv with a header, one a line: the class in column `label`, else numbers.

    A class may be any text; where a file need not be `labelled`, the column may be missing. Errors:
    FedreproError for a file that cannot be read, has no such column, no examples or fewer than
    `least` classes, a line of another length, or a field that is no finite number.
    """
    header, lines = _fields(path)
    if len(set(header)) < len(header):
        raise _wrong(path, "names a column twice in its first line")
    if all(math.isfinite(_number(name)) for name in header):
        raise _wrong(path, "has numbers in its first line, which has to name the columns")
    if label not in header and labelled:
        raise unknown("column", label, header, f"the first line of {path}, which names them")
    at = header.index(label) if label in header else None
    names = [name for name in header if name != label]
    if not names:
        raise _wrong(path, f"has no column beside '{label}', so nothing to learn from")
    x = np.empty((len(lines), len(names)), np.float32)
    labels = []
    for row, (line, fields) in enumerate(lines):
        if len(fields) != len(header):
            raise _wrong(path, f"has {len(fields)} fields in line {line}, not {len(header)}")
        labels.append("0" if at is None else fields.pop(at).strip())
        x[row] = [_number(field) for field in fields]
    for row, column in np.argwhere(~np.isfinite(x))[:1]:
        line, fields = lines[row]
        entry = f"{shown(fields[column])} in line {line}, column '{names[column]}'"
        raise _wrong(path, f"has {entry}: that is no finite number")
    return _examples(path, x, np.array(labels), least)


def _number(text: str) -> float:
    """The number, not finite where there is none or where it is too large for float32."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if abs(number) <= LARGEST else math.nan


def _fields(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header, and each further line that is not empty, with its number."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            rows = [(reader.line_num, fields) for fields in reader if fields]
    except OSError as error:
        raise _unreadable(path, error.strerror) from error
    except (ValueError, csv.Error) as error:
        raise _unreadable(path, f"it is no csv in UTF-8: {error}") from error
    if not rows:
        raise _wrong(path, "is empty")
    (_, header), *lines = rows
    return [name.strip() for name in header], lines


def read_npz(
    path: Path, inputs: str = "x", labels: str = "y", least: int = 2, labelled: bool = True
) -> OwnExamples:
    """Examples of an npz with the arrays `inputs` (N, *shape) and `labels` (N,), numbers or text.

    Inputs of uint8 stay, others become float32. Labels may be missing where a file need not be
    `labelled`. Errors: FedreproError for a file that cannot be
    read, arrays that are not there, that hold Python objects or do not fit each other, numbers
    that are not finite, no examples or fewer than `least` classes.
    """
    arrays = {}
    try:
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise _wrong(path, "is a single array, not an npz")
        with loaded as file:
            for name in (inputs, labels) if labelled or labels in file else (inputs,):
                if name not in file:
                    raise unknown("array", name, file.files, str(path))
                arrays[name] = file[name]
    except OSError as error:
        raise _unreadable(path, error.strerror or "it is cut off") from error
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise _unreadable(path, f"it is no complete npz of plain arrays: {error}") from error
    x = arrays[inputs]
    y = arrays.get(labels, np.zeros(len(x) if x.ndim else 0, np.int64))
    if y.ndim != 1 or y.dtype.kind not in "iubU":
        raise _wrong(path, f"has {labels} {y.dtype} {y.shape}: make it whole numbers or text, (N,)")
    if x.ndim < 2 or len(x) != len(y) or x.dtype.kind not in "iubf" or not all(x.shape[1:]):
        raise _wrong(
            path, f"has {inputs} {x.dtype} {x.shape} for {len(y)} labels: make it numbers (N, D)"
        )
    with np.errstate(over="ignore"):
        x = x if x.dtype == np.uint8 else x.astype(np.float32)
    lost = np.flatnonzero(~np.isfinite(x).all(axis=tuple(range(1, x.ndim))))
    if len(lost):
        raise _wrong(
            path,
            f"has {inputs} that are not finite in {len(lost)} of {len(x)} examples, the first of "
            f"them number {lost[0]}",
        )
    return _examples(path, x, y, least)


def _examples(path: Path, x: np.ndarray, labels: np.ndarray, least: int) -> OwnExamples:
    if not len(labels):
        raise _wrong(path, "has no examples")
    names, y = np.unique(labels, return_inverse=True)
    classes = [str(name) for name in names]
    if "" in classes:
        raise _wrong(path, f"has {int((labels == '').sum())} examples without a class")
    if len(classes) < least:
        raise _wrong(path, f"has one class, '{classes[0]}': there is nothing to tell apart")
    if all(WHOLE.fullmatch(name) for name in classes):  # 10 after 9, and not after 1
        order = np.argsort([int(name) for name in classes], kind="stable")
        y, classes = np.argsort(order)[y], [classes[i] for i in order]
    return OwnExamples(x, y.astype(np.int64), tuple(classes))


def split_by_class(
    examples: OwnExamples,
    test: int,
    validation: int = 0,
    *,
    scale: float = 1.0,
    kind: str = "features",
) -> Arrays:
    """What a component returns: test and validation examples drawn by class, the same in all runs.

    scale, kind: as of `Arrays`. Errors: FedreproError if a class would have no training example.
    """
    x, y, count = examples.x, examples.y, len(examples.classes)
    if not 0 < test < len(y) - validation:
        raise FedreproError(
            f"of {len(y)} examples {test} cannot be for testing and {validation} for validation, "
            "with some left for training: choose other numbers"
        )
    generator = Rng(0).stream("own-split")
    held, rest = set_aside(y, test, count, generator)
    inner, outer = set_aside(y[rest], validation, count, generator)
    rows = dict(zip(SPLITS, (rest[outer], rest[inner], held), strict=True))
    lost = np.flatnonzero(np.bincount(y[rows["train"]], minlength=count) == 0)
    if len(lost):
        raise FedreproError(
            f"with {test} test and {validation} validation examples none of class "
            f"'{examples.classes[lost[0]]}' is left for training: choose smaller numbers, or leave "
            "that class out"
        )
    return Arrays(
        x={split: x[index] for split, index in rows.items()},
        y={split: y[index] for split, index in rows.items()},
        scale=scale,
        shape=x.shape[1:],
        classes=examples.classes,
        kind=kind,
    )


def checksum_of(path: Path) -> str:
    """The SHA-256 of a file, for `reads` of a data set. Errors: FedreproError for a missing one."""
    try:
        return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    except OSError as error:
        raise _unreadable(path, error.strerror) from error


def _wrong(path: Path, what: str) -> FedreproError:
    return FedreproError(f"{path} {what}; mend the file and start again")


def _unreadable(path: Path, why: str | None) -> FedreproError:
    return FedreproError(f"{path} cannot be read ({why}); mend that and start again")
