"""Fetching from mirrors and from a server that misbehaves; archives, and what they unpack to."""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import hashlib
import http.server
import io
import lzma
import tarfile
import tempfile
import threading
import time
import zipfile
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from test_published_forms import tar_of as tar_bytes
from test_published_forms import zip_of as zip_bytes

from fedrepro.core.errors import FedreproError
from fedrepro.data import archive
from fedrepro.data.archive import decompress_file, unpack_archive
from fedrepro.data.raw_files import FileRow, fetch, raw_source

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
    path.write_bytes(zip_bytes(dict.fromkeys(names, TEXT), zipfile.ZIP_DEFLATED))
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
def test_what_is_wanted_is_unpacked_and_nothing_outside_of_the_folder(tmp_path, places, make):
    path = make(tmp_path / "x", "a.txt", "d/b.txt", "c.jpg", "/escaped.txt")
    for wanted, names in ((lambda _: True, 4), (lambda name: name.endswith("b.txt"), 1)):
        with unpack_archive(NAME, path, wanted) as folder:
            assert sum(path.is_file() for path in folder.rglob("*")) == names
    for name in ("../escaped.txt", "a/../../escaped.txt"):
        with contextlib.suppress(FedreproError), unpack_archive(NAME, make(path, name)) as folder:
            assert make is zip_of  # which takes a path as if it began in the folder
            assert [*folder.rglob("escaped.txt")]
    assert not [*places.iterdir(), *tmp_path.rglob("escaped.txt")]


@pytest.mark.parametrize(
    "members",
    [
        [member("out", tarfile.SYMTYPE, ".."), "out/escaped.txt"],
        [member("out", tarfile.SYMTYPE, "/etc/passwd")],
        [member("out", tarfile.LNKTYPE, "../../secret")],
        [member("null", tarfile.CHRTYPE)],
    ],
)
def test_a_link_or_device_that_leaves_the_folder_is_refused(tmp_path, places, members):
    refuse(tar_of(tmp_path / "bad.tar", *members), r"bad\.tar cannot be read", places)
    assert not list(tmp_path.rglob("escaped.txt"))


@pytest.mark.parametrize("make", [tar_of, zip_of])
def test_damaged_and_absent_archives_are_named(tmp_path, places, make):
    path = make(tmp_path / "letters", "a.txt")
    good = path.read_bytes()
    for bad in (good[: len(good) // 2], b"<html>not here</html>", b""):
        path.write_bytes(bad)
        refuse(path, "letters cannot be read", places)
    refuse(tmp_path / "none", "none cannot be read", places)


def newlines_in_a_tar(path):
    path.write_bytes(tar_bytes({"a.txt": b"\n" * (MOST + 1)}, "w:xz"))
    return path


def sparse_tar(path):
    """One of an exabyte, for which the archive holds 512 bytes."""
    large = tarfile.TarInfo("a.txt")
    large.size = 512
    own = {"major": "1", "minor": "0", "realsize": str(10**18), "name": "a.txt"}
    large.pax_headers = {f"GNU.sparse.{key}": value for key, value in own.items()}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as file:
        file.addfile(large, io.BytesIO(b"1\n0\n0\n".ljust(512, b"\0")))
    return path


def newlines_in_a_zip(path):
    members = dict.fromkeys("abc", b"\n" * (MOST // 2))
    path.write_bytes(zip_bytes(members, zipfile.ZIP_DEFLATED))
    return path


@pytest.mark.parametrize("make", [newlines_in_a_tar, sparse_tar, newlines_in_a_zip])
def test_an_archive_that_is_larger_than_stated_is_refused(tmp_path, places, make):
    path = make(tmp_path / "bomb")
    assert path.stat().st_size < MOST / 20
    refuse(path, "unpacks to more than 1,000,000 bytes", places)


@pytest.mark.parametrize("opener", [gzip.open, bz2.open, lzma.open, open])
def test_a_file_is_read_up_to_the_stated_size(tmp_path, opener):
    for size in (MOST, MOST + 1):
        with opener(tmp_path / "a", "wb") as file:
            file.write(b"a" * size)
        beyond = pytest.raises(FedreproError, match="unpacks to more than 1,000,000 bytes")
        with beyond if size > MOST else contextlib.nullcontext():  # noqa: SIM117
            with decompress_file(NAME, tmp_path / "a") as stream:
                assert stream.read() == b"a" * MOST


def test_a_disk_that_is_too_small_for_an_archive_is_not_its_fault(tmp_path, places, monkeypatch):
    path = tar_of(tmp_path / "a.tar", "a.txt")
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(tarfile, "copyfileobj", full)
    refuse(path, "the disk is full", places)


DATA = np.random.default_rng(0).bytes(200_000)
WRONG = np.random.default_rng(1).bytes(200_000)
FILE = "letters.gz"
SHA256, MD5 = (f"{kind}:{hashlib.new(kind, DATA).hexdigest()}" for kind in ("sha256", "md5"))
ROW = FileRow("letters", "1", FILE, "publisher", (), SHA256, len(DATA), "none", "nobody")
Answer = tuple[int, dict[str, object], bytes]


def sends(data, length=None):
    return 200, {"Content-Length": len(data) if length is None else length}, data


BAD: list[tuple[Answer, str]] = [
    ((404, {"Content-Length": 0}, b""), "404"),
    (sends(WRONG), "has another checksum than sha256:"),
    (sends(DATA[:70_000], len(DATA)), "broke off after 70,000 of 200,000 bytes"),
    (sends(DATA[:100]), "has 100 bytes instead of 200,000"),
    ((200, {"Connection": "close"}, DATA + WRONG), "has 400,000 bytes instead of 200,000"),
    ((200, {"Connection": "close"}, DATA[:100]), "broke off after 100 of 200,000 bytes"),
    ((-1, {}, b""), "timed out"),
]


ANSWERS: dict[str, Answer] = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        status, headers, data = ANSWERS[self.path]
        self.close_connection = True
        if status < 0:  # keeps the line open in silence
            time.sleep(1)
            return
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, str(value))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def serve(monkeypatch):
    """Give a path an answer, and return its url."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    def url(path, answer):
        ANSWERS[path] = answer
        return f"http://127.0.0.1:{server.server_port}{path}"

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield url
        server.shutdown()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "resources" / "letters" / FILE


@pytest.fixture
def mirror(tmp_path):
    (tmp_path / "mirror" / "letters").mkdir(parents=True)
    (tmp_path / "mirror" / "letters" / FILE).write_bytes(DATA)
    return tmp_path / "mirror"


def get(target, *rows, mirror=None):
    return fetch(rows, target, mirror, timeout=0.5)


def left(target):
    return sorted(path.name for path in target.parent.iterdir())


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_a_bad_source_is_named_and_nothing_stays_of_it(serve, target, bad, reason):
    urls = serve("/bad", bad), serve("/good", sends(DATA))
    with pytest.raises(FedreproError, match=rf"{urls[0]} .*{reason}") as error:
        get(target, replace(ROW, urls=urls[:1]))
    for words in (f"cannot get {FILE} of data set 'letters'", f"holds letters/{FILE}, or go on"):
        assert words in str(error.value)
    assert left(target) == []
    assert get(target, replace(ROW, urls=urls))[0] == urls[1]
    assert (target.read_bytes(), left(target)) == (DATA, [FILE])


def test_a_file_without_a_source_or_that_nobody_sends_is_said(target):
    for urls, words in (((), "no url is known. Set"), (("http://127.0.0.1:1/a",), "refused")):
        with pytest.raises(FedreproError, match=words):
            get(target, replace(ROW, urls=urls))


def test_the_mirror_comes_first_and_a_bad_file_in_it_is_left_alone(serve, target, mirror):
    row, held = replace(ROW, urls=(serve("/a", sends(DATA)),)), mirror / "letters" / FILE
    assert get(target, row, mirror=mirror)[0] == held.as_uri()
    assert target.read_bytes() == DATA
    target.unlink()
    held.write_bytes(WRONG)
    assert get(target, row, mirror=mirror)[0] == row.urls[0]
    assert held.read_bytes() == WRONG
    target.unlink()
    with pytest.raises(FedreproError, match=r"nowhere/letters/.*No such file"):
        get(target, ROW, mirror=mirror / "nowhere")
    assert left(target) == []


def test_every_form_of_a_file_is_accepted_under_its_own_name_in_a_mirror(target, mirror):
    publisher = replace(ROW, checksum=f"sha256:{hashlib.sha256(WRONG).hexdigest()}")
    repacked = replace(ROW, form="repacked", mirror="our-letters/letters.xz")
    usual, ours = (mirror / row.place for row in (publisher, repacked))
    ours.parent.mkdir()
    for place, data, form in ((usual, DATA, "repacked"), (ours, DATA, "repacked"),
                              (usual, WRONG, "publisher")):  # fmt: skip
        usual.unlink(missing_ok=True)
        place.write_bytes(data)
        assert get(target, publisher, repacked, mirror=mirror)[1].form == form
        target.unlink()
    for place in (usual, ours):
        place.write_bytes(b"no")
    with pytest.raises(FedreproError, match=f"holds letters/{FILE} or our-letters/letters.xz"):
        get(target, publisher, repacked, mirror=mirror)


@pytest.mark.parametrize("checksum", [SHA256, MD5, ""])
def test_sources_are_recorded_only_if_they_are_those_of_the_table(target, mirror, checksum, caplog):
    row = replace(ROW, checksum=checksum, bytes=None, urls=("http://here/a",))
    get(target, row, mirror=mirror)
    record = raw_source(target, [row])
    assert (record["urls"], record["bytes"]) == (["http://here/a"], len(DATA))
    assert (f"sha256:{record['sha256']}", record["verified"]) == (SHA256, bool(checksum))
    assert ("no checksum is known, taken on trust" in caplog.text) is not bool(checksum)
    if checksum:
        target.write_bytes(WRONG)
        with pytest.raises(FedreproError, match=r"has another checksum .* delete it and start"):
            raw_source(target, [row])
    with pytest.raises(FedreproError, match="cannot be used"):
        raw_source(target / FILE, [row])


def test_a_good_file_is_not_fetched_again_and_a_bad_one_is(target, mirror):
    get(target, ROW, mirror=mirror)
    assert get(target, ROW)[0] == ""
    target.write_bytes(DATA[:-1])
    assert get(target, ROW, mirror=mirror)[0]
    assert target.read_bytes() == DATA
