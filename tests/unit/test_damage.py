"""A flipped bit, a cut or a swapped file is refused with a sentence, whatever kind of file it is.

Files of a small run are flipped in bits, cut, emptied, blanked, and swapped with others of a kind.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from synthetic import ROOT

from fedrepro.cli.job import compute
from fedrepro.core.checkpoint_and_model_files import load_state, read_models
from fedrepro.core.checksummed_files import forget
from fedrepro.core.errors import FedreproError
from fedrepro.data.partitions_populations_and_holdouts import read_partition
from fedrepro.data.prepared import PREPARED_FILES, SPLITS, load_prepared
from fedrepro.numbers.exhibit_files import open_exhibit, open_recorded, read_claims
from fedrepro.numbers.run_times import spent_by_stage
from fedrepro.numbers.tables_and_selection import read_metrics
from fedrepro.planning.config_files import Config, load_exhibits
from fedrepro.planning.plan import Plan
from fedrepro.planning.scenarios_runs_and_jobs import folders_of
from fedrepro.record.compare import compare
from fedrepro.record.record_entries_and_leaderboards import RECORD, record
from fedrepro.record.site.report_data import claims_of
from fedrepro.stages import federate_and_peer as federate
from fedrepro.stages.figures_claims_and_pages import draw_exhibit, judge_claims

KEYS = ("pfnm/figure-2a", "pfnm/figure-2b")
PUBLISHED = ROOT / "src/fedrepro/papers/pfnm/claims.yaml"
FLIPS, CUTS = 6, 3  # of each file


def make_run():
    Path("config").symlink_to(ROOT / "config")
    plan = Plan(Config(), {"pfnm": load_exhibits()["pfnm"]}, "tiny")
    for key in KEYS:
        for job in plan.jobs_of(plan.exhibit(key)):
            if not Path(job.out).exists():
                compute(job, "cpu")
        draw_exhibit(key, plan, Path(plan.exhibit_file(key, "")))
    judge_claims(PUBLISHED, KEYS, Path("reports/tiny"), Path("reports/tiny/pfnm/claims.csv"))
    record("tiny")
    return plan


def kinds_of_results(plan):
    one, two = (plan.exhibit(key) for key in KEYS)
    folder = Path(plan.dataset(one.points[0].scenario.dataset))

    def everything():
        prepared = load_prepared(folder)
        parts = (prepared.raw, prepared.labels, prepared.groups)
        return [part(split).tobytes() for split in SPLITS for part in parts]

    paths = [folder / name for name in PREPARED_FILES]
    yield from ((path, everything, paths) for path in paths)
    block = plan.blocks(2)[0]
    pairs = {
        (s.dataset, s.partition): None for p in (*one.points, *two.points) if (s := p.scenario)
    }
    paths = [Path(plan.partition(*pair, block)) for pair in pairs]
    yield paths[0], lambda: read_partition(paths[0], 0), paths
    scenarios = [next(r.scenario for r in e.trials if r.every is None) for e in (one, two)]
    local, other = ([Path(p) for p in folders_of(plan.local(s, block))] for s in scenarios)
    yield local[0], lambda: read_models(local, [0, 1]), other
    metrics = [Path(path) for path in plan.metrics_files(one)]
    yield metrics[0], lambda: read_metrics([str(path) for path in metrics]), metrics[1:3]
    times = [path.with_name("timings.parquet") for path in metrics]
    yield times[0], lambda: spent_by_stage(times), metrics[1:2]
    rounds = next(run for run in one.trials if run.every is not None)
    state = Path(plan.run_files(rounds, 2)[0]).with_name("global.pt")
    kept = [state.parent / f"checkpoints/trial-{trial}.pt" for trial in (0, 1)]
    yield state, lambda: load_state(state), kept
    yield kept[0], lambda: load_state(kept[0]), [kept[1], state]


def kinds_of_reports(plan):
    base, other = (plan.exhibit_file(key, "") for key in KEYS)
    kept, also = (f"{RECORD}/tiny/{key}" for key in KEYS)

    def recorded():
        shutil.rmtree("again", ignore_errors=True)
        record("tiny", [KEYS[0]], Path("reports"), Path("again"))

    def recorded_again():
        shutil.rmtree("again", ignore_errors=True)
        record("tiny", [KEYS[0]], RECORD, Path("again"))
        compare("tiny", KEYS[0])

    def judged():
        judge_claims(PUBLISHED, KEYS, Path("reports/tiny"), Path("judged/claims.csv"))

    for suffix in open_exhibit(Path("reports/tiny"), KEYS[0], "tiny").suffixes:
        yield Path(f"{base}{suffix}"), recorded, [Path(f"{other}{suffix}"), Path(f"{base}.csv")]
    for suffix in open_recorded(RECORD / "tiny", KEYS[0], "tiny").suffixes:
        yield Path(f"{kept}{suffix}"), recorded_again, [Path(f"{also}{suffix}")]
    yield Path(f"{base}.csv"), judged, [Path(f"{other}.csv")]
    table = Path("reports/tiny/pfnm/claims.csv")
    for path in (table, table.with_suffix(".json")):
        yield path, lambda: claims_of(read_claims(table)), [Path(f"{base}{path.suffix}")]


def spoiled(good, others, draw):
    for at in draw.sample(range(8 * len(good)), FLIPS):
        yield good[: at // 8] + bytes([good[at // 8] ^ 1 << at % 8]) + good[at // 8 + 1 :]
    yield from (b"", draw.randbytes(len(good)))
    for _ in range(CUTS):
        yield good[: draw.randrange(len(good))]
        at = draw.randrange(len(good))
        yield good[:at] + bytes(min(512, len(good) - at)) + good[at + 512 :]
    yield from (path.read_bytes() for path in others)


@pytest.mark.nightly
@pytest.mark.long
def test_no_damage_to_any_kind_of_file_goes_unseen_or_ends_in_a_traceback(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as keeping:  # a finished job removes its checkpoints
        keeping.setattr(federate.shutil, "rmtree", lambda *_args, **_more: None)
        keeping.setenv(federate.CHECKPOINT_SECONDS, "0")
        plan = make_run()
    found = [*kinds_of_results(plan), *kinds_of_reports(plan)]
    assert len(found) == 30
    for path, read, others in found:
        read()
        good = path.read_bytes()
        for bad in spoiled(good, others, random.Random(str(path))):
            if bad == good:
                continue
            path.write_bytes(bad)
            forget()
            with pytest.raises(FedreproError, match=r"^[^\n]+$"):
                read()
            path.write_bytes(good)
    forget()
