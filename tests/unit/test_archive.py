"""Archives: told apart by content, unpacked into their own folder, refused if they leave it."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import shutil
import tarfile
import tempfile
import tracemalloc
import zipfile
from unittest.mock import Mock

import pytest

from fedrepro.core.errors import FedreproError
from fedrepro.data import archive
from fedrepro.data.archive import decompress_file, unpack_archive

NAME, MOST = "letters", 1_000_000
TEXT = b"good\n" * 1000


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """Temporary folders are made here; the table states MOST bytes for every file."""
    monkeypatch.setattr(archive, "largest_unpacked", lambda name, path: MOST)
    home = tmp_path / "temporary"
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    return home


def tar_of(path, *members, mode="w:gz"):
    with tarfile.open(path, mode) as file:
        for member in (tarfile.TarInfo(m) if isinstance(m, str) else m for m in members):
            member.size = len(TEXT) if member.isreg() else 0
            file.addfile(member, io.BytesIO(TEXT) if member.isreg() else None)
    return path


def zip_of(path, *names):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in names:
            file.writestr(name, TEXT)
    return path


def member(name, kind, target=""):
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


def refuse(path, words, places, *wanted):
    with pytest.raises(FedreproError, match=words), unpack_archive(NAME, path, *wanted):
        pytest.fail("it was unpacked")
    assert not list(places.iterdir())


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_the_packing_is_told_by_content_and_nothing_stays(tmp_path, places, mode):
    path = tar_of(tmp_path / "any.tar", "a/b.txt", mode=mode)
    with unpack_archive(NAME, path) as folder:
        assert (folder / "a" / "b.txt").read_bytes() == TEXT
        assert folder.parent == places
    assert not list(places.iterdir())


@pytest.mark.parametrize("make", [tar_of, zip_of])
def test_what_is_wanted_is_unpacked_and_what_macos_adds_is_not(tmp_path, make):
    added = ["__MACOSX/", "__MACOSX/._a.txt", "._a.txt", "d/._b.txt", "d/.DS_Store", ".DS_Store"]
    path = make(tmp_path / "x", "a.txt", *added, "d/b.txt", "c.jpg")
    for wanted, names in ((lambda _: True, ["a.txt", "b.txt", "c.jpg"]), (str.isupper, [])):
        with unpack_archive(NAME, path, wanted) as folder:
            assert sorted(f.name for f in folder.rglob("*") if f.is_file()) == names


@pytest.mark.parametrize(
    "members",
    [
        [member("out", tarfile.SYMTYPE, ".."), "out/escaped.txt"],
        [member("out", tarfile.SYMTYPE, "/etc/passwd")],
        [member("out", tarfile.LNKTYPE, "../../secret")],
        [member("null", tarfile.CHRTYPE)],
    ],
)
def test_a_tar_that_leaves_its_folder_is_refused(tmp_path, places, members):
    refuse(tar_of(tmp_path / "bad.tar", *members), r"bad\.tar cannot be read", places)
    assert not list(tmp_path.rglob("escaped.txt"))


@pytest.mark.parametrize("make", [tar_of, zip_of])
@pytest.mark.parametrize("name", ["../escaped.txt", "a/../../escaped.txt", "/escaped.txt"])
def test_a_path_outside_of_the_folder_is_refused(tmp_path, places, make, name):
    refuse(make(tmp_path / "bad", name), "is outside the destination", places)
    assert not list(tmp_path.rglob("escaped.txt"))


@pytest.mark.parametrize("make", [tar_of, zip_of])
def test_damaged_absent_and_encrypted_archives_are_named(tmp_path, places, make):
    path = make(tmp_path / "letters", "a.txt")
    good = path.read_bytes()
    for bad in (good[: len(good) // 2], b"<html>not here</html>", b""):
        path.write_bytes(bad)
        refuse(path, "letters cannot be read", places)
    refuse(tmp_path / "none", "none cannot be read", places)
    data = bytearray(zip_of(path, "a.txt").read_bytes())
    for start, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(start) + flags] |= 1
    path.write_bytes(data)
    refuse(path, r"a\.txt.* is encrypted", places)


def newlines_in_a_tar(path):
    with tarfile.open(path, "w:xz") as file:
        large = tarfile.TarInfo("a.txt")
        large.size = MOST + 1
        file.addfile(large, io.BytesIO(b"\n" * (MOST + 1)))
    return path


def sparse_tar(path):
    """A member of an exabyte, for which the archive holds 512 bytes."""
    large = tarfile.TarInfo("a.txt")
    large.size = 512
    own = {"major": "1", "minor": "0", "realsize": str(10**18), "name": "a.txt"}
    large.pax_headers = {f"GNU.sparse.{key}": value for key, value in own.items()}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as file:
        file.addfile(large, io.BytesIO(b"1\n0\n0\n".ljust(512, b"\0")))
    return path


def header_of_newlines(path):
    """What stands before a member is read into memory, and counts as well."""
    large = tarfile.TarInfo("a.txt")
    large.pax_headers = {"comment": "\n" * (2 * MOST)}
    with tarfile.open(path, "w:xz", format=tarfile.PAX_FORMAT) as file:
        file.addfile(large)
    return path


def newlines_in_a_zip(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in "abc":
            file.writestr(name, b"\n" * (MOST // 2))
    return path


@pytest.mark.parametrize(
    "make", [newlines_in_a_tar, sparse_tar, header_of_newlines, newlines_in_a_zip]
)
def test_an_archive_that_is_larger_than_stated_is_refused(tmp_path, places, make):
    path = make(tmp_path / "bomb")
    assert path.stat().st_size < MOST / 20
    refuse(path, "unpacks to more than 1,000,000 bytes", places)


def test_members_that_are_not_wanted_count_in_a_tar_and_not_in_a_zip(tmp_path, places):
    refuse(newlines_in_a_tar(tmp_path / "a"), "unpacks to more than", places, str.isupper)
    with unpack_archive(NAME, newlines_in_a_zip(tmp_path / "b"), "a".__eq__) as folder:
        assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("opener", [gzip.open, bz2.open, lzma.open, open])
def test_a_file_is_read_up_to_the_stated_size_and_does_not_fill_the_memory(tmp_path, opener):
    with opener(tmp_path / "a", "wb") as file:
        file.write(b"a" * MOST)
    with decompress_file(NAME, tmp_path / "a") as stream:
        assert stream.read() == b"a" * MOST
    with opener(tmp_path / "bomb", "wb") as file:
        for _ in range(32):
            file.write(b"\n" * 2**20)
    tracemalloc.start()
    try:
        with (
            pytest.raises(FedreproError, match="unpacks to more than 1,000,000 bytes"),
            decompress_file(NAME, tmp_path / "bomb") as stream,
        ):
            stream.read()
        assert tracemalloc.get_traced_memory()[1] < 16 * MOST  # a dictionary of xz has 8 MiB
    finally:
        tracemalloc.stop()


def test_a_disk_that_is_too_small_for_an_archive_is_not_its_fault(tmp_path, places, monkeypatch):
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    path = tar_of(tmp_path / "a.tar", "a.txt")
    for owner, name, words in (
        (shutil, "copyfileobj", "the disk is full"),
        (tempfile, "mkdtemp", "set TMPDIR"),
    ):
        monkeypatch.setattr(owner, name, full)
        refuse(path, words, places)
