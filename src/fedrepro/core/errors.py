"""The exception for faults that a user can correct, and messages for full disks and the like."""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable

SHOWN = 80  # letters of a value or a name
LISTED = 16  # names that a sentence lists
TOLD = 160  # letters of another exception's message


class FedreproError(Exception):
    r"""An error that a user can correct: one sentence, printed without a traceback; exit status 2.

    Characters that cannot be printed are written as \\n or \\x00.
    """

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
    """Return the error for a `name` that is not among `known`, suggesting the nearest known names.

    `what` is a kind of thing, such as method; `where` is where the name was written.
    """
    name, options = _cut(name), sorted(known)
    near = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    place = f" in {where}" if where else ""
    listed = sorted(map(_cut, difflib.get_close_matches(name, options, n=LISTED, cutoff=0.0)))
    more = f" and {len(options) - len(listed)} more" if len(listed) < len(options) else ""
    between = "; " if any(", " in option for option in listed) else ", "
    return FedreproError(
        f"unknown {what} '{name}'{place}: {hint}known are {between.join(listed) or 'none'}{more}"
    )


FULL = (errno.ENOSPC, errno.EDQUOT)
DISK = {
    **dict.fromkeys(FULL, "the disk is full: cannot write {}; free some space and start again"),
    errno.EFBIG: "cannot write {}: it is larger than files may be here",
    errno.EROFS: "cannot write {}: the disk is read-only; start again on another one",
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM),
        "cannot write {}: you may not write there; change that, or start elsewhere",
    ),
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
        "cannot write {}: a file stands where a folder should be, or a folder where a file should "
        "be; move it away and start again",
    ),
}
NO_MEMORY = ("allocate memory", "out of memory", "bad_alloc")  # as torch and the system say it


def disk_error(error: OSError, path: object) -> FedreproError | None:
    """Return a FedreproError if `error` means that the disk refuses to write `path`, else None."""
    sentence = DISK.get(error.errno or 0)
    return None if sentence is None else FedreproError(sentence.format(path))


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
    """Return a FedreproError if `error` is of memory, file, disk or missing package; else None."""
    if isinstance(error, ModuleNotFoundError):
        lacking = (error.name or "").partition(".")[0]
        if lacking not in EXTRAS:
            return None
        return FedreproError(
            f"this needs {lacking}, which is not installed here: {installing(EXTRAS[lacking])}"
        )
    if isinstance(error, OSError) and error.errno != errno.ENOMEM:
        full = error.errno in (*FULL, errno.EROFS)
        if full or not error.filename:
            return disk_error(error, error.filename or "a file") if full else None
        reason = (error.strerror or type(error).__name__).lower()
        return FedreproError(
            f"{error.filename} cannot be used ({reason}); fix that and start again"
        )
    text = " ".join(str(error).split())
    if not (isinstance(error, MemoryError) or any(phrase in text for phrase in NO_MEMORY)):
        return None
    return FedreproError(
        f"there is not enough memory ({text[:120] or 'none is left'}): choose smaller models, "
        "data or minibatches, or let one job do less (`granularity`), and start again"
    )


def arose(error: BaseException) -> str:
    """Describe an unexpected error on one line: type, message, file and line of code."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__, -1)
    at = [f", {os.path.basename(frame.filename)} line {frame.lineno}" for frame in frames]
    return "".join([type_and_message(error), *at])


def type_and_message(error: BaseException) -> str:
    """Return an error's type and message on one line of about 160 letters."""
    message = printable(" ".join(str(error).split()))[:TOLD]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def fault(error: BaseException) -> FedreproError:
    """Return a FedreproError that reports the unexpected `error` as a fault of this program."""
    return FedreproError(
        f"this is a fault of the program ({arose(error)}): `--debug` behind the same command "
        "shows where it arose; please report it with that"
    )
