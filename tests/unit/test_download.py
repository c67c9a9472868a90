"""Fetching from a server that misbehaves in every way a server can, and from mirror folders."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.server
import io
import logging
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fedrepro.core.errors import FedreproError
from fedrepro.data import download
from fedrepro.data.archive import unpacked
from fedrepro.data.download import fetch, raw_sources
from fedrepro.data.table import DatasetTable, FileRow

DATA = np.random.default_rng(0).bytes(200_000)
WRONG = np.random.default_rng(1).bytes(200_000)
FILE = "letters.gz"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server: Server = self.server  # type: ignore[assignment]
        server.seen.append((self.path, self.headers.get("Range")))
        with contextlib.suppress(ConnectionError):
            server.behaviour[self.path](self)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass

    def start(self, status: int, headers: dict[str, object]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, str(value))
        self.end_headers()

    def asked(self) -> int:
        """First byte that the client wants."""
        return int((self.headers.get("Range") or "bytes=0-")[6:-1])


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviour: dict[str, Callable[[Handler], None]] = {}
        self.seen: list[tuple[str, str | None]] = []
        self.closing = threading.Event()

    def url(self, path: str, behaviour: Callable[[Handler], None]) -> str:
        self.behaviour[path] = behaviour
        return f"http://127.0.0.1:{self.server_port}{path}"


def whole(handler: Handler, data: bytes = DATA) -> None:
    """A good server, with Range."""
    start = handler.asked()
    span = f"bytes {start}-{len(data) - 1}/{len(data)}"
    handler.start(
        206 if start else 200, {"Content-Length": len(data) - start, "Content-Range": span}
    )
    handler.wfile.write(data[start:])


def whole_without_range(handler: Handler) -> None:
    handler.start(200, {"Content-Length": len(DATA)})
    handler.wfile.write(DATA)


def wrong_bytes(handler: Handler) -> None:
    whole(handler, WRONG)


def cut_off(handler: Handler, share: int = 70_000) -> None:
    """Promises the rest, sends at most `share` bytes of it."""
    start = handler.asked()
    handler.start(
        206 if start else 200,
        {"Content-Length": len(DATA) - start, "Content-Range": f"bytes {start}-{len(DATA) - 1}/*"},
    )
    handler.wfile.write(DATA[start : start + share])


def cut_off_without_range(handler: Handler) -> None:
    handler.start(200, {"Content-Length": len(DATA)})
    handler.wfile.write(DATA[:70_000])


def stalls(handler: Handler) -> None:
    """Sends a part of the rest, once, and then keeps the line open in silence."""
    start = handler.asked()
    handler.start(
        206 if start else 200,
        {"Content-Length": len(DATA) - start, "Content-Range": f"bytes {start}-{len(DATA) - 1}/*"},
    )
    handler.wfile.write(DATA[start:70_000])
    handler.wfile.flush()
    handler.server.closing.wait(3)  # type: ignore[attr-defined]


def answers(status: int) -> Callable[[Handler], None]:
    return lambda handler: handler.start(status, {"Content-Length": 0})


def without_length(data: bytes) -> Callable[[Handler], None]:
    def send(handler: Handler) -> None:
        handler.start(200, {"Connection": "close"})
        handler.wfile.write(data)

    return send


def chunked_and_cut_off(handler: Handler) -> None:
    handler.start(200, {"Transfer-Encoding": "chunked"})
    handler.wfile.write(b"%x\r\n%s\r\n" % (70_000, DATA[:70_000]))


def not_satisfiable_with_range(handler: Handler) -> None:
    (answers(416) if handler.asked() else whole)(handler)


def another_part(handler: Handler) -> None:
    """Answers a Range with a part that starts elsewhere."""
    if handler.asked():
        handler.start(206, {"Content-Length": 130_000, "Content-Range": "bytes 5-130004/200000"})
        handler.wfile.write(DATA[5:130_005])
    else:
        whole(handler)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
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
def target(tmp_path: Path) -> Path:
    return tmp_path / "resources" / "letters" / FILE


def table(*urls: str, data: bytes = DATA) -> DatasetTable:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    row = FileRow("letters", "1", FILE, "publisher", urls, digest, len(data), "none", "nobody")
    return DatasetTable((row,), Path("config/datasets.csv"))


def left(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


def refuse(target: Path, *urls: str, mirror: Path | None = None, timeout: float = 5) -> str:
    """The sentence of a fetch that must fail."""
    with pytest.raises(FedreproError) as failure:
        fetch("letters", FILE, target, mirror, table(*urls), timeout=timeout)
    return str(failure.value)


# -------------------------------------------------------------------------------- urls that work


def test_a_whole_file_arrives_and_progress_is_told(server: Server, target: Path) -> None:
    told: list[tuple[int, int]] = []
    url = server.url("/a", whole)
    source = fetch("letters", FILE, target, None, table(url), progress=lambda *x: told.append(x))
    assert target.read_bytes() == DATA
    assert left(target) == [FILE]
    assert (source.origin, source.bytes) == (url, len(DATA))
    assert told[-1] == (len(DATA), len(DATA))
    assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (answers(404), "answered 404"),
        (answers(500), "answered 500"),
        (wrong_bytes, "has sha256"),
        (cut_off_without_range, "broke off after 70,000 of 200,000 bytes"),
        (lambda handler: whole(handler, DATA[:100]), "offers 100 bytes instead of 200,000"),
        (without_length(DATA[:100]), "has 100 bytes instead of 200,000"),
        (without_length(DATA + WRONG), "sends more than 200,000 bytes"),
        (chunked_and_cut_off, "broke off after 70,000 of 200,000 bytes"),
    ],
)
def test_a_bad_source_is_named_and_the_next_one_tried(
    server: Server,
    target: Path,
    bad: Callable[[Handler], None],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    urls = server.url("/bad", bad), server.url("/good", whole)
    with caplog.at_level(logging.WARNING):
        source = fetch("letters", FILE, target, None, table(*urls), timeout=5)
    assert source.origin == urls[1]
    assert target.read_bytes() == DATA
    assert left(target) == [FILE]
    assert f"{urls[0]} {reason}" in caplog.text


@pytest.mark.parametrize(
    "bad",
    [
        answers(404),
        answers(503),
        wrong_bytes,
        lambda handler: cut_off(handler, 0),
        lambda handler: whole(handler, DATA[:100]),
        without_length(DATA[:100]),
        without_length(DATA + WRONG),
    ],
)
def test_nothing_stays_when_nothing_good_came(
    server: Server, target: Path, bad: Callable[[Handler], None]
) -> None:
    refuse(target, server.url("/bad", bad))
    assert left(target) == []


def test_the_sentence_lists_every_source_and_the_remedy(server: Server, target: Path) -> None:
    urls = server.url("/a", answers(404)), server.url("/b", wrong_bytes)
    sentence = refuse(target, *urls)
    assert f"cannot get {FILE} of data set 'letters'" in sentence
    assert "no mirror is set" in sentence
    assert f"{urls[0]} answered 404 Not Found" in sentence
    assert f"{urls[1]} has sha256" in sentence
    assert ": removed" in sentence
    assert f"FEDREPRO_MIRROR to a folder that holds letters/{FILE}" in sentence
    assert "config/config.yaml" in sentence
    assert "go online" in sentence


def test_a_server_that_is_not_there_gives_a_sentence(target: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/a"
        assert f"{url} gave no answer" in refuse(target, url)
    assert left(target) == []


def test_a_file_without_urls_and_mirror_gives_a_sentence(target: Path) -> None:
    sentence = refuse(target)
    assert "no mirror is set" in sentence
    assert "no url is known" in sentence


# -------------------------------------------------------------------------------------- resuming


def test_a_url_that_breaks_off_is_continued_where_it_stopped(server: Server, target: Path) -> None:
    fetch("letters", FILE, target, None, table(server.url("/a", cut_off)))
    assert target.read_bytes() == DATA
    assert [span for _, span in server.seen] == [None, "bytes=70000-", "bytes=140000-"]
    assert left(target) == [FILE]


@pytest.mark.parametrize("bad", [cut_off_without_range, chunked_and_cut_off, stalls])
def test_what_was_cut_off_is_continued_by_a_later_run(
    server: Server, target: Path, bad: Callable[[Handler], None]
) -> None:
    url = server.url("/a", bad)
    refuse(target, url, timeout=0.3)
    (part,) = left(target)
    assert part.endswith(".part")
    assert (target.parent / part).read_bytes() == DATA[:70_000]
    server.seen.clear()
    server.url("/a", whole)
    fetch("letters", FILE, target, None, table(url))
    assert server.seen == [("/a", "bytes=70000-")]
    assert target.read_bytes() == DATA
    assert left(target) == [FILE]


def test_a_silent_server_is_left_after_the_time_out(server: Server, target: Path) -> None:
    sentence = refuse(target, server.url("/a", stalls), timeout=0.3)
    assert "broke off after 70,000 of 200,000 bytes (nothing came for 0.3 s)" in sentence


def test_a_later_failure_keeps_what_came_earlier(server: Server, target: Path) -> None:
    url = server.url("/a", cut_off_without_range)
    refuse(target, url)
    before = left(target)
    server.url("/a", answers(500))
    refuse(target, url)
    assert left(target) == before


@pytest.mark.parametrize(
    ("later", "requests"),
    [
        (whole_without_range, ["bytes=70000-"]),
        (not_satisfiable_with_range, ["bytes=70000-", None]),
        (another_part, ["bytes=70000-", None]),
    ],
)
def test_a_server_that_cannot_continue_is_asked_for_the_whole(
    server: Server,
    target: Path,
    later: Callable[[Handler], None],
    requests: list[str | None],
) -> None:
    url = server.url("/a", cut_off_without_range)
    refuse(target, url)
    server.seen.clear()
    server.url("/a", later)
    fetch("letters", FILE, target, None, table(url))
    assert target.read_bytes() == DATA
    assert [span for _, span in server.seen] == requests


def test_a_part_with_wrong_bytes_is_dropped_and_the_whole_fetched(
    server: Server, target: Path
) -> None:
    url = server.url("/a", cut_off_without_range)
    refuse(target, url)
    (part,) = left(target)
    (target.parent / part).write_bytes(WRONG[:70_000])
    server.url("/a", whole)
    fetch("letters", FILE, target, None, table(url))
    assert target.read_bytes() == DATA
    assert left(target) == [FILE]


def test_a_part_belongs_to_its_url_and_its_checksum(server: Server, target: Path) -> None:
    first, second = server.url("/a", cut_off_without_range), server.url("/b", whole)
    refuse(target, first)
    server.seen.clear()
    fetch("letters", FILE, target, None, table(second))
    assert server.seen == [("/b", None)]
    target.unlink()
    refuse(target, first)
    server.seen.clear()
    server.url("/a", wrong_bytes)
    fetch("letters", FILE, target, None, table(first, data=WRONG))
    assert server.seen == [("/a", None)]


# ---------------------------------------------------------------------------------------- mirror


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    folder = tmp_path / "mirror"
    (folder / "letters").mkdir(parents=True)
    (folder / "letters" / FILE).write_bytes(DATA)
    return folder


def test_the_mirror_comes_first(server: Server, target: Path, mirror: Path) -> None:
    source = fetch("letters", FILE, target, mirror, table(server.url("/a", whole)))
    assert source.origin == f"mirror {mirror}"
    assert target.read_bytes() == DATA
    assert server.seen == []
    assert left(target) == [FILE]


def test_a_bad_file_in_the_mirror_is_named_and_left_alone(
    server: Server, target: Path, mirror: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (mirror / "letters" / FILE).write_bytes(WRONG)
    url = server.url("/a", whole)
    with caplog.at_level(logging.WARNING):
        assert fetch("letters", FILE, target, mirror, table(url)).origin == url
    assert f"mirror {mirror} holds a bad letters/{FILE}: it has sha256" in caplog.text
    assert (mirror / "letters" / FILE).read_bytes() == WRONG
    target.unlink()
    assert "holds a bad" in refuse(target, mirror=mirror)
    assert left(target) == []


def test_a_mirror_that_is_not_there_or_lacks_the_file_says_so(
    target: Path, mirror: Path, tmp_path: Path
) -> None:
    sentence = refuse(target, mirror=tmp_path / "nowhere")
    assert f"mirror {tmp_path / 'nowhere'} is not there: this folder does not exist" in sentence
    (mirror / "letters" / FILE).unlink()
    assert f"mirror {mirror} does not hold letters/{FILE}" in refuse(target, mirror=mirror)


def test_every_form_of_a_file_is_accepted(target: Path, mirror: Path) -> None:
    rows = [*table(data=WRONG).rows, *table().rows]
    rows[1] = FileRow(**{**vars(rows[1]), "form": "repacked"})
    found = fetch("letters", FILE, target, mirror, DatasetTable(tuple(rows), Path("t.csv")))
    assert found.form == "repacked"


def test_a_form_may_have_a_name_of_its_own_in_a_mirror(target: Path, mirror: Path) -> None:
    """As CIFAR-10: .tar.gz at its publisher, .tar.xz in a mirror, one file here."""
    publisher = table(data=WRONG).rows[0]
    repacked = FileRow(
        **{**vars(table().rows[0]), "form": "repacked", "mirror": "our-letters/letters.xz"}
    )
    both = DatasetTable((publisher, repacked), Path("t.csv"))
    (mirror / "our-letters").mkdir()
    (mirror / "letters" / FILE).rename(mirror / "our-letters" / "letters.xz")
    assert fetch("letters", FILE, target, mirror, both).form == "repacked"
    assert target.read_bytes() == DATA
    # the publisher's form comes first where the mirror holds it
    target.unlink()
    (mirror / "letters" / FILE).write_bytes(WRONG)
    assert fetch("letters", FILE, target, mirror, both).form == "publisher"
    # and where it is bad the other one is still good
    target.unlink()
    (mirror / "letters" / FILE).write_bytes(WRONG[:50])
    assert fetch("letters", FILE, target, mirror, both).form == "repacked"
    target.unlink()
    (mirror / "our-letters" / "letters.xz").write_bytes(b"no")
    with pytest.raises(FedreproError) as failure:
        fetch("letters", FILE, target, mirror, both)
    for words in (f"holds a bad letters/{FILE}", "holds a bad our-letters/letters.xz"):
        assert words in str(failure.value)
    assert f"holds letters/{FILE} or our-letters/letters.xz" in str(failure.value)
    assert left(target) == []


# ------------------------------------------------------- checksums of other kinds, and no checksum


def changed(**changes: object) -> DatasetTable:
    row = FileRow(**{**vars(table().rows[0]), **changes})  # type: ignore[arg-type]
    return DatasetTable((row,), Path("t.csv"))


def test_an_md5_is_verified_as_well(server: Server, target: Path) -> None:
    md5 = "md5:" + hashlib.md5(DATA).hexdigest()
    urls = (server.url("/bad", wrong_bytes), server.url("/good", whole))
    known = changed(checksum=md5, bytes=None, urls=urls)
    source = fetch("letters", FILE, target, None, known)
    assert (source.origin, source.verified) == (urls[1], True)
    assert target.read_bytes() == DATA
    (record,) = raw_sources("letters", [FILE], target.parent, known)
    assert record["sha256"] == hashlib.sha256(DATA).hexdigest()
    target.unlink()
    with pytest.raises(FedreproError, match=r"has md5 .* instead of"):
        fetch("letters", FILE, target, None, changed(checksum=md5, bytes=None, urls=urls[:1]))
    assert left(target) == []


@pytest.mark.parametrize("bad", [cut_off_without_range, chunked_and_cut_off])
def test_without_a_known_size_a_cut_off_file_is_still_noticed_and_continued(
    server: Server, target: Path, bad: Callable[[Handler], None]
) -> None:
    md5 = "md5:" + hashlib.md5(DATA).hexdigest()
    url = server.url("/a", bad)
    known = changed(checksum=md5, bytes=None, urls=(url,))
    with pytest.raises(FedreproError, match="broke off after 70,000"):
        fetch("letters", FILE, target, None, known, timeout=0.5)
    server.url("/a", whole)
    server.seen.clear()
    fetch("letters", FILE, target, None, known)
    assert target.read_bytes() == DATA
    assert server.seen == [("/a", "bytes=70000-")]
    assert left(target) == [FILE]


def test_a_file_without_a_checksum_is_taken_on_trust_and_said(
    server: Server, target: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trusting = changed(checksum="", bytes=None, urls=(server.url("/a", whole),))
    with caplog.at_level(logging.WARNING):
        source = fetch("letters", FILE, target, None, trusting)
    assert not source.verified
    assert "no checksum is known, taken on trust" in caplog.text
    (record,) = raw_sources("letters", [FILE], target.parent, trusting)
    assert record["sha256"] == hashlib.sha256(DATA).hexdigest()
    assert record["verified"] is False


def test_an_archive_from_a_server_that_leaves_its_folder_is_refused(
    server: Server, target: Path, tmp_path: Path
) -> None:
    """Right bytes, bad intentions: it passes the checksum, and is stopped when unpacked."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("../../escaped.txt")
        member.size = len(DATA)
        archive.addfile(member, io.BytesIO(DATA))
    evil = buffer.getvalue()
    url = server.url("/evil", lambda handler: whole(handler, evil))
    fetch("letters", FILE, target, None, table(url, data=evil))
    with (
        pytest.raises(FedreproError, match="outside the destination"),
        unpacked("mnist", target.rename(target.with_name("train-images-idx3-ubyte.gz"))),
    ):
        pytest.fail("it was unpacked")
    assert not list(tmp_path.rglob("escaped.txt"))
    assert left(target) == ["train-images-idx3-ubyte.gz"]


# ------------------------------------------------------------------------ what is there already


def test_a_good_file_is_not_fetched_again(server: Server, target: Path, mirror: Path) -> None:
    fetch("letters", FILE, target, mirror, table())
    again = fetch("letters", FILE, target, None, table(server.url("/a", whole)))
    assert again.origin == "present"
    assert server.seen == []


def test_a_bad_file_is_fetched_anew(target: Path, mirror: Path) -> None:
    target.parent.mkdir(parents=True)
    target.write_bytes(DATA[:-1])
    assert fetch("letters", FILE, target, mirror, table()).origin != "present"
    assert target.read_bytes() == DATA


def test_two_processes_fetch_a_file_once(server: Server, target: Path) -> None:
    def slow(handler: Handler) -> None:
        server.closing.wait(1.0)
        whole(handler)

    url = server.url("/a", slow)
    code = (
        "import hashlib, sys; from pathlib import Path\n"
        "from fedrepro.data.table import DatasetTable, FileRow\n"
        "from fedrepro.data.download import fetch\n"
        "_, target, url, digest, size = sys.argv\n"
        f"row = FileRow('letters', '1', {FILE!r}, 'publisher', (url,), digest, int(size), '', '')\n"
        f"table = DatasetTable((row,), Path('t.csv'))\n"
        f"print(fetch('letters', {FILE!r}, Path(target), None, table).origin)\n"
    )
    digest = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
    command = [sys.executable, "-c", code, str(target), url, digest, str(len(DATA))]
    jobs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    origins = sorted(job.communicate(timeout=20)[0].strip() for job in jobs)
    assert origins == [url, "present", "present"]
    assert len(server.seen) == 1
    assert left(target) == [FILE]


def test_the_lock_lets_one_in_at_a_time(target: Path) -> None:
    target.parent.mkdir(parents=True)
    inside: list[int] = []
    most = []

    def work(number: int) -> None:
        for _ in range(60):
            with download._lock(target):
                inside.append(number)
                time.sleep(0.0003)
                most.append(len(inside))
                inside.remove(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(most) == 360
    assert left(target) == []


def test_a_full_disk_is_said(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download, "_pour", full)
    assert "the disk is full" in refuse(target, server.url("/a", whole))


def test_an_unknown_file_or_data_set_is_named(target: Path) -> None:
    with pytest.raises(FedreproError, match=r"unknown file 'leters.gz'.*did you mean 'letters.gz'"):
        fetch("letters", "leters.gz", target, None, table())
    with pytest.raises(FedreproError, match=r"unknown data set 'leters'.*did you mean 'letters'"):
        fetch("leters", FILE, target, None, table())


def test_raw_sources_are_recorded_only_if_they_are_the_table_s(target: Path, mirror: Path) -> None:
    (source,) = raw_sources("letters", [FILE], mirror / "letters", table("http://here/a"))
    assert source["sha256"] == hashlib.sha256(DATA).hexdigest()
    assert source["urls"] == ["http://here/a"]
    (mirror / "letters" / FILE).write_bytes(WRONG)
    with pytest.raises(FedreproError, match=r"has sha256 .* delete it and start again"):
        raw_sources("letters", [FILE], mirror / "letters", table())
    with pytest.raises(FedreproError, match="cannot be used"):
        raw_sources("letters", [FILE], target.parent, table())
