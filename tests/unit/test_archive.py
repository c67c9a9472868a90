"""Archives: told apart by content, unpacked into their own folder, refused if they leave it."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import tarfile
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from fedrepro.core.errors import FedreproError
from fedrepro.data import archive
from fedrepro.data.archive import decompressed, unpacked

NAME, MOST = "letters", 1_000_000


@pytest.fixture(autouse=True, params=["filters", "no filters"])
def python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python as it is, and as it was before 3.11.4."""
    if request.param == "no filters":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)


TEXT = b"good\n" * 1000


def tar_of(path: Path, mode: str, *members: tarfile.TarInfo, text: bytes = TEXT) -> Path:
    with tarfile.open(path, mode) as archive:
        for member in members:
            member.size = len(text) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(text) if member.isreg() else None)
    return path


def zip_of(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, TEXT)
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.fixture(autouse=True)
def stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table states MOST bytes for every file."""
    monkeypatch.setattr(archive, "largest_unpacked", lambda name, path: MOST)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary folders are made here, so that a test sees what stays of them."""
    home = tmp_path / "temporary"
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    return home


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_the_packing_is_told_by_content_not_by_name(tmp_path: Path, places: Path, mode: str):
    path = tar_of(tmp_path / "any.tar", mode, tarfile.TarInfo("a/b.txt"))
    with unpacked(NAME, path) as folder:
        assert (folder / "a" / "b.txt").read_bytes() == TEXT
        assert folder.parent == places
    assert not list(places.iterdir())


def test_only_what_is_wanted_is_unpacked(tmp_path: Path):
    members = [tarfile.TarInfo("a.txt"), tarfile.TarInfo("b.jpg")]
    for path in (
        tar_of(tmp_path / "x.tar", "w:gz", *members),
        zip_of(tmp_path / "x.zip", "a.txt", "b.jpg"),
    ):
        with unpacked(NAME, path, lambda name: name.endswith(".jpg")) as folder:
            assert [found.name for found in folder.iterdir()] == ["b.jpg"]


def test_what_macos_adds_is_not_there(tmp_path: Path):
    added = ["__MACOSX/", "__MACOSX/._a.txt", "._a.txt", "d/._b.txt", "d/.DS_Store", ".DS_Store"]
    names = ["a.txt", *added, "d/b.txt"]
    for path in (
        tar_of(tmp_path / "x.tar", "w:gz", *map(tarfile.TarInfo, names)),
        zip_of(tmp_path / "x.zip", *names),
    ):
        with unpacked(NAME, path) as folder:
            found = sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file())
            assert found == ["a.txt", "d/b.txt"]


def device() -> tarfile.TarInfo:
    member = tarfile.TarInfo("null")
    member.type = tarfile.CHRTYPE
    return member


@pytest.mark.parametrize(
    "members",
    [
        [tarfile.TarInfo("good.txt"), tarfile.TarInfo("../escaped.txt")],
        [tarfile.TarInfo("a/../../escaped.txt")],
        [link("out", ".."), tarfile.TarInfo("out/escaped.txt")],
        [link("out", "/etc/passwd")],
        [link("out", "../../secret", tarfile.LNKTYPE)],
        [device()],
    ],
)
def test_a_tar_that_leaves_its_folder_is_refused_and_nothing_stays(
    tmp_path: Path, places: Path, members: list[tarfile.TarInfo]
):
    path = tar_of(tmp_path / "bad.tar", "w:xz", *members)
    with pytest.raises(FedreproError, match=r"bad.tar cannot be read"), unpacked(NAME, path):
        pytest.fail("it was unpacked")
    assert not list(tmp_path.rglob("escaped.txt"))
    assert not list(places.iterdir())


def test_an_absolute_path_lands_inside_the_folder(tmp_path: Path, places: Path):
    member = tarfile.TarInfo(str(tmp_path / "absolute.txt"))
    with unpacked(NAME, tar_of(tmp_path / "x.tar", "w", member)) as folder:
        assert [path.name for path in folder.rglob("*.txt")] == ["absolute.txt"]
    assert not (tmp_path / "absolute.txt").exists()


@pytest.mark.parametrize("name", ["../escaped.txt", "a/../../escaped.txt", "/escaped.txt"])
def test_a_zip_that_leaves_its_folder_is_refused_and_nothing_stays(
    tmp_path: Path, places: Path, name: str
):
    path = zip_of(tmp_path / "bad.zip", name)
    with pytest.raises(FedreproError, match="lies outside of it"), unpacked(NAME, path):
        pytest.fail("it was unpacked")
    assert not list(tmp_path.rglob("escaped.txt"))
    assert not list(places.iterdir())


def test_damaged_and_absent_archives_are_named(tmp_path: Path, places: Path):
    good = {
        "a.tar.gz": tar_of(tmp_path / "a.tar.gz", "w:gz", tarfile.TarInfo("a.txt")).read_bytes(),
        "a.tar.xz": tar_of(tmp_path / "a.tar.xz", "w:xz", tarfile.TarInfo("a.txt")).read_bytes(),
        "a.zip": zip_of(tmp_path / "a.zip", "a.txt").read_bytes(),
    }
    for name, data in good.items():
        for bad in (data[: len(data) // 2], b"<html>not here</html>", b""):
            (tmp_path / name).write_bytes(bad)
            with (
                pytest.raises(FedreproError, match=f"{name} cannot be read"),
                unpacked(NAME, tmp_path / name),
            ):
                pytest.fail("it was unpacked")
    with (
        pytest.raises(FedreproError, match=r"none.tar cannot be read"),
        unpacked(NAME, tmp_path / "none.tar"),
    ):
        pytest.fail("it was unpacked")
    assert not list(places.iterdir())


# ------------------------------------------------------------------------------ how large it gets


def bomb_of_newlines(path: Path, opener: Callable[..., IO[bytes]], mebibytes: int = 300) -> Path:
    """Compressed newlines, many times what is stated."""
    with opener(path, "wb") as file:
        for _ in range(mebibytes):
            file.write(b"\n" * 2**20)
    return path


def newlines_in_a_tar(path: Path) -> Path:
    text = io.BytesIO(b"\n" * (MOST + 1))
    with tarfile.open(path, "w:xz") as file:
        member = tarfile.TarInfo("a.txt")
        member.size = MOST + 1
        file.addfile(member, text)
    return path


def sparse_tar(path: Path) -> Path:
    """A member of an exabyte of which the archive holds 512 bytes."""
    member = tarfile.TarInfo("a.txt")
    member.size = 512
    member.pax_headers = {
        "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(10**18),
        "GNU.sparse.name": "a.txt",
    }  # fmt: skip
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as file:
        file.addfile(member, io.BytesIO(b"1\n0\n0\n".ljust(512, b"\0")))
    return path


def newlines_in_a_zip(path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in "abc":
            file.writestr(name, b"\n" * (MOST // 2))
    return path


@pytest.mark.parametrize("make", [newlines_in_a_tar, sparse_tar, newlines_in_a_zip])
def test_an_archive_that_is_larger_than_stated_is_refused(
    tmp_path: Path, places: Path, make: Callable[[Path], Path]
):
    path = make(tmp_path / "bomb")
    assert path.stat().st_size < MOST / 20
    with (
        pytest.raises(FedreproError, match="unpacks to more than 1,000,000 bytes"),
        unpacked(NAME, path),
    ):
        pytest.fail("it was unpacked")
    assert not list(places.iterdir())


def test_members_that_are_not_wanted_count_in_a_tar_and_not_in_a_zip(tmp_path: Path, places: Path):
    with (
        pytest.raises(FedreproError, match="unpacks to more than"),
        unpacked(NAME, newlines_in_a_tar(tmp_path / "a"), lambda name: False),
    ):
        pytest.fail("it was unpacked")
    with unpacked(NAME, newlines_in_a_zip(tmp_path / "b"), lambda name: name == "a") as folder:
        assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("opener", [gzip.open, bz2.open, lzma.open])
def test_a_file_that_is_larger_than_stated_is_refused_before_it_fills_the_memory(
    tmp_path: Path, opener: Callable[..., IO[bytes]]
):
    path = bomb_of_newlines(tmp_path / "bomb", opener, mebibytes=32)
    tracemalloc.start()
    try:
        with (
            pytest.raises(FedreproError, match="unpacks to more than 1,000,000 bytes"),
            decompressed(NAME, path) as stream,
        ):
            stream.read()
        assert tracemalloc.get_traced_memory()[1] < 16 * MOST  # a dictionary of xz has 8 MiB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("opener", [gzip.open, bz2.open, lzma.open, open])
def test_a_file_of_exactly_the_stated_size_is_read(
    tmp_path: Path, opener: Callable[..., IO[bytes]]
):
    with opener(tmp_path / "a", "wb") as file:
        file.write(b"a" * MOST)
    with decompressed(NAME, tmp_path / "a") as stream:
        assert stream.read() == b"a" * MOST


def test_an_encrypted_zip_is_a_sentence(tmp_path: Path):
    data = bytearray(zip_of(tmp_path / "a.zip", "a.txt").read_bytes())
    for start, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(start) + flags] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    with (
        pytest.raises(FedreproError, match=r"its member 'a\.txt' is encrypted"),
        unpacked(NAME, tmp_path / "a.zip"),
    ):
        pytest.fail("it was unpacked")


def test_a_disk_that_is_too_small_for_an_archive_is_not_its_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_args, **_more):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tar_of(tmp_path / "a.tar", "w", tarfile.TarInfo("a.txt"))
    with monkeypatch.context() as patch:
        patch.setattr(tarfile.TarFile, "extract", full)
        with pytest.raises(FedreproError, match="the disk is full"), unpacked(NAME, path):
            pytest.fail("it was unpacked")
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(FedreproError, match="set TMPDIR"), unpacked(NAME, path):
        pytest.fail("it was unpacked")
