"""Files in which much is wrong, artifacts and those of publishers: read as they were, or said.

Single flipped bits in every kind of file are looked for by test_damage.py.
"""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fuzz import done_or_said, some, spoiled
from hypothesis import given
from hypothesis import strategies as st
from test_datasets import small_arrays, write_idx
from test_published_forms import GUTENBERG, arrays_of, speech, write_ham

from fedrepro.components.datasets.ham10000 import FILES
from fedrepro.components.datasets.mnist import TEST, TRAIN
from fedrepro.components.datasets.speech_commands import FILE
from fedrepro.core import artifacts
from fedrepro.core.artifacts import read_table, write_json, write_table
from fedrepro.core.registry import parse_token
from fedrepro.core.serialization import (
    load_state,
    model_rows,
    read_models,
    save_state,
    write_models,
)
from fedrepro.data import archive
from fedrepro.data.archive import decompress_file, unpack_archive
from fedrepro.data.prepared import SPLITS, load_prepared, write_prepared
from fedrepro.data.raw_files import read_dataset_table
from fedrepro.numbers.exhibit_files import open_exhibit, read_claims, write_claims, write_exhibit
from fedrepro.record.site.report_data import maps_of

ROOT = Path(__file__).parents[2]
Reads = dict[str, Callable[[], object]]

# ------------------------------------------------------------------------------------ artifacts

ARTIFACTS = [
    "t.parquet", "m.parquet", "s.pt", "data/dataset.json", "data/train_x.npy", "data/test_y.npy",
    "data/validation_g.npy", "tiny/p/f.csv", "tiny/p/f.choice.csv", "tiny/p/f.json", "maps.json",
    "tiny/p/claims.csv", "tiny/p/claims.json",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """One file of each kind of artifact."""
    made = tmp_path_factory.mktemp("artifacts")
    rng = np.random.default_rng(0)
    write_table(made / "t.parquet", {"x": rng.random(50), "y": ["a"] * 50}, "metrics", {"seed": 0})
    tensors = {"weight0": rng.random((4, 3, 2), np.float32)}
    rows = model_rows([0, 0, 1, 1], [0, 1, 0, 1], [5] * 4, tensors)
    write_models(made / "m.parquet", rows, {"seed": 0})
    save_state(made / "s.pt", {"round": 3, "weights": [1.0, 2.0]})
    write_prepared(made / "data", small_arrays(), parse_token("dataset", "digits"), {})
    base = made / "tiny/p/f"
    write_table(f"{base}.metrics.parquet", {"x": [1]}, "metrics", {})
    texts = {".csv": b"clients,method,mean\n2,a,0.5\n", ".choice.csv": b"method,value\na,1\n"}
    about = {"key": "p/f", "scale": "tiny", "schema": artifacts.SCHEMA_VERSION}
    write_exhibit(str(base), about, texts)
    write_claims(made / "tiny/p/claims.csv", "claim,verdict\nP1,holds\n")
    write_json(made / "maps.json", {"schema": 2, "partitions": [{"image": "a.svg"}]})
    return made


def reads(made: Path) -> Reads:
    """How each artifact is read, as something that can be compared."""

    def data() -> object:
        prepared = load_prepared(made / "data")
        parts = (prepared.raw, prepared.labels, prepared.groups)
        return prepared.info, [part(split).tobytes() for split in SPLITS for part in parts]

    def exhibit() -> object:
        files = open_exhibit(made / "tiny", "p/f", "tiny")
        return files.about, files.table(".csv").to_csv(), files.table(".choice.csv").to_csv()

    def models() -> object:
        found = read_models([made / "m.parquet"], [0, 1])
        return [(m.examples.tolist(), m.tensors["weight0"].tobytes()) for m in found.values()]

    return {
        "t.parquet": lambda: read_table(made / "t.parquet", "metrics").to_pylist(),
        "m.parquet": models,
        "s.pt": lambda: load_state(made / "s.pt"),
        "data": data,
        "tiny/p/f": exhibit,
        "tiny/p/claims": lambda: read_claims(made / "tiny/p/claims.csv"),
        "maps.json": lambda: maps_of(made),
    }


@some(300)
@given(st.sampled_from(ARTIFACTS), st.data())
def test_a_spoiled_artifact_is_read_as_it_was_or_refused(folder, name, data):
    path = folder / name
    good = path.read_bytes()
    read = next(read for start, read in reads(folder).items() if name.startswith(start))
    others = st.sampled_from(ARTIFACTS).map(lambda other: (folder / other).read_bytes())
    bad = data.draw(st.one_of(spoiled(good), spoiled(good, most=30), others, st.binary()))
    artifacts.forget()
    expected = read()
    path.write_bytes(bad)
    artifacts.forget()
    try:
        found = done_or_said(read)
    finally:
        path.write_bytes(good)
    assert found is None or found == expected


# ----------------------------------------------------------------------------------- publishers

TEXTS = {"a/b.txt": b"good\n" * 40, "c.txt": b"more\n", "data/x.wav": bytes(range(256))}


def tar_of(members: dict[str, bytes], mode: str = "w") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as file:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def zip_of(members: dict[str, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", packing) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return packed.getvalue()


PACKED = [
    tar_of(TEXTS), tar_of(TEXTS, "w:gz"), tar_of(TEXTS, "w:xz"), zip_of(TEXTS),
    zip_of(TEXTS, zipfile.ZIP_DEFLATED), gzip.compress(b"text" * 99), lzma.compress(b"text" * 99),
]  # fmt: skip


@some(300)
@given(st.sampled_from(PACKED), st.data())
def test_a_spoiled_archive_is_unpacked_or_refused(tmp_path, good, data):
    path = tmp_path / "letters"
    path.write_bytes(data.draw(spoiled(good)))

    def unpack() -> None:
        with unpack_archive("letters", path) as folder:
            assert sum(file.stat().st_size for file in folder.rglob("*")) < 10**6
        with decompress_file("letters", path) as stream:
            stream.read()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "largest_unpacked", lambda name, path: 10**5)
        done_or_said(unpack)


PLAY = b"ACT I\nFOOL\tcaf\nFOOL\tagain\n\tmore\nSCENE\nKING\tx\nKING\ty y\n"
TINY = b"Fool:\nhello there\n\nKing:\nwhat\n\nFool:\nno\n\nKing:\nyes\n"


CLIPS = speech()
CLIP = next(iter(CLIPS))


def photograph(packed: bytes, other: bytes | None = None) -> bytes:
    """The first one in a zip, or the zip with another one in its place."""
    with zipfile.ZipFile(io.BytesIO(packed)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    first = next(iter(members))
    return members[first] if other is None else zip_of({**members, first: other})


HAM, PHOTOGRAPHS = "ham10000+per_class~20+size~16+source~publisher", FILES["publisher"]
# token, file, the part of it that is spoiled, and the file with such a part
FORMS: dict[str, tuple[str, str, Callable[[bytes], bytes], Callable[[bytes, bytes], bytes]]] = {
    "plays": (
        "shakespeare", "plays.tar.xz", lambda _: PLAY, lambda part, _: tar_of({"p/a.txt": part}),
    ),
    "tiny": (
        "shakespeare+source~tiny", "tiny_shakespeare.txt.xz", lambda _: TINY,
        lambda part, _: lzma.compress(part),
    ),
    "leaf": (
        "shakespeare+source~leaf", "1994-01-100.zip", lambda _: GUTENBERG.encode(),
        lambda part, _: zip_of({"100.txt": part}),
    ),
    **{
        name: (
            "mnist", name, lambda whole: gzip.decompress(whole)[:40],
            lambda part, whole: gzip.compress(part + gzip.decompress(whole)[40:]),
        )
        for name in TRAIN
    },
    "clips": (
        "speech_commands", FILE, lambda _: CLIPS[CLIP][:60],
        lambda part, _: tar_of({**CLIPS, CLIP: part + CLIPS[CLIP][60:]}),
    ),
    "photographs": (HAM, PHOTOGRAPHS[0], photograph, lambda part, whole: photograph(whole, part)),
    "table of photographs": (HAM, PHOTOGRAPHS[2], lambda whole: whole, lambda part, _: part),
}  # fmt: skip
SLOW = ("clips", "photographs", "table of photographs")


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> Path:
    """Small files of all these publishers."""
    made = tmp_path_factory.mktemp("raw")
    for (images, labels), count in ((TRAIN, 60), (TEST, 20)):
        write_idx(made / images, np.zeros((count, 28, 28), np.uint8))
        write_idx(made / labels, (np.arange(count) % 10).astype(np.uint8))
    write_ham(made)
    for _, file, part_of, whole_of in FORMS.values():
        if not (made / file).exists():
            (made / file).write_bytes(whole_of(part_of(b""), b""))
    return made


@pytest.mark.parametrize(
    "form", [pytest.param(f, marks=pytest.mark.nightly if f in SLOW else ()) for f in FORMS]
)
@some(40)
@given(st.data())
def test_spoiled_files_of_publishers_are_read_or_refused(raw, form, data):
    token, file, part_of, whole_of = FORMS[form]
    good = (raw / file).read_bytes()
    (raw / file).write_bytes(whole_of(data.draw(spoiled(part_of(good))), good))
    try:
        done_or_said(lambda: arrays_of(token, raw))
    finally:
        (raw / file).write_bytes(good)


@some(60)
@given(spoiled((ROOT / "config/datasets.csv").read_bytes()))
def test_a_spoiled_table_of_data_files_is_read_or_refused(tmp_path, text):
    (tmp_path / "datasets.csv").write_bytes(text)
    done_or_said(lambda: read_dataset_table(tmp_path / "datasets.csv"))
