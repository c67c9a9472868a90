"""`fedrepro doctor`: describes this machine, whether it computes right, and what it lacks."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from fedrepro.core.diagnostics.machine_facts import Observation, facts, libraries, why
from fedrepro.core.errors import FedreproError

if TYPE_CHECKING:
    from fedrepro.data.raw_files import DatasetTable

WIDTH = 19  # of the names of what is found
SECONDS = 120  # for each line of what computes; all take some seconds, a minute under QEMU


def examine(say: Callable[[str], None]) -> int:
    """Say each finding at once, and at the end whether all is well: return 0, or 1."""
    wrong: dict[str, None] = {}
    for part in PARTS:
        for observation in safely(part):
            say(f"{observation.what:{WIDTH}}{observation.words}")
            if observation.wrong:
                wrong[observation.what] = None
    say(f"Not all is well: see {', '.join(wrong)}." if wrong else "All is well.")
    return int(bool(wrong))


def safely(part: Callable[[], Iterator[Observation]]) -> Iterator[Observation]:
    """Yield the findings of a part; its error is a finding too: a machine may lack anything."""
    try:
        yield from part()
    except Exception as error:
        yield Observation(part.__name__, f"is not known ({why(error)})", wrong=True)


def computing(seconds: float = SECONDS) -> Iterator[Observation]:
    """Ask libraries for their results in a process of their own, which may crash or hang.

    It is forked, so that an emulator that runs this process runs it too.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender,), daemon=True)
    process.start()
    sender.close()
    try:
        while receiver.poll(seconds):
            observation = receiver.recv()
            if observation is None:
                return
            yield observation
        message = f"gave no answer for {seconds:g} s: is the machine busy, or a disk not there?"
    except EOFError:
        process.join()
        message = (
            f"broke down (exit status {process.exitcode}) in the line after the last: run "
            "`make env` again, or install builds for this processor"
        )
    finally:
        process.kill()
        process.join()
        receiver.close()
    yield Observation("libraries", message, wrong=True)


def _answer(there: Connection) -> None:
    for observation in safely(libraries):
        there.send(observation)
    there.send(None)


def data_sets() -> Iterator[Observation]:
    """Find the raw files of a mirror, or of an earlier download, by their size alone."""
    from fedrepro.cli.data import RESOURCES
    from fedrepro.data.raw_files import read_dataset_table

    try:
        folder, table = _mirror(), read_dataset_table()
    except FedreproError as error:
        yield Observation("data", str(error), wrong=True)
        return
    if not folder:
        yield Observation("mirror", "none is set: FEDREPRO_MIRROR names one")
    elif not Path(folder).is_dir():
        yield Observation("mirror", f"{folder} is not there: correct FEDREPRO_MIRROR", wrong=True)
    else:
        yield from _held("mirror", table, Path(folder), mirror=True)
    yield from _held("downloads", table, RESOURCES, mirror=False)


def _mirror() -> str:
    from fedrepro.planning.config import load_config

    return load_config().mirror_folder()


def _held(what: str, table: DatasetTable, folder: Path, mirror: bool) -> Iterator[Observation]:
    """Count the files of each data set that are there, and report files of a wrong size."""
    held = []
    for name in dict.fromkeys(row.name for row in table.rows):
        files, present = table.files(name), 0
        for file in files:
            forms = table.forms(name, file)
            places = dict.fromkeys(row.place if mirror else f"{name}/{file}" for row in forms)
            paths = [path for place in places if (path := folder / place).is_file()]
            present += bool(paths)
            sizes = {row.bytes for row in forms}
            for path in paths:
                if None not in sizes and path.stat().st_size not in sizes:
                    message = f"{path} has not the size that {table.path} states: delete it"
                    yield Observation(what, message, wrong=True)
        if present:
            of_all = "" if present == len(files) else f" ({present} of {len(files)} files)"
            held.append(name + of_all)
    yield Observation(what, f"{folder}: {', '.join(held) or 'no data set'}")


PARTS: tuple[Callable[[], Iterator[Observation]], ...] = (facts, computing, data_sets)
