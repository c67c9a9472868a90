"""The near end of a preloaded process: hands a stage over to it and waits.

Imports as little as it can, since it is what every job of a workflow starts. A job is handed over
with its words, folder, environment and standard streams; whenever that is not possible, the job
runs where it is. The far end is `preload.py`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Sequence

from fedrepro.core import arithmetic, sources

SOCKET = "FEDREPRO_PRELOADED"
STARTED = b"+"
NAMELESS = "@"  # begins the name of a socket that is no file
HEADER = 8
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_preloaded(arguments: Sequence[str]) -> int | None:
    """The exit status of the stage, or None if it has to run in this process."""
    if sys.platform != "linux" or not suits(arguments):
        return None
    with socket.socket(socket.AF_UNIX) as channel:
        try:
            channel.connect(address_of(os.environ[SOCKET]))
            if not is_of_this_user(channel):  # a name is free again when the far end is gone
                return None
            socket.send_fds(channel, [b"\0"], [0, 1, 2])
            channel.sendall(request(arguments))
            if channel.recv(1) != STARTED:
                return None
        except OSError:
            return None
        for number in FORWARDED:
            signal.signal(number, lambda caught, _: _forward(channel, caught))
        answer = _read_all(channel)
    if not answer:
        print(
            "fedrepro: the preloaded process is gone, and the job with it; memory may have run out",
            file=sys.stderr,
        )
        return 1
    return int(answer)


def address_of(name: str) -> str:
    """The address of a socket by its name in the environment, which cannot hold a zero byte."""
    return f"\0{name[1:]}" if name.startswith(NAMELESS) else name


def is_of_this_user(channel: socket.socket) -> bool:
    """Whether this user is at the other end."""
    credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder) == os.getuid()


def suits(arguments: Sequence[str]) -> bool:
    """Whether a preloaded process can run this stage as it would run alone.

    The numerical libraries read their number of threads once, when they are loaded, and a GPU is
    not shared with a process that forks.
    """
    options = {name: value for name, value in zip(arguments, arguments[1:], strict=False)}  # noqa: C416, RUF007
    return options.get("--threads", "1") == "1" and options.get("--device", "cpu") == "cpu"


def identity(digest: str, branches: str) -> str:
    """Which Python, how its libraries are pinned, and which fedrepro, with a digest of its files.

    A job of another environment is not handed over, nor is one whose libraries are pinned
    otherwise, nor one whose sources on disk are no longer what the far end has loaded.
    """
    return f"{sys.prefix}:{branches}:{sources.PACKAGE}:{digest}"


def request(arguments: Sequence[str]) -> bytes:
    """A job as bytes: its length, then fields that end with a zero byte."""
    mask = os.umask(0)
    os.umask(mask)
    branches = arithmetic.pin()
    variables = [key + b"=" + value for key, value in os.environb.items()]
    job_identity = identity(sources.digest(sources.on_disk()), branches)
    fields = [
        os.fsencode(job_identity),
        os.fsencode(os.getcwd()),
        b"%d" % mask,
        b"%d" % len(arguments),
    ]
    fields += [os.fsencode(word) for word in arguments] + variables
    body = b"\0".join(fields)
    return len(body).to_bytes(HEADER, "big") + body


def _forward(channel: socket.socket, number: int) -> None:
    """A signal to this process is one to the job, as a byte."""
    try:  # noqa: SIM105  # contextlib is an import more, in every job
        channel.send(bytes([number]))
    except OSError:  # the job has just ended
        pass


def _read_all(channel: socket.socket) -> bytes:
    parts = []
    while True:
        try:
            part = channel.recv(64)
        except ConnectionResetError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)
