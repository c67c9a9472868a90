"""The exception for faults that a user can correct, and messages for full disks and the like."""

from __future__ import annotations

import difflib
import errno
import os
import shutil
from collections.abc import Iterable

SHOWN = 80  # letters of a value or a name
LISTED = 16  # names that a sentence lists
TOLD = 160  # letters of another exception's message


class FedreproError(Exception):
    """An error that a user can correct: one sentence, printed without a trace; exit status 2."""

    def __init__(self, sentence: str) -> None:
        super().__init__(printable(sentence))


def printable(text: str) -> str:
    r"""Return `text` with characters that cannot be printed replaced by codes such as \n."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shown(value: object) -> str:
    """Return the repr of a value for an error message, cut to 80 letters."""
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def unknown(what: str, name: str, known: Iterable[str], where: str = "") -> FedreproError:
    """Return the error "unknown <what> '<name>' in <where>"; it lists similar names of `known`."""
    name, options = _cut(name), sorted(known)
    near = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    place = f" in {where}" if where else ""
    listed = sorted(map(_cut, difflib.get_close_matches(name, options, n=LISTED, cutoff=0.0)))
    more = f" and {len(options) - len(listed)} more" if len(listed) < len(options) else ""
    names = ", ".join(listed) or "none"
    return FedreproError(f"unknown {what} '{name}'{place}: {hint}known are {names}{more}")


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
REFUSED = (
    *(*FULL, errno.EFBIG, errno.EACCES, errno.EPERM),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST),  # a file where a folder should be, or so
)
NO_MEMORY = ("allocate memory", "out of memory", "bad_alloc")  # as torch and the system say it


def disk_error(error: OSError, path: object) -> FedreproError | None:
    """Return a FedreproError if `error` means that the disk refuses to write `path`, else None."""
    if error.errno not in REFUSED:
        return None
    full = "the disk is full: " if error.errno in FULL[:2] else ""
    reason = os.strerror(error.errno).lower()
    fix = "free some space, or write elsewhere, and start again"
    return FedreproError(f"{full}cannot write {path} ({reason}); {fix}")


# how to get a folder with configuration and workflow: with a wheel, and with a checkout
BEGIN = "start in a folder that `fedrepro start FOLDER` made, or in the root of a checkout"

# the extra that installs a module which the base install lacks
EXTRAS = {"matplotlib": "plots", "snakemake": "workflow"} | dict.fromkeys(
    ("furo", "myst_parser", "sphinx"), "site"
)


def installing(extra: str) -> str:
    """Return the pip command that installs the packages of an optional extra, such as plots."""
    # pip takes the fedrepro that is installed: no index need have it
    return f"pip install 'fedrepro[{extra}]'"


def sentence_for(error: BaseException) -> FedreproError | None:
    """Return an error for users if `error` is of memory, disk, a file or a package; else None."""
    if isinstance(error, ModuleNotFoundError):
        lacking = (error.name or "").partition(".")[0]
        if lacking not in EXTRAS:
            return None
        fix = installing(EXTRAS[lacking])
        return FedreproError(f"this needs {lacking}, which is not installed here: {fix}")
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):  # of a folder
        _, target, reason = error.args[0][0]
        return FedreproError(f"{target} cannot be written ({reason}); fix that and start again")
    if isinstance(error, OSError) and error.errno != errno.ENOMEM:
        if error.errno in FULL:
            return disk_error(error, error.filename or "a file")
        reason = (error.strerror or type(error).__name__).lower()
        sentence = f"{error.filename} cannot be used ({reason}); fix that and start again"
        return FedreproError(sentence) if error.filename else None
    text = " ".join(str(error).split())
    if not (isinstance(error, MemoryError) or any(phrase in text for phrase in NO_MEMORY)):
        return None
    fix = "choose smaller models, data or minibatches, or let one job do less (`granularity`)"
    return FedreproError(f"there is not enough memory ({text[:120] or 'none is left'}): {fix}")


def arose(error: BaseException) -> str:
    """Return an unexpected error on one line: type, message, file and line of code."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__, -1)
    at = [f", {os.path.basename(frame.filename)} line {frame.lineno}" for frame in frames]
    return "".join([type_and_message(error), *at])


def type_and_message(error: BaseException) -> str:
    """Return an error's type and message on one line of about 160 letters."""
    message = printable(" ".join(str(error).split()))[:TOLD]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
