"""Let a preloaded process run a job of the workflow, and wait for the end; see `preload_server.py`.

Every job of a workflow starts this module, so it imports little.
"""

from __future__ import annotations

import marshal
import os
import signal
import socket
import sys
from collections.abc import Sequence

from fedrepro.core import kernel_pinning, source_digests

SOCKET = "FEDREPRO_PRELOADED"  # the variable that names the socket of the far end
STARTED = b"+"
GONE = "fedrepro: the job was killed; memory may have run out"


def run_preloaded(arguments: Sequence[str]) -> int | None:
    """Let the server, a process with libraries loaded, run `fedrepro` with these `arguments`.

    Returns the exit status, or None if no server runs or it refuses: the caller must run the job.
    """
    options = dict(zip(arguments, arguments[1:], strict=False))  # noqa: RUF007
    # libraries read their number of threads once, and no GPU is shared with a process that forks
    alone = options.get("--threads", "1") != "1" or options.get("--device", "cpu") != "cpu"
    if sys.platform != "linux" or alone:
        return None
    same = identity(source_digests.digest(source_digests.on_disk()))  # which sets variables as well
    job = (same, list(arguments), os.getcwdb(), dict(os.environb))
    with socket.socket(socket.AF_UNIX) as channel:
        sent: list[int] = []

        def forward(number: int, _: object) -> None:
            sent.append(number)
            try:  # noqa: SIM105  # contextlib is an import more, in every job
                channel.send(bytes([number]))
            except OSError:  # the job has just ended
                pass

        try:
            # no file, so that nothing stays of it where both ends are killed
            channel.connect(f"\0{os.environ[SOCKET]}")
            if not is_of_this_user(channel):  # the name is free again when the far end is gone
                return None
            with open(os.memfd_create("job"), "wb", buffering=0) as file:
                file.write(marshal.dumps(job))
                socket.send_fds(channel, [b"\0"], [0, 1, 2, file.fileno()])
            if channel.recv(1) != STARTED:
                return None
        except OSError:
            return None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, forward)
        try:
            if status := channel.recv(1):
                return status[0]
        except ConnectionResetError:
            pass
    if sent:
        return 128 + sent[-1]
    print(GONE, file=sys.stderr)
    return 128 + signal.SIGKILL


def identity(digest: str) -> str:
    """Return a text about this process; a server runs a client's job only if their texts are equal.

    It names Python's folder, the CPU kernels, fedrepro's folder, and `digest`, a hash of sources.
    """
    return f"{sys.prefix}:{kernel_pinning.pin()}:{source_digests.PACKAGE}:{digest}"


def is_of_this_user(channel: socket.socket) -> bool:
    """Return whether the process at the other end of a Unix socket belongs to this user."""
    credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder) == os.getuid()
