"""Digests of arrays, to compare byte for byte with those in golden_bytes.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml

from fedrepro.core import kernel_pinning
from fedrepro.core.registry import KINDS, components

HERE = Path(__file__).parent
BYTES = "golden_bytes.json"
HINT = "if bytes should have changed, run: python tests/unit/test_golden_bytes.py"
PORTABLE = kernel_pinning.active_mode() == kernel_pinning.PORTABLE


def digest(arrays: Iterable[np.ndarray]) -> str:
    """64 bits of the types, shapes and bytes of arrays."""
    found = hashlib.blake2b(digest_size=8)
    for array in arrays:
        plain = np.ascontiguousarray(array)
        found.update(f"{plain.dtype.str}{plain.shape}".encode())
        found.update(plain.tobytes())
    return found.hexdigest()


def places() -> list[Path]:
    return [HERE, *sorted(path for path in (HERE.parent / "papers").iterdir() if path.is_dir())]


@cache
def read_kept(name: str) -> Mapping[str, Any]:
    """What files of this name hold in all folders, read once: not to be changed."""
    read = json.loads if name.endswith(".json") else yaml.safe_load
    files = [folder / name for folder in places() if (folder / name).exists()]
    return {k: v for file in files for k, v in read(file.read_text()).items()}


def write_kept(name: str, lines: Mapping[str, Any]) -> None:
    parts: dict[Path, dict[str, Any]] = {}
    for key, value in lines.items():
        parts.setdefault(_folder(key), {})[key] = value
    for folder, own in parts.items():
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(own, indent=1) + "\n")


def _folder(key: str) -> Path:
    """Of a line on `kind name`; what is on no component is of all."""
    kind, _, name = key.partition(" ")
    item = components(kind).get(name) if kind in KINDS else None
    words = item.fn.__module__.split(".") if item else []
    return HERE.parent / "papers" / words[2] if words[1:2] == ["papers"] else HERE


def kept() -> Mapping[str, str]:
    return read_kept(BYTES)


def of_tiny(folder: Path) -> dict[str, str]:
    """Digests of the columns of every file of metrics, by its path; where it is from aside."""
    root = folder / "results/tiny"
    found = {}
    for path in sorted(root.rglob("*metrics.parquet")):
        table = pq.ParquetFile(path).read()
        columns = [table[name].to_numpy(zero_copy_only=False) for name in table.column_names]
        texts = [c.astype("U") if c.dtype == object else c for c in columns]
        found[str(path.parent.relative_to(root))] = digest(texts)
    return found
