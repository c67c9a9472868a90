"""One exception for everything a person can mend: a sentence that says what, where and how."""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable

SHOWN = 80  # letters of a value or a name
LISTED = 16  # names that a sentence lists
TOLD = 160  # letters of an error's own words


class FedreproError(Exception):
    """A sentence for people. The command line prints it without a traceback and exits 2.

    What cannot be printed, as in a name that someone mistyped, is written as \\n or \\x00.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(printable(sentence))


def printable(text: str) -> str:
    """A text with what cannot be printed written out."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shown(value: object) -> str:
    """A wrong value in a sentence, cut short."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def unknown(what: str, name: str, known: Iterable[str], where: str = "") -> FedreproError:
    """The error for a name that is not among `known`: it names the nearest one and the others.

    Of many others it names those that are most like it.
    """
    options = sorted(known)
    name = name if len(name) <= SHOWN else f"{name[:SHOWN]}…"
    near = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    place = f" in {where}" if where else ""
    listed = sorted(difflib.get_close_matches(name, options, n=LISTED, cutoff=0.0))
    more = f" and {len(options) - len(listed)} more" if len(listed) < len(options) else ""
    between = "; " if any(", " in option for option in listed) else ", "
    return FedreproError(
        f"unknown {what} '{name}'{place}: {hint}known are {between.join(listed) or 'none'}{more}"
    )


FULL = "the disk is full: cannot write {path}; free some space and start again"
REFUSED = "cannot write {path}: you may not write there; change that, or start elsewhere"
TAKEN = (
    "cannot write {path}: a file stands where a folder should be, or a folder where a file should "
    "be; move it away and start again"
)
DISK = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EFBIG: "cannot write {path}: it is larger than files may be here",
    errno.EROFS: "cannot write {path}: the disk is read-only; start again on another one",
    errno.EACCES: REFUSED,
    errno.EPERM: REFUSED,
    errno.ENOTDIR: TAKEN,
    errno.EISDIR: TAKEN,
    errno.EEXIST: TAKEN,
}
NO_MEMORY = ("can't allocate memory", "out of memory")  # as torch says it


def disk_error(error: OSError, path: object) -> FedreproError | None:
    """The sentence for a disk that is full or must not be written to; None for anything else."""
    sentence = DISK.get(error.errno or 0)
    return None if sentence is None else FedreproError(sentence.format(path=path))


# what else than the base install some modules come with, by the extra that brings it
EXTRAS = {
    "matplotlib": "plots",
    "snakemake": "workflow",
    "altair": "site",
    "furo": "site",
    "itables": "site",
    "myst_parser": "site",
    "sphinx": "site",
    "vl_convert": "site",
    "rocrate": "crate",
}


def sentence_for(error: Exception) -> FedreproError | None:
    """The sentence for what a machine lacks, wherever it was noticed: memory, room on a disk, or a
    package that only some commands need.
    """
    if isinstance(error, ModuleNotFoundError):
        lacking = (error.name or "").partition(".")[0]
        if lacking not in EXTRAS:
            return None
        return FedreproError(
            f"this takes {lacking}, which is not installed here: pip install "
            f"'fedrepro[{EXTRAS[lacking]}]'"
        )
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
        if full or not error.filename:
            return disk_error(error, error.filename or "a file") if full else None
        reason = (error.strerror or type(error).__name__).lower()
        return FedreproError(f"{error.filename} cannot be used ({reason}); mend that and go on")
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or any(phrase in text for phrase in NO_MEMORY):
        return FedreproError(
            f"there is not enough memory ({text[:120] or 'none is left'}): choose smaller models, "
            "data or minibatches, or let one job do less (`granularity`), and start again"
        )
    return None


def arose(error: Exception) -> str:
    """Say of an error that no one foresaw what it was, and in which line."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    message = " ".join(str(error).split())
    what = f"{type(error).__name__}: {message[:TOLD]}" if message else type(error).__name__
    at = "" if trace is None else f", {os.path.basename(trace.tb_frame.f_code.co_filename)}"
    line = "" if trace is None else f" line {trace.tb_lineno}"
    return f"{what}{at}{line}"


def fault(error: Exception) -> FedreproError:
    """The sentence for what no one foresaw: what it was, and where to look."""
    return FedreproError(
        f"this is a fault of the program ({arose(error)}): `--debug` behind the same command "
        "shows where it arose; please report it with that"
    )
