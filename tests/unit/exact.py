"""Digests of arrays, to compare byte for byte with those in golden_bytes.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fedrepro.core import arithmetic

BYTES = Path(__file__).parent / "golden_bytes.json"
HINT = "if bytes should have changed, run: python tests/unit/test_golden_bytes.py"
PORTABLE = arithmetic.taken() == arithmetic.PORTABLE


def digest(arrays: Iterable[np.ndarray]) -> str:
    """64 bits of the types, shapes and bytes of arrays."""
    found = hashlib.blake2b(digest_size=8)
    for array in arrays:
        plain = np.ascontiguousarray(array)
        found.update(f"{plain.dtype.str}{plain.shape}".encode())
        found.update(plain.tobytes())
    return found.hexdigest()


def kept() -> dict[str, str]:
    """The digests in the repository, by what they are of."""
    found: dict[str, str] = json.loads(BYTES.read_text())
    return found


def of_tiny(folder: Path) -> dict[str, str]:
    """Digests of the columns of every file of metrics, by its path; where it is from aside."""
    import pyarrow.parquet as pq

    root = folder / "results/tiny"
    found = {}
    for path in sorted(root.rglob("*metrics.parquet")):
        table = pq.ParquetFile(path).read()
        columns = [table[name].to_numpy(zero_copy_only=False) for name in table.column_names]
        texts = [c.astype("U") if c.dtype == object else c for c in columns]
        found[str(path.parent.relative_to(root))] = digest(texts)
    return found
