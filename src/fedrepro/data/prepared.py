"""The prepared form of a data set: plain arrays that jobs map into memory, and what they are.

A folder with `dataset.json` and, for each split, `<split>_x.npy` (uint8, one flattened example a
row) and `<split>_y.npy` (int64). Inputs are kept as stored by the publisher and scaled to [0, 1]
when they are used: a quarter of the bytes, and the scale is written down.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.artifacts import (
    SCHEMA_VERSION,
    damaged,
    map_array,
    read_json,
    write_array,
    write_json,
)
from fedrepro.errors import FedreproError, unknown
from fedrepro.spec import Spec

SPLITS = ("train", "validation", "test")
PREPARED_FILES = (
    "dataset.json",
    *(f"{split}_{part}.npy" for split in SPLITS for part in ("x", "y")),
)


@dataclass(frozen=True)
class Arrays:
    """What a data set component returns; x and y have the keys train, validation and test.

    x[split]: uint8 (N, *shape), as stored. y[split]: int64 (N,), labels 0 .. classes-1.
    scale: the divisor that brings inputs to [0, 1]. stand_in: empty, or in what way these are
    not the data of the papers; it is shown wherever a result on them is shown.
    """

    x: Mapping[str, np.ndarray]
    y: Mapping[str, np.ndarray]
    scale: float
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    stand_in: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for split in SPLITS:
            x, y = self.x[split], self.y[split]
            if x.dtype != np.uint8 or x.shape != (y.size, *self.shape):
                raise ValueError(f"{split} inputs are {x.dtype} {x.shape}, for {y.size} labels")
            if y.dtype != np.int64 or y.ndim != 1:
                raise ValueError(f"{split} labels are {y.dtype} {y.shape}, not int64 (N,)")
            if y.size and (y.min() < 0 or y.max() >= len(self.classes)):
                raise ValueError(f"{split} labels lie outside 0 .. {len(self.classes) - 1}")


@dataclass(frozen=True)
class Prepared:
    """A data set as jobs see it; arrays are mapped read-only, `info` is `dataset.json`."""

    folder: Path
    info: Mapping[str, Any]
    _x: Mapping[str, np.ndarray] = field(repr=False)
    _y: Mapping[str, np.ndarray] = field(repr=False)

    @property
    def name(self) -> str:
        return str(self.info["name"])

    @property
    def token(self) -> str:
        return str(self.info["token"])

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the labels."""
        return tuple(self.info["classes"])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example before flattening."""
        return tuple(self.info["shape"])

    @property
    def dims(self) -> int:
        """Number of inputs of one example."""
        return int(np.prod(self.shape))

    @property
    def scale(self) -> float:
        return float(self.info["scale"])

    @property
    def checksum(self) -> str:
        """SHA-256 over all arrays: equal for equal data, whatever the files are called."""
        return str(self.info["sha256"])

    @property
    def stand_in(self) -> str:
        return str(self.info["stand_in"])

    def raw(self, split: str) -> np.ndarray:
        """Inputs as stored: uint8 (N, D), mapped."""
        return self._of(self._x, split)

    def labels(self, split: str) -> np.ndarray:
        """int64 (N,), mapped."""
        return self._of(self._y, split)

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the natural groups (roles, speakers, nodes); empty if there are none."""
        return tuple(self.info.get("group_names", ()))

    def groups(self, split: str) -> np.ndarray:
        """Natural group of each example: int32 (N,), -1 throughout if there are none."""
        return np.full(self.labels(split).size, -1, np.int32)

    def inputs(self, split: str, rows: np.ndarray | None = None) -> np.ndarray:
        """Inputs in [0, 1]: float32 (N, D), or of the given rows only."""
        raw = self.raw(split)
        scaled = np.asarray(raw if rows is None else raw[rows], np.float32)
        scaled /= np.float32(self.scale)
        return scaled

    def _of(self, arrays: Mapping[str, np.ndarray], split: str) -> np.ndarray:
        if split not in arrays:
            raise unknown("split", split, SPLITS, f"data set '{self.name}'")
        return arrays[split]


def write_prepared(
    folder: Path | str,
    arrays: Arrays,
    spec: Spec,
    provenance: Mapping[str, Any],
    sources: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write the prepared form of the data set `spec`; `dataset.json` appears last.

    sources: what is known of the raw files (`download.raw_sources`), empty if there are none.
    """
    folder = Path(folder)
    # while arrays are being replaced the folder must not pass for a finished one
    (folder / "dataset.json").unlink(missing_ok=True)
    dims = int(np.prod(arrays.shape))
    flat = {split: arrays.x[split].reshape(-1, dims) for split in SPLITS}
    for split in SPLITS:
        write_array(folder / f"{split}_x.npy", flat[split])
        write_array(folder / f"{split}_y.npy", arrays.y[split])
    meta = spec.component.meta
    counts = {s: np.bincount(arrays.y[s], minlength=len(arrays.classes)) for s in SPLITS}
    info = {
        "kind": "dataset",
        "schema": SCHEMA_VERSION,
        "name": spec.name,
        "title": meta["title"],
        "token": spec.token,
        "version": spec.component.version,
        "counts": {split: counts[split].tolist() for split in SPLITS},
        "sha256": _checksum(flat, arrays.y),
        "shape": list(arrays.shape),
        "scale": arrays.scale,
        "classes": list(arrays.classes),
        "licence": meta["licence"],
        "citation": meta["citation"],
        "stand_in": arrays.stand_in,
        "notes": list(arrays.notes),
        "sources": [dict(source) for source in sources],
        "provenance": dict(provenance),
    }
    write_json(folder / "dataset.json", info)


def load_prepared(folder: Path | str) -> Prepared:
    """The prepared data set in `folder`; arrays are mapped, not read.

    Errors: FedreproError if a file is missing, has another size or type than `dataset.json`
    says, or was written with another schema version.
    """
    folder = Path(folder)
    path = folder / "dataset.json"
    info = read_json(path)
    if not isinstance(info, dict) or info.get("kind") != "dataset":
        raise damaged(path, "it does not describe a data set")
    if info.get("schema") != SCHEMA_VERSION:
        raise FedreproError(
            f"{path} was written with schema version {info.get('schema')}, this fedrepro reads "
            f"{SCHEMA_VERSION}; delete the folder and start again, and it will be made anew"
        )
    dims = int(np.prod(info["shape"]))
    x, y = {}, {}
    for split in SPLITS:
        rows = sum(info["counts"][split])
        x[split] = _mapped(folder / f"{split}_x.npy", np.dtype(np.uint8), (rows, dims))
        y[split] = _mapped(folder / f"{split}_y.npy", np.dtype(np.int64), (rows,))
    return Prepared(folder, info, x, y)


def _mapped(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    try:
        array = map_array(path)
    except EOFError as error:
        raise damaged(path, "it is empty") from error
    if array.dtype != dtype or array.shape != shape:
        raise damaged(path, f"{array.dtype} {array.shape} instead of {dtype} {shape}")
    return array


def _checksum(x: Mapping[str, np.ndarray], y: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for split in SPLITS:
        for part in (x[split], y[split]):
            digest.update(f"{split} {part.dtype.str} {part.shape};".encode())
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()
