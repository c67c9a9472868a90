"""Fetching from a server that misbehaves, and from mirror folders."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.server
import threading
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from fedrepro.core.errors import FedreproError
from fedrepro.data.raw_files import FileRow, fetch, raw_source

DATA = np.random.default_rng(0).bytes(200_000)
WRONG = np.random.default_rng(1).bytes(200_000)
FILE = "letters.gz"
SHA256, MD5 = (f"{kind}:{hashlib.new(kind, DATA).hexdigest()}" for kind in ("sha256", "md5"))
ROW = FileRow("letters", "1", FILE, "publisher", (), SHA256, len(DATA), "none", "nobody")
Answer = tuple[int, dict[str, object], bytes]


def sends(data, length=None):
    return 200, {"Content-Length": len(data) if length is None else length}, data


CHUNKED = (200, {"Transfer-Encoding": "chunked"}, b"%x\r\n%s\r\n" % (70_000, DATA[:70_000]))
BAD: list[tuple[Answer, str]] = [
    ((404, {"Content-Length": 0}, b""), "404"),
    (sends(WRONG), "has another checksum than sha256:"),
    (sends(DATA[:70_000], len(DATA)), "broke off after 70,000 of 200,000 bytes"),
    (sends(DATA[:100]), "has 100 bytes instead of 200,000"),
    (sends(DATA, "many"), "invalid literal"),  # type: ignore[arg-type]
    ((200, {"Connection": "close"}, DATA + WRONG), "sends more than 200,000 bytes"),
    ((200, {"Connection": "close"}, DATA[:100]), "has 100 bytes instead of 200,000"),
    (CHUNKED, "IncompleteRead"),
    ((-1, {}, b""), "timed out"),
]


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Answer] = {}
        self.closing = threading.Event()

    def url(self, path, answer):
        self.answers[path] = answer
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server: Server = self.server  # type: ignore[assignment]
        status, headers, data = server.answers[self.path]
        self.close_connection = True
        if status < 0:  # keeps the line open in silence
            server.closing.wait(3)
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
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.closing.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "resources" / "letters" / FILE


@pytest.fixture
def mirror(tmp_path):
    (tmp_path / "mirror" / "letters").mkdir(parents=True)
    (tmp_path / "mirror" / "letters" / FILE).write_bytes(DATA)
    return tmp_path / "mirror"


def get(target, *rows, mirror=None, progress=lambda *_: None):
    return fetch(rows, target, mirror, progress, timeout=0.5)


def left(target):
    return sorted(path.name for path in target.parent.iterdir())


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_a_bad_source_is_named_and_nothing_stays_of_it(server, target, bad, reason):
    urls = server.url("/bad", bad), server.url("/good", sends(DATA))
    with pytest.raises(FedreproError, match=rf"{urls[0]} .*{reason}") as error:
        get(target, replace(ROW, urls=urls[:1]))
    for words in (f"cannot get {FILE} of data set 'letters'", f"holds letters/{FILE}, or go on"):
        assert words in str(error.value)
    assert left(target) == []
    said: list[tuple[int, int]] = []
    row = replace(ROW, urls=urls)
    assert get(target, row, progress=lambda *done: said.append(done))[0] == urls[1]
    assert said[-1] == (len(DATA), len(DATA))
    assert (target.read_bytes(), left(target)) == (DATA, [FILE])


def test_a_file_without_a_source_or_cut_off_without_a_known_size_is_said(server, target):
    cut = server.url("/a", sends(DATA[:70_000], len(DATA)))
    for changes, words in (
        ({}, "no url is known. Set `mirror`"),
        ({"urls": ("http://127.0.0.1:1/a",)}, "Connection refused"),
        ({"urls": (cut,), "checksum": "", "bytes": None}, "broke off after 70,000"),
    ):
        with pytest.raises(FedreproError, match=words):
            get(target, replace(ROW, **changes))


def test_the_mirror_comes_first_and_a_bad_file_in_it_is_left_alone(server, target, mirror):
    row, held = replace(ROW, urls=(server.url("/a", sends(DATA)),)), mirror / "letters" / FILE
    assert get(target, row, mirror=mirror)[0] == held.as_uri()
    assert target.read_bytes() == DATA
    target.unlink()
    held.write_bytes(WRONG)
    assert get(target, row, mirror=mirror)[0] == row.urls[0]
    assert held.read_bytes() == WRONG
    target.unlink()
    held.unlink()
    for place, words in ((mirror, "No such file"), (mirror / "nowhere", "nowhere/letters/")):
        with pytest.raises(FedreproError, match=words):
            get(target, ROW, mirror=place)
    assert left(target) == []


def test_every_form_of_a_file_is_accepted_under_its_own_name_in_a_mirror(target, mirror):
    """As CIFAR-10: .tar.gz at its publisher, .tar.xz in a mirror, one file here."""
    publisher = replace(ROW, checksum=f"sha256:{hashlib.sha256(WRONG).hexdigest()}")
    repacked = replace(ROW, form="repacked", mirror="our-letters/letters.xz")
    usual, ours = (mirror / row.place for row in (publisher, repacked))
    ours.parent.mkdir()

    def form():
        found = get(target, publisher, repacked, mirror=mirror)[1].form
        target.unlink()
        return found

    assert form() == "repacked"
    usual.rename(ours)
    assert form() == "repacked"
    usual.write_bytes(WRONG)
    assert form() == "publisher"
    for place in (usual, ours):
        place.write_bytes(b"no")
    with pytest.raises(FedreproError, match=f"holds letters/{FILE} or our-letters/letters.xz"):
        form()


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


def test_a_good_file_is_not_fetched_again_a_bad_one_is_and_a_full_disk_is_said(
    target, mirror, monkeypatch
):
    get(target, ROW, mirror=mirror)
    assert get(target, ROW)[0] == ""
    target.write_bytes(DATA[:-1])
    assert get(target, ROW, mirror=mirror)[0]
    assert target.read_bytes() == DATA
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr("urllib.request.urlopen", full)
    with pytest.raises(FedreproError, match="the disk is full"):
        get(target, ROW, mirror=mirror)
