"""Runs that were kept of an exhibit: what is refused."""

from __future__ import annotations

import io
import tarfile

import pytest

from fedrepro.core.errors import FedreproError
from fedrepro.planning.brought import at_hand, brought
from fedrepro.planning.config import Config, load_exhibits
from fedrepro.planning.plan import Plan
from fedrepro.record.keep import runs_file
from fedrepro.record.unfinished import keep_runs, restore_runs

KEY = "pfnm/figure-2b"
RUN = "results/tiny/seed=0/federated/run/trials=0/metrics.parquet"


@pytest.fixture
def plan(monkeypatch, tmp_path):
    made = Plan(Config(), load_exhibits(), "tiny")
    monkeypatch.chdir(tmp_path)
    return made


def packed(path, members):
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w:xz") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def first(plan):
    return plan.metrics_files(plan.exhibit(KEY))[0]


def test_a_file_of_results_goes_before_one_that_was_brought(tmp_path):
    assert at_hand(RUN, tmp_path) == RUN
    for name, expected in ((brought(RUN), brought(RUN)), (RUN, RUN)):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"")
        assert at_hand(RUN, tmp_path) == expected


def test_without_a_finished_run_nothing_is_kept(plan, tmp_path):
    with pytest.raises(FedreproError, match="no run of pfnm/figure-2b at scale tiny is finished"):
        keep_runs(plan, KEY)
    assert not list(tmp_path.rglob("*"))


def test_a_damaged_run_is_not_kept(plan, tmp_path):
    path = tmp_path / first(plan)
    path.parent.mkdir(parents=True)
    for name in ("metrics.parquet", "timings.parquet"):
        path.with_name(name).write_bytes(b"PAR1")
    with pytest.raises(FedreproError, match="damaged"):
        keep_runs(plan, KEY)
    assert not runs_file("tiny", KEY).exists()


def test_a_missing_archive_says_how_it_is_made(plan):
    with pytest.raises(FedreproError, match="record pfnm/figure-2b --scale tiny --unfinished"):
        restore_runs(plan, KEY)


@pytest.mark.parametrize("data", [b"", b"no archive", b"\xfd7zXZ\x00 cut"])
def test_a_damaged_archive_is_one_sentence(plan, data):
    path = runs_file("tiny", KEY)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    with pytest.raises(FedreproError, match=r"figure-2b.runs.tar.xz is damaged"):
        restore_runs(plan, KEY)


def test_a_damaged_run_in_an_archive_is_not_restored(plan, tmp_path):
    packed(runs_file("tiny", KEY), {first(plan): b"PAR1"})
    with pytest.raises(FedreproError, match="damaged"):
        restore_runs(plan, KEY)
    assert not list(tmp_path.rglob("metrics.parquet"))


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../metrics.parquet", "results/../../models/x/timings.parquet", RUN]
)
def test_what_an_exhibit_does_not_ask_for_is_left_out(plan, tmp_path, name):
    packed(runs_file("tiny", KEY), {name: b"PAR1"})
    finished, asked = restore_runs(plan, KEY)
    assert finished == 0 < asked
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [
        runs_file("tiny", KEY).name
    ]
