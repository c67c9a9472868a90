"""Spoiled files of publishers and odd settings of stages: all is done, or refused in one sentence.

The stages run as the workflow runs them, on a few digits. Artifacts are spoiled by test_damage.py.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import jobs
import pytest
from fuzz import LONGEST, WHOLE, done_or_said, settings_of, some, spoiled
from hypothesis import event, given
from hypothesis import strategies as st
from test_datasets import arrays_of, write_mnist
from test_published_forms import GUTENBERG, speech, tar_of, write_ham, zip_of

from fedrepro.components.datasets.ham10000 import FILES
from fedrepro.components.datasets.mnist_and_fashion_mnist import TRAIN
from fedrepro.components.datasets.speech_commands import FILE
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.data import archive
from fedrepro.data.archive import decompress_file, unpack_archive

TEXTS = {"a/b.txt": b"good\n" * 40, "c.txt": b"more\n", "data/x.wav": bytes(range(256))}


PACKED = [
    tar_of(TEXTS), tar_of(TEXTS, "w:gz"), tar_of(TEXTS, "w:xz"), zip_of(TEXTS),
    zip_of(TEXTS, zipfile.ZIP_DEFLATED), gzip.compress(b"text" * 99), lzma.compress(b"text" * 99),
]  # fmt: skip


@some(300)
@given(st.sampled_from(PACKED), st.data())
def test_a_spoiled_archive_is_unpacked_or_refused(tmp_path, good, data):
    path = tmp_path / "letters"
    path.write_bytes(data.draw(spoiled(good)))

    def unpack():
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


def photograph(packed, other=None):
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
def raw(tmp_path_factory):
    made = tmp_path_factory.mktemp("raw")
    write_mnist(made, 60, 20)
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


DATA = "digits+test~1600"  # 197 examples to train on
PARTITION = "homogeneous+clients~3"
LOCAL = "models/local.parquet"  # in a folder where no other job writes
# nothing that takes long when it is legal
FEW = [value for value in WHOLE if value <= 3 or value > 10**6]
ODD_KINDS = ("partition", "model", "training", "graph")
KINDS = {kind: list(components(kind).values()) for kind in ODD_KINDS}
METHODS = list(components("method").values())
DATASETS = components("dataset")
GENERATED = [DATASETS[name] for name in ("digits", "p2p_nodes", "shapes") if name in DATASETS]


def stage(*words: object) -> None:
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            status = jobs.stage(*words)
        except (FedreproError, ValueError, AttributeError):  # no token, which a job does not have
            event("no job")
            return
    lines = said.getvalue().splitlines()
    assert status in (0, 2)
    if status == 2:
        assert lines[-1].startswith("fedrepro: ")
        assert len(lines[-1]) < LONGEST
    event("done" if status == 0 else "said")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("stages")
    with contextlib.redirect_stderr(io.StringIO()):
        jobs.divided(made, PARTITION, dataset=DATA)
        words = ["train", *scenario(made), "--clients", "0-2", "--out", made / LOCAL]
        assert jobs.stage(*words) == 0
    return made


def scenario(made: Path, model: str = "mlp+hidden~3", training: str = "adam+epochs~1") -> list:
    return [
        "--dataset", DATA, "--partition", PARTITION, "--model", model, "--training", training,
        "--data", made / "data", "--members", made / "members", "--trials", "0-1",
        "--timings", made / "t.parquet",
    ]  # fmt: skip


def token_of(chosen) -> str | None:
    """The token of a component with these values, or None where planning refuses them."""
    component, values = chosen
    try:
        return component.spec(values).token
    except FedreproError:
        event("refused when planned")
        return None


def of_peers(folder: Path) -> list:
    words = [*scenario(folder), "--out", folder / "m.parquet"]
    return [*words, "--confusion", folder / "c.parquet", "--nodes", folder / "n.pt"]


ON_GRAPH = {"rows": ["0.5_0.5", "1_0"], "csv": "one-way"}
ODD = {
    "dataset": settings_of(GENERATED, WHOLE),
    "partition": settings_of(KINDS["partition"], WHOLE),
    "model": settings_of(KINDS["model"], FEW),
    "training": settings_of(KINDS["training"], FEW, epochs=1),
    "graph": settings_of(KINDS["graph"], FEW, **ON_GRAPH),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.nightly if k == "dataset" else ()) for k in ODD]
)
@some(80)
@given(st.data())
def test_odd_settings_of_components(folder, kind, data):
    if not (token := token_of(data.draw(ODD[kind]))) or "@" in token:  # jobs have one setting
        return
    out = ["--out", folder / "other.parquet"]
    if kind == "dataset":
        stage("prepare", "--dataset", token, "--out", folder / "other")
    elif kind == "partition":
        words = ["--partition", token, "--data", folder / "data", "--trials", "0-1"]
        stage("partition", *words, *out)
    elif kind == "graph":
        stage("peer", *of_peers(folder), "--method", "gossip_sgd+rounds~1", "--graph", token)
    else:
        stage("train", *scenario(folder, **{kind: token}), "--clients", "0-2", *out)


@pytest.mark.nightly
@some(120)
@given(settings_of(METHODS, FEW, rounds=2, steps=2))
def test_odd_settings_of_methods(folder, chosen):
    if not (token := token_of(chosen)):
        return
    common = [*scenario(folder), "--out", folder / "m.parquet", "--method", token]
    if chosen[0].meta["kind"] == "federated":
        stage("federate", *common, "--global-model", folder / "g.pt")
    elif chosen[0].meta["kind"] == "peer":
        stage("peer", *of_peers(folder), "--method", token, "--graph", "ring")
    else:
        stage("aggregate", *common, "--local", folder / LOCAL)
