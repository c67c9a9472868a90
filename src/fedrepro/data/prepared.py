"""The prepared form of a data set: plain arrays that jobs map into memory, and their description.

It is a folder with `dataset.json` and, for each split,

    <split>_x.npy   uint8 or float32 (N, D): one flattened example a row; images channel by
                    channel, each row by row; texts as character codes
    <split>_y.npy   int64 (N,): classes; float32 (N,): targets, where there are no classes
    <split>_g.npy   int32 (N,): the natural group of an example (such as its speaker), -1 if none

Inputs are stored as published, and divided by `scale`, a key of `dataset.json`, when they are used.
The checksum of an array is compared when a job uses it for the first time.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.core import checksummed_files as artifacts
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec

SPLITS = ("train", "validation", "test")
KINDS = ("image", "audio", "text", "features", "regression")
About = Mapping[str, Any]  # what is written into dataset.json
CHANNELS = (1, 3, 4)  # of images: grey, colours, colours and transparency
PREPARED_FILES = (
    "dataset.json",
    *(f"{split}_{part}.npy" for split in SPLITS for part in ("x", "y", "g")),
)


@dataclass(frozen=True)
class Arrays:
    """The arrays of a data set, as its component returns them, by split (train, validation, test).

    x[split]: uint8 or float32 (N, *shape), as stored. y[split]: int64 (N,), positions in `classes`,
    their names; for regression, without classes, float32 (N,) targets. groups[split]: int32 (N,), a
    position in group_names or -1; left out without groups. scale: the divisor that brings inputs to
    [0, 1]; 1 for letters' codes and numbers used unscaled. stand_in: how the data differ from the
    papers' data, a text printed with every result, or empty. notes: remarks for the log. kind:
    image, audio, text, features or regression.
    """

    x: Mapping[str, np.ndarray]
    y: Mapping[str, np.ndarray]
    scale: float
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    stand_in: str = ""
    notes: tuple[str, ...] = ()
    kind: str = "image"
    groups: Mapping[str, np.ndarray] = field(default_factory=dict)
    group_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise FedreproError for arrays of a wrong shape or type, or with NaN or infinity."""
        for fault in self._faults():
            raise _wrong(fault)

    def group(self, split: str) -> np.ndarray:
        """Return the natural group of each example of a split, int32 (N,); -1 without groups."""
        if split in self.groups:
            return self.groups[split]
        return np.full(self.y[split].size, -1, np.int32)

    def _faults(self) -> Iterator[str]:
        if self.kind not in KINDS or bool(self.classes) == (self.kind == "regression"):
            yield f"is of kind '{self.kind}' with {len(self.classes)} classes"
        if self.kind == "image" and last_axis_is_channels(self.shape):
            yield f"has images of shape {self.shape}: move channels before the places"
        for name, split in itertools.product("xy", SPLITS):
            if not isinstance(getattr(self, name).get(split), np.ndarray):
                yield f"has no array {name}['{split}']: give one, which may be empty"
        classes, groups = len(self.classes), len(self.group_names)
        for split in SPLITS:
            x, y, g = self.x[split], self.y[split], self.group(split)
            wanted, expected = (y.size, *self.shape), np.dtype(np.int64 if classes else np.float32)
            if x.dtype not in (np.uint8, np.float32) or x.shape != wanted:
                fix = f"make them uint8 or float32 {wanted}"
                yield f"has {split} inputs {x.dtype} {x.shape}, for {y.size} labels: {fix}"
            if y.dtype != expected or y.ndim != 1:
                fix = "number its classes from 0, and name them in `classes`"
                yield f"has {split} labels {y.dtype} {y.shape}, not {expected} (N,): {fix}"
            if classes and y.size and (y.min() < 0 or y.max() >= classes):
                yield f"has {split} labels that lie outside 0 .. {classes - 1}"
            for what, array in (("inputs", x), ("targets", y)):
                if bad := not_finite(array):
                    yield f"has {split} {what} that are {bad}"
            if g.dtype != np.int32 or g.shape != (y.size,):
                yield f"has {split} groups {g.dtype} {g.shape}, not int32 ({y.size},)"
            if g.size and (g.min() < -1 or g.max() >= groups):
                yield f"has {split} groups that lie outside -1 .. {groups - 1}"


def _wrong(what: str) -> FedreproError:
    return FedreproError(f"the data set {what}; fix what its component returns")


def not_finite(array: np.ndarray) -> str:
    """Return a text on which examples of `array` (N, …) have NaN or infinity; "" if none has."""
    ends = [array.min(), array.max()] if array.size and array.dtype.kind == "f" else []
    if np.isfinite(ends).all():
        return ""
    bad = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
    return f"not finite, in {bad.size} of {len(array)} examples, the first of them number {bad[0]}"


def last_axis_is_channels(shape: tuple[int, ...]) -> bool:
    """Guess from the shape of an image whether it is (height, width, channels)."""
    return len(shape) == 3 and shape[2] in CHANNELS and shape[0] not in CHANNELS


@dataclass(frozen=True)
class Prepared:
    """A prepared data set on disk, for jobs to read: memory-mapped arrays.

    info: the content of dataset.json. token: name and parameters, as in mnist+validation~5000.
    shape: of one example, not flattened. classes: their names by label; empty for regression.
    checksum: the SHA-256 over all arrays. group_names, kind, scale, stand_in: as in `Arrays`.
    """

    folder: Path
    info: Mapping[str, Any]
    _parts: Mapping[str, Mapping[str, np.ndarray]] = field(repr=False)  # x, y, g, by split
    name: str
    token: str
    kind: str
    classes: tuple[str, ...]
    group_names: tuple[str, ...]
    shape: tuple[int, ...]
    scale: float
    checksum: str
    stand_in: str

    def raw(self, split: str) -> np.ndarray:
        """Return inputs of a split as stored, not scaled: uint8 or float32 (N, D), on disk."""
        return self._of("x", split)

    def labels(self, split: str) -> np.ndarray:
        """Return a split's labels int64 (N,), or for regression float32 targets; kept on disk."""
        return self._of("y", split)

    def groups(self, split: str) -> np.ndarray:
        """Return natural groups (as speakers) of a split's examples: int32 (N,), -1 for none."""
        return self._of("g", split)

    def inputs(self, split: str, rows: np.ndarray | None = None) -> np.ndarray:
        """Return the inputs of a split, or of its `rows`, divided by `scale`: float32 (N, D)."""
        raw = self.raw(split)
        scaled = np.array(raw if rows is None else raw[rows], np.float32)
        scaled /= np.float32(self.scale)
        return scaled

    def require_whole(self) -> None:
        """Raise FedreproError if any array differs from its checksum."""
        for part, split in itertools.product(self._parts, SPLITS):
            self._of(part, split)

    def _of(self, part: str, split: str) -> np.ndarray:
        arrays = self._parts[part]
        path = self.folder / _file(split, part)
        known = self.info.get("checksums", {}).get(path.name)
        if known and not artifacts.has_checksum(path, known):
            why = "it is not the file that dataset.json names"
            raise artifacts.corrupt_file_error(path, why, self.folder)
        return arrays[split]


def write_prepared(
    folder: Path | str, arrays: Arrays, spec: Spec, provenance: About, sources: Sequence[About] = ()
) -> None:
    """Write the arrays of data set `spec` into a folder, with dataset.json as the last file.

    `sources` describe the raw files (size, hash, urls), `provenance` how arrays were computed.
    Raises FedreproError if there are no training or no test examples.
    """
    for split in ("train", "test"):
        if not arrays.y[split].size:
            raise _wrong(f"has no {split} examples")
    folder = Path(folder)
    # while arrays are being replaced the folder must not pass for a finished one
    artifacts.target_of(folder / "dataset.json").unlink(missing_ok=True)
    dims = int(np.prod(arrays.shape))
    flat = {split: arrays.x[split].reshape(-1, dims) for split in SPLITS}
    parts = {"x": flat, "y": arrays.y, "g": {split: arrays.group(split) for split in SPLITS}}
    digest, checksums = hashlib.sha256(), {}
    for split, (part, by_split) in itertools.product(SPLITS, parts.items()):
        array, file = by_split[split], _file(split, part)
        checksums[file] = artifacts.write_array(folder / file, array)
        if part != "g" or arrays.group_names:
            digest.update(f"{split} {array.dtype.str} {array.shape};".encode())
            digest.update(np.ascontiguousarray(array).data)
    # of each class; of a data set without classes, all of them as one number
    codes = {s: y if arrays.classes else np.zeros(y.size, int) for s, y in arrays.y.items()}
    most = max(1, len(arrays.classes))
    counts = {split: np.bincount(codes[split], minlength=most).tolist() for split in SPLITS}
    meta = spec.component.meta
    info = {
        **{key: getattr(arrays, key) for key in ("kind", "scale", "stand_in")},
        **{key: list(getattr(arrays, key)) for key in ("shape", "classes", "group_names", "notes")},
        "schema": artifacts.SCHEMA_VERSION,
        "name": spec.name,
        "token": spec.token,
        "version": spec.component.version,
        "counts": counts,
        "sha256": digest.hexdigest(),
        "checksums": checksums,
        "place": artifacts.place_of(folder),
        "dtype": flat["train"].dtype.name,
        **{key: meta[key] for key in ("title", "licence", "citation")},
        "sources": [dict(source) for source in sources],
        "provenance": dict(provenance),
    }
    artifacts.write_json(folder / "dataset.json", info)


def load_prepared(folder: Path | str) -> Prepared:
    """Return the data set that `write_prepared` wrote to `folder`, its arrays memory-mapped."""
    folder = Path(folder)
    info = read_info(folder)
    arrays: dict[str, dict[str, np.ndarray]] = {part: {} for part in "xyg"}
    for part, split in itertools.product(arrays, SPLITS):
        path = folder / _file(split, part)
        try:
            arrays[part][split] = np.lib.format.open_memmap(path, mode="r")
        except Exception as error:  # NumPy reads the header as Python, which can raise anything
            raise artifacts.corrupt_file_error(path, error, folder) from error
    about = {key: info[key] for key in ("name", "token", "kind", "stand_in")}
    about |= {key: tuple(info[key]) for key in ("classes", "group_names", "shape")}
    about |= {"scale": float(info["scale"]), "checksum": info["sha256"]}
    return Prepared(folder, info, arrays, **about)


def read_info(folder: Path) -> dict[str, Any]:
    """Return a folder's dataset.json; FedreproError if its schema is another or it was moved."""
    path = folder / "dataset.json"
    info: dict[str, Any] = artifacts.read_json(path, {"counts": dict}, folder)
    if (found := info.get("schema")) != artifacts.SCHEMA_VERSION:
        raise artifacts.version_error(path, found, "folder")
    artifacts.require_place(folder, info.get("place", ""))
    return info


def _file(split: str, part: str) -> str:
    return f"{split}_{part}.npy"


MOST = 10_000  # that are handed over


def unlabelled(other: Prepared, shape: tuple[int, ...], who: str, rng: RngKey) -> np.ndarray:
    """Draw up to 10,000 training inputs (n, D) of data set `other`, as public data without labels.

    Raises FedreproError, naming the method `who`, if examples are not of `shape`.
    """
    if other.shape != shape:
        own, wanted = (" × ".join(map(str, axes)) for axes in (other.shape, shape))
        fix = f"the networks take {wanted}: name a data set of that shape as public_data"
        raise FedreproError(f"{who}: examples of '{other.token}' have the shape {own}, and {fix}")
    rows = rng.stream("public-inputs").permutation(len(other.labels("train")))[:MOST]
    return other.inputs("train", np.sort(rows))
