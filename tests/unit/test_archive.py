"""Archives: told apart by content, unpacked into their own folder, refused if they leave it."""

from __future__ import annotations

import io
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest

from fedrepro.data.archive import unpacked
from fedrepro.errors import FedreproError

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
    with unpacked(path) as folder:
        assert (folder / "a" / "b.txt").read_bytes() == TEXT
        assert folder.parent == places
    assert not list(places.iterdir())


def test_only_what_is_wanted_is_unpacked(tmp_path: Path):
    members = [tarfile.TarInfo("a.txt"), tarfile.TarInfo("b.jpg")]
    for path in (
        tar_of(tmp_path / "x.tar", "w:gz", *members),
        zip_of(tmp_path / "x.zip", "a.txt", "b.jpg"),
    ):
        with unpacked(path, lambda name: name.endswith(".jpg")) as folder:
            assert [found.name for found in folder.iterdir()] == ["b.jpg"]


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
    with pytest.raises(FedreproError, match=r"bad.tar cannot be read"), unpacked(path):
        pytest.fail("it was unpacked")
    assert not list(tmp_path.rglob("escaped.txt"))
    assert not list(places.iterdir())


def test_an_absolute_path_lands_inside_the_folder(tmp_path: Path, places: Path):
    member = tarfile.TarInfo(str(tmp_path / "absolute.txt"))
    with unpacked(tar_of(tmp_path / "x.tar", "w", member)) as folder:
        assert [path.name for path in folder.rglob("*.txt")] == ["absolute.txt"]
    assert not (tmp_path / "absolute.txt").exists()


@pytest.mark.parametrize("name", ["../escaped.txt", "a/../../escaped.txt", "/escaped.txt"])
def test_a_zip_that_leaves_its_folder_is_refused_and_nothing_stays(
    tmp_path: Path, places: Path, name: str
):
    path = zip_of(tmp_path / "bad.zip", name)
    with pytest.raises(FedreproError, match="lies outside of it"), unpacked(path):
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
                unpacked(tmp_path / name),
            ):
                pytest.fail("it was unpacked")
    with (
        pytest.raises(FedreproError, match=r"none.tar cannot be read"),
        unpacked(tmp_path / "none.tar"),
    ):
        pytest.fail("it was unpacked")
    assert not list(places.iterdir())
