"""Run a command so that only one at a time runs in this folder.

    python src/fedrepro/core/diagnostics/run_locked.py LOCKFILE -- COMMAND...

Takes an exclusive lock on LOCKFILE and becomes the command, which inherits the lock; the system
frees it when the command ends, however it ends. While it is held a second run is refused with one
sentence and exit status 2. This runs before the environment exists: standard library only.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path

REFUSED = 2
NOT_RUNNABLE = 127


def main(arguments: list[str]) -> int:
    """Lock and run `arguments`, [LOCKFILE, "--", COMMAND, …]; return a status if this fails."""
    if len(arguments) < 3 or arguments[1] != "--":
        print("usage: run_locked.py LOCKFILE -- COMMAND...", file=sys.stderr)
        return REFUSED
    lockfile, command = Path(arguments[0]), arguments[2:]
    try:
        descriptor = take(lockfile)
    except BlockingIOError:
        print(f"fedrepro: {refusal(lockfile)}", file=sys.stderr)
        return REFUSED
    except OSError as error:
        print(f"fedrepro: cannot lock {lockfile}: {error.strerror}", file=sys.stderr)
        return REFUSED
    os.set_inheritable(descriptor, True)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"fedrepro: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_RUNNABLE


def take(lockfile: Path) -> int:
    """Lock `lockfile`; return its descriptor. Raise BlockingIOError if another process holds it."""
    lockfile.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lockfile, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()} {time.strftime('%Y-%m-%d %H:%M:%S')}".encode())
    return descriptor


def refusal(lockfile: Path) -> str:
    """Return a sentence on who holds the lock on `lockfile`, since when, and what to do."""
    pid, _, since = lockfile.read_text(encoding="utf-8").partition(" ")
    if since and not alive(int(pid)):
        return (
            f"a run of {since} was stopped in this folder, but something it started is still at "
            "work: wait until that has ended."
        )
    known = f" (process {pid}, since {since})" if since else ""  # or taken this very moment
    stop = f", or stop it with 'kill {pid}'" if since else ""
    return f"another run is at work in this folder{known}: wait until it has ended{stop}."


def alive(pid: int) -> bool:
    """Return whether a process with this number exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
