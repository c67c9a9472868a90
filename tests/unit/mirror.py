"""The mirror of the real data, where there is one: raw files under the names that we give them."""

from __future__ import annotations

import functools
import lzma
import os
import shutil
import tempfile
from pathlib import Path

import once
import pytest

from fedrepro.core.registry import parse_token
from fedrepro.data.raw_files import forms, raw_files

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "config" / "datasets.csv"
MIRROR = Path(os.environ.get("FEDREPRO_MIRROR") or ROOT.parent / "shared" / "data")
FOLDERS = ("cifar-10", "fashion-mnist", "ham10000", "mnist", "shakespeare", "speech-commands")
IS_HERE = all((MIRROR / folder).is_dir() for folder in FOLDERS)
SLOW = ("cifar10", "ham10000")  # to unpack, to resize

needs_mirror = pytest.mark.skipif(not IS_HERE, reason="the mirror of the real data is not here")


def link_plain(token, folder):
    """Links to the mirror's files of a data set, in `folder`; what is packed by xz is unpacked."""
    spec = parse_token("dataset", token)
    for file in raw_files(spec):
        places = [MIRROR / row.place for row in forms(spec.name, file, TABLE)]
        found = next(place for place in places if place.is_file()).resolve()
        (folder / file).symlink_to(without_xz(found))
    return folder


@functools.lru_cache(maxsize=3)
def real_arrays(token):
    """What the component makes of the mirror's files; the last few are kept for other tests."""
    spec = parse_token("dataset", token)
    return (
        once.value(f"datasets/{token}", lambda: _made(spec)) if spec.name in SLOW else _made(spec)
    )


def _made(spec):
    with tempfile.TemporaryDirectory() as folder:
        raw = link_plain(spec.token, Path(folder))
        return spec.component.fn(raw, **spec.values)  # type: ignore[no-any-return]


def without_xz(path):
    """The file that was packed by xz, which takes ten seconds to unpack; any other as it is."""
    if path.suffix != ".xz":
        return path

    def fill(folder):
        with lzma.open(path) as packed, (folder / path.stem).open("wb") as plain:
            shutil.copyfileobj(packed, plain)

    return once.folder(f"plain/{path.name}", fill) / path.stem
