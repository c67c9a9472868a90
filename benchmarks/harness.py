"""What the benchmarks share: contenders in turn, medians, targets, a table, and a json file.

A benchmark names its contenders, each a function that does the same work once and says how long it
took and what came out. They run in turn, so that what else the machine does falls on all of them,
and are compared by their medians. `conclude` prints, writes benchmarks/results/NAME.json and
returns the exit status: 0 if every target is met, 1 if not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
RUNS = 5


@dataclass(frozen=True)
class Timed:
    """One run of a contender: seconds of the work itself, and named numbers that came out."""

    seconds: float
    values: Mapping[str, float] = field(default_factory=dict)


Contender = Callable[[], Timed]


@dataclass(frozen=True)
class Target:
    """A ratio and the bound that it has to keep."""

    what: str
    ratio: float
    bound: float
    at_least: bool = True

    @property
    def met(self) -> bool:
        return self.ratio >= self.bound if self.at_least else self.ratio <= self.bound

    def __str__(self) -> str:
        sign = "at least" if self.at_least else "at most"
        return f"{self.what}: {self.ratio:.3g} ({sign} {self.bound:g}: {_word(self.met)})"


def _word(met: bool) -> str:
    return "met" if met else "MISSED"


def options(doc: str | None, runs: int = RUNS) -> argparse.ArgumentParser:
    """A parser with what every benchmark takes."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=runs, help="runs of each contender")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the json files")
    return parser


def one_thread(pinned: bool = True) -> None:
    """Set threads and branches, before NumPy and torch are loaded, which read these once.

    Only contenders ask MKL. It takes its widest branch, the same wherever matrices lie. pinned:
    whether the other libraries are held to AVX2, as commands hold them.
    """
    from fedrepro.core import kernel_pinning

    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    if not pinned:  # `fedrepro bench` has pinned them
        for name in kernel_pinning.BRANCHES:
            os.environ.pop(name, None)
    flags = kernel_pinning.flags()
    if flags >= kernel_pinning.NEEDED:
        os.environ["MKL_CBWR"] = "AVX512" if "avx512f" in flags else "AVX2"
    if pinned:
        kernel_pinning.pin()


def unpinned() -> dict[str, str]:
    """Return the environment of frameworks to compare with: their libraries choose branches."""
    from fedrepro.core.kernel_pinning import BRANCHES

    return {k: v for k, v in os.environ.items() if k == "MKL_CBWR" or k not in BRANCHES}


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self.began = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began


def measured_by_itself(work: Callable[[], dict[str, float]]) -> Contender:
    """A contender from a function that says itself how many seconds count."""

    def run() -> Timed:
        values = work()
        return Timed(values.pop("seconds"), values)

    return run


def timed(work: Callable[[], Mapping[str, float]]) -> Contender:
    """A contender from a function that returns what came out."""

    def run() -> Timed:
        began = time.perf_counter()
        values = work()
        return Timed(time.perf_counter() - began, values)

    return run


def by_processor_time(work: Callable[[], object]) -> Contender:
    """A contender whose processor time counts, which other work on the machine changes less."""

    def run() -> Timed:
        began = time.process_time()
        work()
        return Timed(time.process_time() - began)

    return run


def in_turn(contenders: Mapping[str, Contender], runs: int, warm: bool = True) -> dict[str, Any]:
    """Runs of every contender by name, interleaved; each begins every other round first."""
    if warm:
        for run in contenders.values():
            run()
    found: dict[str, list[Timed]] = {name: [] for name in contenders}
    for turn in range(runs):
        names = list(contenders) if turn % 2 == 0 else list(contenders)[::-1]
        for name in names:
            found[name].append(contenders[name]())
    return found


def median(runs: list[Timed]) -> float:
    return statistics.median(run.seconds for run in runs)


def times_faster(measured: Mapping[str, list[Timed]], ours: str, theirs: str) -> float:
    """How many times the seconds of ours theirs takes: the median over paired runs."""
    pairs = zip(measured[theirs], measured[ours], strict=True)
    return statistics.median(other.seconds / own.seconds for other, own in pairs)


def fastest(measured: Mapping[str, list[Timed]], names: list[str]) -> str:
    """Which of these contenders takes least."""
    return min(names, key=lambda name: median(measured[name]))


def conclude(
    name: str,
    folder: Path,
    settings: Mapping[str, Any],
    measured: Mapping[str, list[Timed]],
    targets: list[Target],
    **more: Any,
) -> int:
    """Print what was found, write it, and return the exit status."""
    for contender, runs in measured.items():
        shown = "  ".join(f"{key} {value:.4g}" for key, value in _values(runs).items())
        print(f"{contender:34} {median(runs):10.4f} s  {shown}")
    for key, value in more.items():
        print(f"{key}: {value}")
    for target in targets:
        print(target)
    document = {
        "benchmark": name,
        "settings": dict(settings),
        "contenders": {
            contender: {
                "median_seconds": median(runs),
                "seconds": [run.seconds for run in runs],
                "values": _values(runs),
            }
            for contender, runs in measured.items()
        },
        "targets": [{**vars(target), "met": target.met} for target in targets],
        **more,
        "machine": machine(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return int(not all(target.met for target in targets))


def _values(runs: list[Timed]) -> dict[str, float]:
    keys = runs[0].values if runs else ()
    return {key: statistics.median(run.values[key] for run in runs) for key in keys}


def machine() -> dict[str, Any]:
    """The machine, the versions and the revision behind a measurement."""
    from fedrepro.core.provenance import loaded_source, versions
    from fedrepro.core.provenance import machine as described

    load, revision = os.getloadavg()[0], loaded_source()["revision"]
    return {**described(), "load": round(load, 2), "versions": versions(), "revision": revision}


def main(run: Callable[[], int]) -> None:
    """Run a benchmark as a script: an error is a sentence, as in the commands."""
    from fedrepro.core.errors import FedreproError

    try:
        sys.exit(run())
    except FedreproError as error:
        print(f"fedrepro: {error}", file=sys.stderr)
        sys.exit(2)


def prepared(token: str) -> Any:
    """A data set as the jobs see it, by its token; made once, below results/.

    Raw files come from the folder that FEDREPRO_MIRROR names, or from their publishers.
    """
    from fedrepro.core.errors import FedreproError
    from fedrepro.core.registry import parse_token
    from fedrepro.data.prepared import load_prepared
    from fedrepro.data.raw_files import raw_files
    from fedrepro.stages.data import download, prepare

    spec = parse_token("dataset", token)
    raw, made = ROOT / "resources" / spec.name, ROOT / "results" / "benchmarks" / spec.token
    try:
        return load_prepared(made)
    except FedreproError:  # not there, or of an earlier version
        for name in raw_files(spec):
            if not (raw / name).exists():
                download(spec.name, name, os.environ.get("FEDREPRO_MIRROR", ""), raw / name)
        prepare(spec, raw, made)
    return load_prepared(made)
