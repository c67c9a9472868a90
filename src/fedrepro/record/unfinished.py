"""The finished runs of an exhibit that is not: kept on one machine, restored on another.

A run's metrics and what it took are small; its models stay behind. Files keep the checksums and the
origin that they were written with, and drawing takes them where results has none of its own.
"""

from __future__ import annotations

import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from fedrepro.core.artifacts import atomic, read_table, write_bytes
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.times import training_folders, training_tables
from fedrepro.planning.brought import at_hand, brought
from fedrepro.planning.plan import Plan
from fedrepro.record.keep import RECORD, runs_file

METRICS, TIMINGS = "metrics", "timings"


def keep_runs(plan: Plan, key: str, target: Path = RECORD) -> tuple[Path, int, int]:
    """Pack the runs of an exhibit that are finished: the archive, how many there are, and of all.

    Errors: FedreproError if none is finished or one is damaged.
    """
    names = list(_names(plan, key))
    finished = [name for name in names if Path(at_hand(name)).exists()]
    if not finished:
        raise FedreproError(f"no run of {key} at scale {plan.scale} is finished, nothing is kept")
    path = runs_file(plan.scale, key, target)
    with atomic(path) as temporary, tarfile.open(temporary, "w:xz") as archive:
        for name in dict.fromkeys(part for run in finished for part in _together(run)):
            source = Path(at_hand(name))
            read_table(source, source.stem)  # refuses what is damaged
            member = tarfile.TarInfo(name)  # without owner and time: the same runs, the same bytes
            member.size = source.stat().st_size
            with source.open("rb") as file:
                archive.addfile(member, file)
    return path, len(finished), len(names)


def restore_runs(plan: Plan, key: str, target: Path = RECORD) -> tuple[int, int]:
    """Bring the runs that were kept of an exhibit: how many it has now, and of all.

    Runs that the exhibit no longer asks for stay in the archive. Errors: FedreproError for an
    archive that is missing or damaged; runs that were brought by then are whole.
    """
    path = runs_file(plan.scale, key, target)
    if not path.exists():
        raise FedreproError(
            f"{path} is missing: keep the finished runs of {key} with "
            f"fedrepro record {key} --scale {plan.scale} --unfinished"
        )
    names = list(_names(plan, key))
    wanted = {str(PurePosixPath(name).parent) for name in names}
    try:
        with tarfile.open(path, "r:xz") as archive:
            for member in archive:
                folder = PurePosixPath(member.name).parent
                if str(folder) in wanted or _trains(folder):
                    file = archive.extractfile(member)
                    _bring(member.name, file.read() if file else b"")
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
        raise FedreproError(f"{path} is damaged ({error}); take it from the repository") from None
    return sum(Path(at_hand(name)).exists() for name in names), len(names)


def _names(plan: Plan, key: str) -> Iterator[str]:
    """The metrics of the runs of an exhibit, as results has them."""
    exhibit = plan.exhibit(key)
    for run, trials in exhibit.trials.items():
        for folder in plan.run_pieces(run, trials).folders:
            yield str(folder / f"{METRICS}.parquet")


def _together(name: str) -> Iterator[str]:
    """What belongs to a run: how long it and its local models took, and, at last, its metrics."""
    timings = Path(at_hand(name)).with_name(f"{TIMINGS}.parquet")
    for folder in training_folders([timings]):
        for table in training_tables(folder):
            yield _as_in_results(table)
    yield str(PurePosixPath(name).with_name(f"{TIMINGS}.parquet"))
    yield name


def _as_in_results(path: Path) -> str:
    """The name of a file in results, wherever it lies."""
    text = path.as_posix()
    prefix = brought("results/")
    return f"results/{text.removeprefix(prefix)}" if text.startswith(prefix) else text


def _trains(folder: PurePosixPath) -> bool:
    """Whether times of local models lie there; which they are is told by what needs them."""
    return "models" in folder.parts and folder.parts[0] == "results" and ".." not in folder.parts


def _bring(name: str, data: bytes) -> None:
    """Write a file that was kept, whole or not at all."""
    kind = PurePosixPath(name).stem
    if kind not in (METRICS, TIMINGS):
        raise tarfile.ReadError(f"{name} is neither metrics nor timings")
    place = Path(brought(name))
    write_bytes(place, data)
    try:
        read_table(place, kind)
    except FedreproError:
        place.unlink()
        raise
