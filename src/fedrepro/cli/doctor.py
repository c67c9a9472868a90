"""`fedrepro doctor`: describes this machine, whether it computes right, and what it lacks."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path

from fedrepro.core.diagnostics.machine_facts import Observation, facts, libraries, why
from fedrepro.core.errors import FedreproError

WIDTH = 19  # of the names of what is found
SECONDS = 120  # for each line of what computes; all take some seconds, a minute under QEMU


def examine(say: Callable[[str], None]) -> int:
    """Check this machine and print each observation by `say`; return 0 if all is well, else 1."""
    wrong: dict[str, None] = {}
    for part in PARTS:
        for observation in safely(part):
            say(f"{observation.what:{WIDTH}}{observation.words}")
            if observation.wrong:
                wrong[observation.what] = None
    say(f"Not all is well: see {', '.join(wrong)}." if wrong else "All is well.")
    return int(bool(wrong))


def safely(part: Callable[[], Iterator[Observation]]) -> Iterator[Observation]:
    """Yield the observations that `part` makes, with its error, if it fails, as the last one."""
    try:
        yield from part()
    except Exception as error:
        yield Observation(part.__name__, f"is not known ({why(error)})", wrong=True)


def computing(seconds: float = SECONDS) -> Iterator[Observation]:
    """Yield observations on whether numerical libraries compute right, from a process of their own.

    That process may crash or hang, and is given up `seconds` after its last answer. It is forked,
    so that an emulator that runs this process runs it too.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def answer() -> None:
        for observation in safely(libraries):
            sender.send(observation)
        sender.send(None)

    process = context.Process(target=answer, daemon=True)
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
        message = f"broke down (exit status {process.exitcode}) in the line after the last: run "
        message += "`make env` again, or install builds for this processor"
    finally:
        process.kill()
        process.join()
        receiver.close()
    yield Observation("libraries", message, wrong=True)


def data_sets() -> Iterator[Observation]:
    """Yield which data sets have raw files in the mirror or downloads, and files of wrong size."""
    from fedrepro.cli.data import RESOURCES
    from fedrepro.data.raw_files import read_dataset_table
    from fedrepro.planning.config import load_config

    try:
        folder, table = load_config().mirror_folder(), read_dataset_table()
    except FedreproError as error:
        yield Observation("data", str(error), wrong=True)
        return
    if not folder:
        yield Observation("mirror", "none is set: FEDREPRO_MIRROR names one")
    elif not Path(folder).is_dir():
        yield Observation("mirror", f"{folder} is not there: correct FEDREPRO_MIRROR", wrong=True)
    places = {"mirror": folder} if Path(folder).is_dir() and folder else {}
    for what, place in (places | {"downloads": RESOURCES}).items():
        held = []
        for name in dict.fromkeys(row.name for row in table.rows):
            files, present = table.files(name), set[str]()
            for row in (row for file in files for row in table.forms(name, file)):
                path = Path(place, row.place if what == "mirror" else f"{name}/{row.file}")
                sizes = {form.bytes for form in table.forms(name, row.file)}
                if path.is_file() and row.file not in present:
                    present.add(row.file)
                    if None not in sizes and path.stat().st_size not in sizes:
                        words = f"{path} has not the size that {table.path} states: delete it"
                        yield Observation(what, words, wrong=True)
            if present:
                part = f" ({len(present)} of {len(files)} files)"
                held.append(name + (part if len(present) < len(files) else ""))
        yield Observation(what, f"{place}: {', '.join(held) or 'no data set'}")


PARTS: tuple[Callable[[], Iterator[Observation]], ...] = (facts, computing, data_sets)
