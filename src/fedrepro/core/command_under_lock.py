"""Run a command so that only one at a time runs in this folder.

    python src/fedrepro/core/command_under_lock.py LOCKFILE -- COMMAND...

Becomes the command, which inherits an exclusive lock on LOCKFILE; the system frees it when the
command ends, however it ends. A second run is refused with exit status 2. This runs before the
environment exists: standard library only.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path

REFUSED = 2


def main(arguments: list[str]) -> int:
    """Lock LOCKFILE and exec COMMAND, of [LOCKFILE, "--", COMMAND, …]; return 2 if this fails."""
    lockfile, command = Path(arguments[0]), arguments[2:]
    try:
        os.set_inheritable(take(lockfile), True)
        os.execvp(command[0], command)
    except BlockingIOError:
        words = refusal(lockfile)
    except OSError as error:
        words = f"cannot lock {lockfile}, or run {command[0]}: {error.strerror}"
    print(f"fedrepro: {words}", file=sys.stderr)
    return REFUSED


def take(lockfile: Path) -> int:
    """Lock `lockfile`; return its descriptor. Raise BlockingIOError if another process holds it."""
    lockfile.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lockfile, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        error.filename = str(lockfile)  # for the sentence, where a file system has no locks
        raise
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()} {time.strftime('%Y-%m-%d %H:%M:%S')}".encode())
    return descriptor


def refusal(lockfile: Path) -> str:
    """Return a sentence on who holds the lock on `lockfile`, since when, and what to do."""
    pid, _, since = lockfile.read_text(encoding="utf-8").partition(" ")
    holder = f"a run (process {pid}, since {since}), or what it started," if since else "a run"
    return f"{holder} is at work in this folder: wait until it has ended, or stop it."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
