"""Damage to every kind of file, and what the code that reads it in a job makes of it.

    python tests/damage.py [--flips 60] [--cuts 20] [--seed 0]

Makes one small run through the stages, on the digits. Then single bits of each kind of file are
flipped, files are cut, emptied, blanked in the middle, and swapped with others, and read again.
Each time that is one of

    found    refused with one sentence
    nothing  read, with the same result: the damage is in bytes that carry nothing
    silent   read, with another result
    trace    another error than a sentence

Exits 1 if anything was silent or a trace.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "unit")]
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

import pandas as pd  # noqa: E402

from fedrepro.cli.documents import recorded_costs  # noqa: E402
from fedrepro.cli.job import COMPUTING  # noqa: E402
from fedrepro.core import artifacts  # noqa: E402
from fedrepro.core.artifacts import load_state, read_models  # noqa: E402
from fedrepro.core.errors import FedreproError  # noqa: E402
from fedrepro.core.registry import parse_token  # noqa: E402
from fedrepro.data.download import raw_sources  # noqa: E402
from fedrepro.data.membership import read_partition  # noqa: E402
from fedrepro.data.prepared import PREPARED_FILES, SPLITS, load_prepared  # noqa: E402
from fedrepro.data.table import COLUMNS, read_dataset_table  # noqa: E402
from fedrepro.numbers.files import FIGURE, read_claims  # noqa: E402
from fedrepro.numbers.summary import csv_text, read_metrics, summarise  # noqa: E402
from fedrepro.numbers.times import exhibit_seconds, spent  # noqa: E402
from fedrepro.planning.config import Config, load_exhibits  # noqa: E402
from fedrepro.planning.jobs import Job, TrialBlock  # noqa: E402
from fedrepro.planning.plan import Plan, Run  # noqa: E402
from fedrepro.record.compare import compare  # noqa: E402
from fedrepro.record.keep import RECORD, record  # noqa: E402
from fedrepro.site.pages import paper_page  # noqa: E402
from fedrepro.site.reading import claims_of, maps_of, read_reports  # noqa: E402
from fedrepro.stages import (  # noqa: E402
    claims,
    exhibit,
    maps,
    peer,
    progress,
    rounds_job,
)

KEYS = ("pfnm/figure-2a", "pfnm/figure-2b")
OUTCOMES = ("found", "nothing", "silent", "trace")
RAW = "digits.gz"
GRAPHS = ("ring", "star")

Read = Callable[[], object]


@dataclass(frozen=True)
class Kind:
    """A kind of file: one of them, how a job reads it, and others to swap it with."""

    name: str
    path: Path
    read: Read
    others: tuple[Path, ...]


# --------------------------------------------------------------------------------- a small run


def make_run() -> Plan:
    """Everything that the workflow makes at scale tiny for two exhibits, in the working folder."""
    Path("config").symlink_to(ROOT / "config")
    plan = Plan(Config(), {"pfnm": load_exhibits()["pfnm"]}, "tiny")
    for key in KEYS:
        for run, trials in plan.exhibit(key).trials.items():
            pairs = zip(plan.blocks(trials), plan.run_files(run, trials), strict=True)
            for block, path in pairs:
                if not Path(path).exists():
                    _compute(plan, run, block)
        exhibit.run(key, plan, Path(plan.exhibit_file(key, "")))
    for graph in GRAPHS:
        _compute_on(plan, graph)
    maps.run(plan, KEYS, Path(plan.maps_folder("partitions")))
    published = ROOT / "src/fedrepro/papers/pfnm/claims.yaml"
    claims.run(published, KEYS, Path("reports/tiny"), Path("reports/tiny/pfnm/claims.csv"))
    record("tiny")
    _make_raw()
    return plan


def _compute(plan: Plan, run: Run, trials: TrialBlock) -> None:
    """One job of a method, with what it needs and is not there yet."""
    job = plan.jobs.job(plan.jobs.run(run, trials))
    for needed in (plan.jobs.job(folder) for folder in job.before):
        if not Path(needed.out).exists():
            for first in (plan.jobs.job(folder) for folder in needed.before):
                if not Path(first.out).exists():
                    COMPUTING[first.stage][1](first, "cpu")
            COMPUTING[needed.stage][1](needed, "cpu")
    with keeping_checkpoints():
        COMPUTING[job.stage][1](replace(job, evaluate=(), follow=()), "cpu")


def _compute_on(plan: Plan, graph: str) -> None:
    """A job of a method among the nodes of a graph, on data that are there."""
    scenario, trials = plan.exhibit(KEYS[0]).points[0].scenario, plan.blocks(2)[0]
    specs = {spec.kind: spec for spec in scenario.specs} | {"graph": parse_token("graph", graph)}
    job = Job(
        "peer", str(_among_nodes(graph, "")),
        specs | {"method": parse_token("method", "gossip_sgd+rounds~2")},
        trials=trials, data=plan.jobs.dataset(scenario.dataset),
        members=plan.jobs.partition(scenario.dataset, scenario.partition, trials),
    )  # fmt: skip
    with keeping_checkpoints():
        peer.run(job)


def _among_nodes(graph: str, name: str) -> Path:
    return Path(f"results/tiny/peer/{graph}", name)


@contextlib.contextmanager
def keeping_checkpoints() -> Iterator[None]:
    """A finished job removes its checkpoints; here they stay."""
    remove = shutil.rmtree
    os.environ[rounds_job.CHECKPOINT_SECONDS] = "0"
    rounds_job.shutil.rmtree = lambda *args, **more: None
    try:
        yield
    finally:
        rounds_job.shutil.rmtree = remove
        del os.environ[rounds_job.CHECKPOINT_SECONDS]


def _make_raw() -> None:
    """A raw file of a publisher, and a table that knows it."""
    Path("raw").mkdir()
    packed = gzip.compress(random.Random(0).randbytes(3000), mtime=0)
    Path("raw", RAW).write_bytes(packed)
    row = dict.fromkeys(COLUMNS, "") | {
        "name": "digits", "file": RAW, "form": "publisher",
        "checksum": f"sha256:{hashlib.sha256(packed).hexdigest()}", "bytes": str(len(packed)),
    }  # fmt: skip
    pd.DataFrame([row]).to_csv("raw/table.csv", index=False)


# -------------------------------------------------------------------------- kinds of files


def kinds(plan: Plan) -> Iterator[Kind]:
    """Every kind of file of the run, with the code that reads it."""
    one, two = (plan.exhibit(key) for key in KEYS)
    yield from _data_kinds(plan, one)
    local, other = (_models(plan, own) for own in (one, two))
    yield Kind("local.parquet", local[0], lambda: _trials(read_models(local, [0, 1])), other)
    metrics = [Path(path) for path in plan.metrics_files(one)]
    elsewhere = (*metrics[1:3], *(Path(path) for path in plan.metrics_files(two)))
    yield Kind("metrics.parquet", metrics[0], lambda: _summary(plan, one), elsewhere)
    times = [path.with_name("timings.parquet") for path in metrics]
    later = tuple(path.with_name("timings.parquet") for path in elsewhere)
    yield Kind("timings.parquet", times[0], lambda: (exhibit_seconds(times), spent(times)), later)
    trained = local[0].with_name("timings.parquet")
    both = [trained, *times]
    yield Kind("timings of training", trained, lambda: exhibit_seconds(both), tuple(times[:2]))
    yield from _state_kinds(plan, one)
    yield from _kinds_among_nodes()
    yield from _report_kinds(plan)
    yield from _record_kinds()
    raw = Path("raw")
    table = read_dataset_table(raw / "table.csv")
    yield Kind("raw file", raw / RAW, lambda: raw_sources("digits", [RAW], raw, table), ())


def _data_kinds(plan: Plan, one) -> Iterator[Kind]:
    folder = Path(plan.jobs.dataset(one.points[0].scenario.dataset))
    for name in PREPARED_FILES:
        others = tuple(folder / other for other in PREPARED_FILES if other != name)
        yield Kind(name, folder / name, lambda: _everything(folder), others)
    block = plan.blocks(2)[0]
    pairs = [Path(plan.jobs.partition(*pair, block)) for pair in plan.partitions(KEYS)]
    path, *others = pairs
    yield Kind(
        "partition.parquet",
        path,
        lambda: [_members(read_partition(path, trial)) for trial in (0, 1)],
        tuple(others),
    )


def _state_kinds(plan: Plan, one) -> Iterator[Kind]:
    rounds = next(run for run in one.runs if run.every is not None)
    folder = Path(plan.run_files(rounds, 2)[0]).parent
    yield Kind("global.pt", folder / "global.pt", lambda: _state(folder / "global.pt"), ())
    path = folder / "checkpoints" / "trial-0.pt"
    others = (folder / "checkpoints" / "trial-1.pt", folder / "global.pt")
    yield Kind("checkpoint", path, lambda: _resumed(path), others)


def _kinds_among_nodes() -> Iterator[Kind]:
    nodes, other = (_among_nodes(graph, "nodes.pt") for graph in GRAPHS)
    yield Kind("nodes.pt", nodes, lambda: _state(nodes), (other,))
    kept, also = (one.with_name("checkpoints") / "trial-0.pt" for one in (nodes, other))
    yield Kind("checkpoint of nodes", kept, lambda: _resumed(kept), (also, nodes))
    tables = [one.with_name("confusion.parquet") for one in (nodes, other)]
    metrics = nodes.with_name("metrics.parquet")
    yield Kind(
        "confusion.parquet", tables[0],
        lambda: artifacts.read_table(tables[0], "confusion").to_pandas().to_csv(),
        (tables[1], metrics),
    )  # fmt: skip


def _report_kinds(plan: Plan) -> Iterator[Kind]:
    base, other = (plan.exhibit_file(key, "") for key in KEYS)
    for suffix in FIGURE:
        others = (Path(f"{other}{suffix}"), Path(f"{base}.csv"), Path(f"{base}.choice.csv"))
        path = Path(f"{base}{suffix}")
        yield Kind(f"exhibit{suffix}", path, _recorded, tuple(o for o in others if o != path))
        if suffix in (".csv", ".choice.csv", ".json"):
            yield Kind(f"exhibit{suffix}, page", path, _page, (Path(f"{other}{suffix}"),))
    published, folder = ROOT / "src/fedrepro/papers/pfnm/claims.yaml", Path("reports/tiny")

    def judged() -> bytes:
        claims.run(published, KEYS, folder, Path("judged/pfnm/claims.csv"))
        return Path("judged/pfnm/claims.csv").read_bytes()

    others = (Path(f"{other}.csv"),)
    yield Kind("exhibit.csv, claims", Path(f"{base}.csv"), judged, others)
    table = folder / "pfnm" / "claims.csv"
    yield Kind("claims.csv", table, lambda: claims_of(read_claims(table)), others)
    beside = table.with_suffix(".json")
    yield Kind(
        "claims.json", beside, lambda: claims_of(read_claims(table)), (Path(f"{base}.json"),)
    )
    drawn = Path(plan.maps_folder("partitions"))
    yield Kind("maps.json", drawn / "maps.json", lambda: maps_of(drawn), (beside,))


def _record_kinds() -> Iterator[Kind]:
    base, other = (f"{RECORD}/tiny/{key}" for key in KEYS)
    for suffix in (*FIGURE, ".run.json"):
        path = Path(f"{base}{suffix}")
        yield Kind(f"record{suffix}", path, _kept, (Path(f"{other}{suffix}"),))


def _everything(folder: Path) -> object:
    prepared = load_prepared(folder)
    parts = (prepared.raw, prepared.labels, prepared.groups)
    arrays = [part(split) for split in SPLITS for part in parts]
    return prepared.info, [(a.dtype.str, a.shape, a.tobytes()) for a in arrays]


def _members(found) -> object:
    noise = None if found.noise is None else found.noise.tolist()
    return [rows.tolist() for rows in (*found.train, *found.validation)], noise


def _models(plan: Plan, one) -> tuple[Path, ...]:
    run = next(run for run in one.runs if run.every is None)
    return tuple(Path(path) for path in plan.jobs.local(run.scenario, plan.blocks(2)[0]).files)


def _trials(found) -> object:
    return {
        trial: (m.examples.tolist(), {name: t.tobytes() for name, t in m.tensors.items()})
        for trial, m in found.items()
    }


def _summary(plan: Plan, one) -> object:
    rows = {run: read_metrics(plan.run_files(run, n)).rows for run, n in one.trials.items()}
    found = summarise(one, rows)
    return csv_text(found.numbers), csv_text(found.choice)


def _state(path: Path) -> object:
    return json.dumps(_plain(load_state(path)), sort_keys=True)


def _plain(value):
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _resumed(path: Path) -> object:
    """A checkpoint as a job that goes on from it sees it; what cannot be read is said."""
    meaning = load_state(path)["meaning"]  # as the job would put it together anew
    found = progress.Keeper(path, meaning, 0.0).load()
    return json.dumps(_plain(found.packed()), sort_keys=True)


def _page() -> object:
    (paper,) = read_reports(Path("reports/tiny"), "tiny", KEYS[:1]).papers
    return paper_page(paper, "", (), frozenset())


def _recorded() -> object:
    shutil.rmtree("again", ignore_errors=True)
    record("tiny", [KEYS[0]], Path("reports"), Path("again"))
    return {path.name: path.read_bytes() for path in sorted(Path("again").rglob("*.*"))}


def _kept() -> object:
    """All that is made of the record: comparisons, tables of costs, a record of the record."""
    shutil.rmtree("again", ignore_errors=True)
    record("tiny", [KEYS[0]], RECORD, Path("again"))
    again = {path.name: path.read_bytes() for path in sorted(Path("again").rglob("*.*"))}
    return compare("tiny", KEYS[0]), recorded_costs("tiny"), again


# --------------------------------------------------------------------------------- damaging


def outcome(kind: Kind, expected: object, bad: bytes) -> tuple[str, str]:
    """What reading makes of these bytes in the file's place: an outcome, and words about it."""
    good = kind.path.read_bytes()
    kind.path.write_bytes(bad)
    artifacts.forget()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            found = kind.read()
    except FedreproError as error:
        words = str(error)
        return ("trace" if "\n" in words else "found"), words
    except Exception as error:
        return "trace", f"{type(error).__name__}: {error}"
    finally:
        kind.path.write_bytes(good)
        artifacts.forget()
    same = found == expected
    return ("nothing", "") if same else ("silent", "another result")


def flips(good: bytes, count: int, draw: random.Random) -> Iterator[bytes]:
    for at in draw.sample(range(8 * len(good)), min(count, 8 * len(good))):
        bad = bytearray(good)
        bad[at // 8] ^= 1 << at % 8
        yield bytes(bad)


def cuts(good: bytes, count: int, draw: random.Random) -> Iterator[bytes]:
    """Cut at some places, emptied, and with a block of zeros as a disk leaves them."""
    yield b""
    for _ in range(count):
        yield good[: draw.randrange(len(good))]
    for _ in range(count):
        at = draw.randrange(len(good))
        yield good[:at] + bytes(min(512, len(good) - at)) + good[at + 512 :]


def examine(kind: Kind, count: int, cut: int, seed: int) -> tuple[Counter, Counter, list[str]]:
    """Outcomes of flipped bits, outcomes of everything else, and words about bad ones."""
    draw = random.Random(f"{seed} {kind.name}")
    good = kind.path.read_bytes()
    artifacts.forget()
    with contextlib.redirect_stderr(io.StringIO()):
        expected = kind.read()
    others = [path.read_bytes() for path in kind.others]
    tallies, words = [], []
    for cases in (flips(good, count, draw), [*cuts(good, cut, draw), *others]):
        tally: Counter = Counter()
        for bad in cases:
            if bad != good:
                what, said = outcome(kind, expected, bad)
                tally[what] += 1
                words += [f"{kind.name}: {what}: {said}"] * (what in ("silent", "trace"))
        tallies.append(tally)
    return tallies[0], tallies[1], words


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--flips", type=int, default=60, help="flipped bits for each kind")
    parser.add_argument("--cuts", type=int, default=20, help="cuts and blanks for each kind")
    parser.add_argument("--seed", type=int, default=0, help="which bits")
    options = parser.parse_args()
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        with contextlib.redirect_stderr(io.StringIO()):
            plan = make_run()
        print(f"{'':24} single flipped bits{'':12} cut, blank, empty, swapped")
        head = " ".join(f"{name:>7}" for name in OUTCOMES)
        print(f"{'kind of file':24} {head}  {head}")
        for kind in kinds(plan):
            flipped, cut, words = examine(kind, options.flips, options.cuts, options.seed)
            columns = (" ".join(f"{t[name]:7}" for name in OUTCOMES) for t in (flipped, cut))
            print(f"{kind.name:24} {'  '.join(columns)}", flush=True)
            bad += words
    print("\n".join(sorted(set(bad))) or "none was silent, and none a trace")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
