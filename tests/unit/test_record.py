"""Recording an exhibit and comparing with the record; the files of an exhibit belong together."""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import re
import shutil
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from synthetic import (
    KEY,
    ORIGIN,
    ROOT,
    at_revision,
    draw,
    made_once,
    plan,
    plausible,
    rewrite,
    undrawn,
    workplace,
    write_training_times,
)

from fedrepro.core.checksummed_files import read_json, write_json, write_table
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.exhibit_files import open_exhibit, open_recorded
from fedrepro.record.compare import compare
from fedrepro.record.record_entries_and_leaderboards import RECORD, drawn_keys, record

__all__ = ["undrawn", "workplace"]
pytestmark = pytest.mark.usefixtures("workplace", "undrawn")
OTHER = "pfnm/figure-2b"
BASE = RECORD / "tiny" / KEY
DRAWN = (".svg", ".png", ".csv", ".choice.csv", ".metrics.parquet", ".json")


def run_of():
    """What the record says of its run."""
    return read_json(f"{BASE}.json")["run"]


@pytest.fixture
def made():
    """Figure 2a at scale tiny, with all its times."""
    found = plan()

    def make():
        write_training_times(found)
        draw(found)

    made_once("recorded", make)
    return found


def test_record_keeps_numbers_one_picture_and_the_run(made):
    done = record("tiny", [KEY])
    assert done.warnings == []
    kept = [suffix for suffix in DRAWN if suffix != ".png"]
    own = [Path(f"{BASE}{suffix}") for suffix in kept]
    assert set(done.files) == {*own, BASE.parent / "claims.csv", BASE.parent / "claims.json"}
    for suffix in kept[:-1]:
        ours = Path(made.exhibit_file(KEY, suffix))
        assert Path(f"{BASE}{suffix}").read_bytes() == ours.read_bytes()
    assert {*read_json(f"{BASE}.json")["files"], ".json"} == set(kept)
    run = run_of()
    assert run["seconds"]["train"] == 42.0
    assert set(run["seconds"]) == {"train", "aggregate", "federate"}
    assert run["machines"] == [{"device": "cpu", **ORIGIN["machine"]}]
    before = contents()
    record("tiny", [KEY])
    assert contents() == before


def contents():
    return {path: path.read_bytes() for path in BASE.parent.iterdir()}


def test_of_a_table_without_rows_the_record_keeps_the_heading(made):
    heading = b"method,setting\n"
    record("tiny", [KEY])
    rewrite(made.exhibit_file(KEY, ""), ".choice.csv", heading)
    record("tiny", [KEY])
    assert not Path(f"{BASE}.choice.csv").exists()  # nor is what was recorded before
    files = open_recorded(RECORD / "tiny", KEY, "tiny")
    assert files.read(".choice.csv") == heading
    assert files.table(".choice.csv").empty
    assert ".choice.csv" not in files.suffixes


def test_processor_time_is_summed_over_jobs_and_memory_is_that_of_the_hungriest(made):
    """A stage of which a job did not say what it took is left out."""
    record("tiny", [KEY])
    run = run_of()
    jobs = {r: len(made.blocks(n)) for r, n in made.exhibit(KEY).trials.items()}
    in_rounds = sum(n for r, n in jobs.items() if r.every)
    assert run["cpu_seconds"]["federate"] == 5.0 * in_rounds
    assert run["cpu_seconds"]["aggregate"] == 5.0 * (sum(jobs.values()) - in_rounds)
    assert run["cpu_seconds"]["train"] > 0
    assert run["peak_bytes"] == dict.fromkeys(("train", "aggregate", "federate"), 2**30)
    path = made.run_files(next(r for r in jobs if r.every), 1)[0]
    times = Path(path).with_name("timings.parquet")
    write_table(times, {"trial": [0], "seconds": [1.0]}, "timings", {})
    record("tiny", [KEY])
    assert set(run_of()["cpu_seconds"]) == set(run_of()["peak_bytes"]) == {"train", "aggregate"}


def test_claims_are_judged_by_all_that_is_recorded(made):
    record("tiny", [KEY])
    assert verdict("P1") == ("incomplete", "figure-2b")
    draw(made, OTHER)
    assert drawn_keys(Path("reports"), "tiny") == [KEY, OTHER]
    record("tiny")  # without names everything
    assert drawn_keys(RECORD, "tiny") == [KEY, OTHER]
    wanted = [f"3 more trials at figure-2{part}, J = {count}" for part in "ab" for count in (2, 4)]
    assert verdict("P1") == ("incomplete", "; ".join(wanted))  # two trials decide nothing
    assert verdict("P18") == ("not run", "s-figure-3a")


def verdict(claim):
    rows = csv.DictReader((BASE.parent / "claims.csv").read_text().splitlines())
    return next((row["verdict"], row["missing"]) for row in rows if row["claim"] == claim)


def lost(suffix):
    Path(f"reports/tiny/{KEY}{suffix}").unlink()


@pytest.mark.parametrize(
    ("damage", "keys", "said"),
    [
        *((partial(lost, suffix), [KEY], f"figure-2a{suffix} is missing; make it with: "
           f"snakemake --cores 2 reports/tiny/{KEY}{suffix}") for suffix in DRAWN),
        (lambda: os.truncate(f"reports/tiny/{KEY}.metrics.parquet", 500), [KEY], "cannot be read"),
        (lambda: describe(plan(), key=OTHER), [KEY], "describes pfnm/figure-2b at scale tiny"),
        (list, [KEY, OTHER], "figure-2b.json is missing"),  # one keeps all from being recorded
        (partial(shutil.rmtree, "reports"), [],
         "reports/tiny holds no exhibit; make them with: snakemake"),
    ],
)  # fmt: skip
def test_what_is_not_whole_is_refused_and_nothing_is_recorded(made, damage, keys, said):
    damage()
    with pytest.raises(FedreproError, match=re.escape(said)):
        record("tiny", keys)
    assert not RECORD.exists()


@pytest.mark.parametrize("revision", ["unknown", "0123456789ab-dirty"])
def test_a_revision_nobody_can_check_out_is_a_warning(made, monkeypatch, revision):
    at_revision(monkeypatch, revision)
    draw(made)
    (warning,) = record("tiny", [KEY]).warnings
    assert f"was drawn at git revision {revision}" in warning
    assert "commit, then" in warning
    assert Path(f"{BASE}.svg").exists()


@pytest.mark.parametrize("stage", ["aggregate", "train"])
def test_missing_times_are_a_warning(made, stage):
    next(Path("results").rglob(f"{stage}/*/timings.parquet")).unlink()
    done = record("tiny", [KEY])
    assert "the run time of pfnm/figure-2a is not recorded in full" in done.warnings[0]
    assert run_of()["seconds"].keys() & {"train", stage} == set()


def test_a_record_keeps_machines_and_times_of_another_folder_also_in_an_earlier_form(
    made, monkeypatch
):
    Path("away").mkdir()
    monkeypatch.chdir("away")
    shutil.copytree("../reports", "../sent")  # no results are known to lie there
    record("tiny", [KEY], source=Path("../sent"))
    assert run_of()["seconds"] == {}
    assert record("tiny", [KEY], source=Path("../reports")).warnings == []
    assert run_of()["machines"] == [{"device": "cpu", **ORIGIN["machine"]}]
    assert run_of()["seconds"]["train"] == 42.0
    about, again = read_json(f"{BASE}.json"), Path("again")
    about["run"]["machine"] = {"cpu": "of the other machine"}
    del about["run"]["machines"]
    write_json(f"{BASE}.json", about)
    assert record("tiny", [KEY], source=RECORD, target=again).warnings == []
    assert read_json(again / "tiny" / f"{KEY}.json")["run"] == about["run"]


def describe(made, **entries):
    """Rewrite the description of a drawn exhibit; None leaves an entry out."""
    path = made.exhibit_file(KEY, ".json")
    about = read_json(path) | entries
    write_json(path, {key: value for key, value in about.items() if value is not None})


def test_sources_that_changed_while_they_computed_are_a_warning(made):
    describe(made, computed=[{**ORIGIN, "changed_to": "56" * 16}])
    (warning,) = record("tiny", [KEY]).warnings
    assert "the source code changed while pfnm/figure-2a at scale tiny was computed" in warning
    assert "from 121212121212 to 565656565656" in warning


def test_a_description_of_before_there_were_digests_is_read(made):
    """Revision and versions of the drawing stood at the top, and no machine anywhere."""
    old = {"revision": "b9fcff5014df", "versions": {"torch": "2"}}
    own = {"revision": "0123456789ab-dirty", "versions": {"numpy": "2"}}
    describe(made, computed=[old], drawn=None, **own)
    (first,) = record("tiny", [KEY]).warnings
    assert " was drawn at git revision" in first
    assert run_of()["machines"] == []
    assert compare("tiny", KEY).notes == []


def test_what_is_tracked_can_be_compared_with_and_has_its_metrics():
    tracked = ROOT / "reports/record"
    record("paper", [KEY], source=tracked)
    found = compare("paper", KEY, reports=RECORD, recorded=tracked)
    assert (found.same_bytes, found.notes) == (True, [])
    # A csv can be made again from the tidy metrics beside it: they have every method in it.
    tables = list((ROOT / "reports/record").rglob("*.metrics.parquet"))
    assert tables
    for path in tables:
        drawn = pd.read_csv(str(path).replace(".metrics.parquet", ".csv"))
        measured = pq.read_table(path, columns=["method"])["method"].unique().to_pylist()
        shown = drawn["setting"].str.partition(";")[0].unique()
        assert set(shown) <= set(measured), path.name


def test_a_stop_between_renames_does_not_pass_for_recorded(made, monkeypatch):
    record("tiny", [KEY])
    draw(made, values=lambda *place: 0.5)
    renames, rename = itertools.count(1), os.replace

    def stopping(source, target) -> None:
        if next(renames) == 3:
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", stopping)
        with pytest.raises(KeyboardInterrupt):
            record("tiny", [KEY])
    with pytest.raises(FedreproError, match="incomplete or was altered"):
        compare("tiny", KEY)


def shifted(token, clients, trial, metric, split):
    """Plausible values, with PFNM's test accuracy moved."""
    moved = 0.01 if (metric, split) == ("accuracy", "test") and token[:4] == "pfnm" else 0
    return plausible(token, clients, trial, metric, split) - moved


def test_a_difference_is_counted_in_combined_standard_errors(made):
    record("tiny", [KEY])
    found = compare("tiny", KEY)
    assert found.verdict == f"{KEY}: the same bytes as the record, {len(found.rows)} numbers"
    assert set(found.rows["difference"]) == set(found.rows["errors"]) == {0.0}
    assert (found.same_bytes, found.notes) == (True, [])
    draw(made, values=shifted)
    found = compare("tiny", KEY)
    moved = found.rows[found.rows["difference"] != 0]
    places = moved[["method", "metric", "split"]].values.tolist()
    assert places == [["PFNM", "accuracy", "test"]] * 2
    row = moved.iloc[0]
    assert row["difference"] == pytest.approx(-0.01, rel=1e-6)
    assert row["where"] == "PFNM, clients 2"
    one, other = (plausible(row["setting"], 2, trial, "accuracy", "test") for trial in range(2))
    # two trials on each side, with this variance
    assert row["errors"] == pytest.approx(0.01 / abs(one - other) * math.sqrt(2), rel=1e-6)
    assert not found.same_bytes
    counted = f"2 of {len(found.rows)} numbers differ; test accuracy by at most 0.01 (PFNM, clients"
    assert counted in found.verdict
    assert found.verdict.endswith("are within 2 combined standard errors")

    def of_one_trial(token, *place):
        return plausible(token, *place) + (0.1 if token == "distillation" else 0)

    draw(made, values=of_one_trial)  # which has no standard error
    rows = compare("tiny", KEY).rows
    assert rows[rows["difference"] != 0]["errors"].isna().all()


def test_numbers_on_one_side_only_are_counted(made):
    path = Path(made.exhibit_file(KEY, ".csv"))
    lines = path.read_text().splitlines(keepends=True)
    lines[1] = lines[1].replace(lines[1].split(",")[5], "", 1)  # failed, here and in the record
    lines[-1] = f"none{lines[-1][1:]}"  # so that there the other numbers are read as texts
    rewrite(made.exhibit_file(KEY, ""), ".csv", "".join(lines).encode())
    record("tiny", [KEY])
    rewrite(made.exhibit_file(KEY, ""), ".csv", "".join(lines[:-1]).encode())
    found = compare("tiny", KEY)
    assert found.verdict.endswith("1 numbers are on one side only or not finite")
    assert found.rows.iloc[-1][["ours", "difference"]].isna().all()


def test_other_data_seed_and_versions_are_noted(made):
    record("tiny", [KEY])
    about = read_json(made.exhibit_file(KEY, ".json"))
    about["data"][0]["sha256"] = "cd" * 32
    about["computed"][0]["versions"]["torch"] = "0"
    describe(made, **about | {"seed": 1})
    notes = compare("tiny", KEY).notes
    assert "the data differ: their checksums are not the recorded ones" in notes
    assert "not as in the record: seed" in notes
    assert "torch 0" in next(one for one in notes if one.startswith("other versions than recorded"))


def test_what_is_not_recorded_is_not_compared(made):
    draw(made, OTHER)
    record("tiny", [OTHER])
    said = f"{KEY} is not recorded at scale tiny ({BASE}.csv is missing); recorded are {OTHER}"
    with pytest.raises(FedreproError, match=re.escape(said)):
        compare("tiny", KEY)


FOLDER = Path("reports/tiny")


def test_everything_that_is_recorded_can_be_opened():
    folder = ROOT / "reports/record"
    for key in drawn_keys(folder, "paper"):
        files = open_recorded(folder / "paper", key, "paper")
        assert all(files.read(suffix) for suffix in files.suffixes)
        assert len(files.table(".csv")) > 0
        assert files.about["key"] == key


def test_an_exhibit_of_before_checksums_is_drawn_again():
    base = draw(plan())
    kept = {k: v for k, v in read_json(f"{base}.json").items() if k != "files"}
    Path(f"{base}.json").write_text(json.dumps({**kept, "schema": 1}))
    with pytest.raises(FedreproError, match="delete it and start again"):
        open_exhibit(FOLDER, KEY, "tiny")


def test_a_record_of_an_earlier_schema_is_read_and_an_altered_one_is_not():
    base = draw(plan())
    record("tiny", [KEY])
    kept = f"{RECORD}/tiny/{KEY}"
    write_json(f"{kept}.json", read_json(f"{kept}.json") | {"schema": 2})
    assert open_exhibit(RECORD / "tiny", KEY, "tiny").about["key"] == KEY
    assert compare("tiny", KEY).same_bytes
    assert record("tiny", [KEY], source=RECORD, target=Path("again")).files
    text = Path(f"{kept}.csv").read_text()
    Path(f"{kept}.csv").write_text(text.replace("0.", "1.", 1))
    with pytest.raises(FedreproError, match=r"incomplete or was altered: .*figure-2a\.csv is not"):
        compare("tiny", KEY)
    assert Path(f"{base}.csv").read_text() == text
