"""Recording an exhibit and comparing with the record."""

from __future__ import annotations

import csv
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

from fedrepro.core.artifacts import checksum_of, read_json, write_json, write_table
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.exhibit_files import open_recorded
from fedrepro.record.compare import _judged, compare
from fedrepro.record.record_results import RECORD, drawn_keys, record

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
    about = read_json(f"{BASE}.json")
    run = about["run"]
    assert run["seconds"]["train"] == 42.0
    assert set(run["seconds"]) == {"train", "aggregate", "federate"}
    assert run["machines"] == [{"device": "cpu", **ORIGIN["machine"]}]
    assert {*about["files"], ".json"} == set(kept)


def test_of_a_table_without_rows_the_record_keeps_the_heading(made):
    heading = "method,setting\n"
    path = made.exhibit_file(KEY, ".choice.csv")
    about = read_json(made.exhibit_file(KEY, ".json"))
    Path(path).write_text(heading)
    write_json(
        made.exhibit_file(KEY, ".json"),
        about | {"files": about["files"] | {".choice.csv": checksum_of(heading.encode())}},
    )
    record("tiny", [KEY])
    assert not Path(f"{BASE}.choice.csv").exists()
    files = open_recorded(RECORD / "tiny", KEY, "tiny")
    assert files.read(".choice.csv") == heading.encode()
    assert files.table(".choice.csv").empty
    assert ".choice.csv" not in files.suffixes


def test_processor_time_is_summed_over_jobs_and_memory_is_that_of_the_hungriest(made):
    record("tiny", [KEY])
    run = run_of()
    trials = made.exhibit(KEY).trials
    jobs = {r: len(made.blocks(n)) for r, n in trials.items()}
    in_rounds = sum(n for r, n in jobs.items() if r.every)
    assert run["cpu_seconds"]["federate"] == 5.0 * in_rounds
    assert run["cpu_seconds"]["aggregate"] == 5.0 * (sum(jobs.values()) - in_rounds)
    assert run["cpu_seconds"]["train"] > 0
    assert run["peak_bytes"] == dict.fromkeys(("train", "aggregate", "federate"), 2**30)


def test_a_stage_of_which_a_job_did_not_say_what_it_took_is_left_out(made):
    one = next(run for run in made.exhibit(KEY).runs if run.every)
    path = Path(made.run_files(one, 1)[0]).with_name("timings.parquet")
    write_table(path, {"trial": [0], "seconds": [1.0]}, "timings", {})
    record("tiny", [KEY])
    run = run_of()
    assert set(run["cpu_seconds"]) == set(run["peak_bytes"]) == {"train", "aggregate"}


def test_claims_are_judged_by_all_that_is_recorded(made):
    record("tiny", [KEY])
    assert verdict("P1") == ("incomplete", "figure-2b")
    draw(made, OTHER)
    record("tiny", [OTHER])
    found, missing = verdict("P1")
    assert found == "incomplete"  # two trials decide nothing
    assert missing == "; ".join(
        f"3 more trials at {figure}, J = {count}"
        for figure in ("figure-2a", "figure-2b")
        for count in (2, 4)
    )
    assert verdict("P18") == ("not run", "s-figure-3a")


def verdict(claim):
    with (BASE.parent / "claims.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["claim"] == claim]
    return rows[0]["verdict"], rows[0]["missing"]


def test_recording_twice_changes_nothing(made):
    record("tiny", [KEY])
    before = {path: path.read_bytes() for path in BASE.parent.iterdir()}
    record("tiny", [KEY])
    assert {path: path.read_bytes() for path in BASE.parent.iterdir()} == before


def test_without_names_everything_is_recorded(made):
    draw(made, OTHER)
    assert drawn_keys(Path("reports"), "tiny") == [KEY, OTHER]
    record("tiny")
    assert drawn_keys(RECORD, "tiny") == [KEY, OTHER]


def lost(suffix):
    Path(f"reports/tiny/{KEY}{suffix}").unlink()


def cut_metrics():
    path = Path(f"reports/tiny/{KEY}.metrics.parquet")
    path.write_bytes(path.read_bytes()[:500])


def renamed():
    path = f"reports/tiny/{KEY}.json"
    write_json(path, read_json(path) | {"key": OTHER})


@pytest.mark.parametrize(
    ("damage", "keys", "said"),
    [
        *((partial(lost, suffix), [KEY], f"figure-2a{suffix} is missing; make it with: "
           f"snakemake --cores 2 reports/tiny/{KEY}{suffix}") for suffix in DRAWN),
        (cut_metrics, [KEY], "cannot be read"),
        (renamed, [KEY], "describes pfnm/figure-2b at scale tiny"),
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
    done = record("tiny", [KEY])
    assert len(done.warnings) == 1
    assert f"was drawn at git revision {revision}" in done.warnings[0]
    assert "commit first" in done.warnings[0]
    assert Path(f"{BASE}.svg").exists()


@pytest.mark.parametrize(("stage", "what"), [("aggregate", "run"), ("train", "training")])
def test_missing_times_are_a_warning(made, stage, what):
    next(Path("results").rglob(f"{stage}/*/timings.parquet")).unlink()
    done = record("tiny", [KEY])
    assert f"the {what} time of pfnm/figure-2a is not recorded" in done.warnings[0]
    assert run_of()["seconds"].keys() & {"train", stage} == set()


def test_results_of_another_folder_have_the_machine_that_computed_them(made, monkeypatch):
    here = Path.cwd()
    away = here / "away"
    away.mkdir()
    monkeypatch.chdir(away)
    assert record("tiny", [KEY], source=Path("../reports")).warnings == []
    run = run_of()
    assert run["machines"] == [{"device": "cpu", **ORIGIN["machine"]}]
    assert run["seconds"]["train"] == 42.0


def test_a_record_keeps_its_machine_and_times_also_in_the_earlier_form(made, monkeypatch):
    record("tiny", [KEY])
    about = read_json(f"{BASE}.json")
    before = about["run"]
    del before["machines"]
    before["machine"] = {"cpu": "of the other machine"}
    write_json(f"{BASE}.json", about)
    away = Path("away").resolve()
    source = RECORD.resolve()
    away.mkdir()
    monkeypatch.chdir(away)
    assert record("tiny", [KEY], source=source).warnings == []
    assert run_of() == before


def describe(made, **entries):
    """Rewrite the description of a drawn exhibit; None leaves an entry out."""
    path = made.exhibit_file(KEY, ".json")
    about = read_json(path) | entries
    write_json(path, {key: value for key, value in about.items() if value is not None})


def test_sources_that_changed_while_they_computed_are_a_warning(made):
    describe(made, computed=[{**ORIGIN, "changed_to": "56" * 16}])
    done = record("tiny", [KEY])
    assert len(done.warnings) == 1
    assert "the sources changed while pfnm/figure-2a at scale tiny was computed" in done.warnings[0]
    assert "from 121212121212 to 565656565656" in done.warnings[0]


def test_a_description_of_before_there_were_digests_is_read(made):
    """Revision and versions of the drawing stood at the top, and no machine anywhere."""
    old = {"revision": "b9fcff5014df", "versions": {"torch": "2"}}
    describe(
        made, computed=[old], drawn=None, revision="0123456789ab-dirty", versions={"numpy": "2"}
    )
    done = record("tiny", [KEY])
    assert [" was drawn at git revision" in warning for warning in done.warnings] == [True, False]
    assert "the machine of pfnm/figure-2a is not recorded in full" in done.warnings[1]
    assert run_of()["machines"] == []
    assert compare("tiny", KEY).notes == []


def test_what_is_tracked_can_be_recorded_and_compared_with(monkeypatch):
    tracked = ROOT / "reports/record"
    keys = drawn_keys(tracked, "paper")
    assert keys
    for key in keys[:3]:
        record("paper", [key], source=tracked)
        found = compare("paper", key, reports=RECORD, recorded=tracked)
        assert found.same_bytes
        assert found.notes == []


def test_every_number_that_is_tracked_has_its_metrics():
    """A csv can be made again from the tidy metrics beside it: they have every method in it."""
    tables = list((ROOT / "reports/record").rglob("*.metrics.parquet"))
    assert tables
    for path in tables:
        drawn = pd.read_csv(str(path).replace(".metrics.parquet", ".csv"))
        measured = pq.read_table(path, columns=["method"])["method"].unique().to_pylist()
        shown = drawn["setting"].str.partition(";")[0].unique()
        assert set(shown) <= set(measured), path.name


def test_a_failure_while_writing_leaves_the_old_record(made, monkeypatch):
    record("tiny", [KEY])
    before = {path: path.read_bytes() for path in BASE.parent.iterdir()}
    draw(made, values=lambda *place: 0.5)
    write = Path.write_bytes

    def failing(self: Path, data: bytes) -> int:
        if ".csv" in self.name:
            raise OSError(28, "No space left on device")
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", failing)
    with pytest.raises(FedreproError, match="the disk is full"):
        record("tiny", [KEY])
    assert {path: path.read_bytes() for path in BASE.parent.iterdir()} == before


def test_a_stop_between_renames_does_not_pass_for_recorded(made, monkeypatch):
    record("tiny", [KEY])
    draw(made, values=lambda *place: 0.5)
    rename = os.replace
    count = 0

    def stopping(source, target) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", stopping)
        with pytest.raises(KeyboardInterrupt):
            record("tiny", [KEY])
    assert not Path(f"{BASE}.json").exists()
    with pytest.raises(FedreproError, match="incomplete or was altered"):
        compare("tiny", KEY)


# ------------------------------------------------------------------------------- comparing


def shifted(amount: float):
    """Plausible values, with PFNM's test accuracy moved."""

    def values(token, clients, trial, metric, split):
        moved = amount if (metric, split) == ("accuracy", "test") and token[:4] == "pfnm" else 0
        return plausible(token, clients, trial, metric, split) + moved

    return values


def test_a_difference_is_counted_in_combined_standard_errors(made):
    record("tiny", [KEY])
    found = compare("tiny", KEY)
    assert found.verdict == f"{KEY}: the same bytes as the record, {len(found.rows)} numbers"
    assert set(found.rows["difference"]) == set(found.rows["errors"]) == {0.0}
    assert (found.same_bytes, found.notes) == (True, [])
    draw(made, values=shifted(-0.01))
    found = compare("tiny", KEY)
    moved = found.rows[found.rows["difference"] != 0]
    assert (
        moved[["method", "metric", "split"]].values.tolist() == [["PFNM", "accuracy", "test"]] * 2
    )
    row = moved.iloc[0]
    assert math.isclose(row["difference"], -0.01, rel_tol=1e-6)
    assert row["where"] == "PFNM, clients 2"
    tokens = row["setting"]
    values = [plausible(tokens, 2, trial, "accuracy", "test") for trial in range(2)]
    variance = (values[0] - values[1]) ** 2 / 2
    assert math.isclose(row["errors"], 0.01 / math.sqrt(2 * variance / 2), rel_tol=1e-6)
    assert not found.same_bytes
    assert (
        f"2 of {len(found.rows)} numbers differ; test accuracy by at most 0.01 (PFNM, clients"
        in found.verdict
    )
    assert "combined standard errors)" in found.verdict

    def of_one_trial(token, *place):
        return plausible(token, *place) + (0.1 if token == "distillation" else 0)

    draw(made, values=of_one_trial)  # which has no standard error
    rows = compare("tiny", KEY).rows
    assert rows[rows["difference"] != 0]["errors"].isna().all()


def test_another_choice_is_named(made):
    def preferring(best):
        def values(token, clients, trial, metric, split):
            if (metric, split) == ("accuracy", "train"):
                return float(token == best)
            return plausible(token, clients, trial, metric, split)

        return values

    draw(made, values=preferring("pfnm"))
    record("tiny", [KEY])
    draw(made, values=preferring("pfnm+sigma2~0.5"))
    assert compare("tiny", KEY).notes == [
        f"pfnm+sigma2~0.5 was chosen for PFNM, clients {clients}, pfnm in the record"
        for clients in (2, 4)
    ]


def test_other_numbers_of_one_portable_arithmetic_are_not_put_down_to_chance():
    rows = pd.Series([1.5, 2.5, math.nan])
    assert "equal bytes" in _judged(rows, "portable", "portable")
    for other in ("native", "not pinned", "before it was named"):
        assert _judged(rows, "portable", other).endswith(
            "1 of 2 are within 2 combined standard errors"
        )
        assert "1 of 2" in _judged(rows, other, other)


def test_numbers_on_one_side_only_are_counted(made):
    record("tiny", [KEY])
    path = Path(made.exhibit_file(KEY, ".csv"))
    lines = path.read_text().splitlines(keepends=True)
    rewrite(made.exhibit_file(KEY, ""), ".csv", "".join(lines[:-1]).encode())
    found = compare("tiny", KEY)
    assert found.verdict.endswith("1 numbers are on one side only")
    assert found.rows.iloc[-1][["ours", "difference"]].isna().all()


def test_other_data_seed_and_versions_are_noted(made):
    record("tiny", [KEY])
    path = made.exhibit_file(KEY, ".json")
    about = read_json(path)
    about["data"][0]["sha256"] = "cd" * 32
    about["computed"][0]["versions"]["torch"] = "0"
    write_json(path, about | {"seed": 1})
    notes = compare("tiny", KEY).notes
    assert "the data differ: their checksums are not the recorded ones" in notes
    assert "not as in the record: seed" in notes
    assert any(note.startswith("other versions: torch 0") for note in notes)


def edited():
    path = Path(f"{BASE}.csv")
    path.write_text(path.read_text().replace("PFNM", "ours"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (partial(lost, ".csv"), "figure-2a.csv is missing; make it with: snakemake"),
        (edited, "incomplete or was altered"),
        (lambda: [path.unlink() for path in BASE.parent.glob("figure-2a.*")],
         f"{KEY} is not recorded at scale tiny ({BASE}.csv is missing); recorded are {OTHER}"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_a_sentence(made, damage, said):
    draw(made, OTHER)
    record("tiny", [KEY, OTHER])
    damage()
    with pytest.raises(FedreproError, match=re.escape(said)):
        compare("tiny", KEY)
