"""Parts of documents that are generated from what is recorded."""

from __future__ import annotations

import csv
from pathlib import Path

from fedrepro.cli.documents import documents, recorded_costs, recorded_verdicts
from fedrepro.core.artifacts import write_json, write_text
from fedrepro.numbers.claims.table import COLUMNS
from fedrepro.numbers.files import sha256_of

ROW = dict.fromkeys(COLUMNS, "")


def write_claims(path, *rows):
    """A table of claims with what is given, and nothing else."""
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(ROW | row for row in rows)


NICE = {"claim": "X2", "verdict": "no verdict", "says": "It is nice.", "reason": "a judgement"}


def recorded(monkeypatch, tmp_path, name, run):
    base = tmp_path / "reports/record/paper/pfnm" / name
    write_text(f"{base}.metrics.parquet", "")
    about = {"key": f"pfnm/{name}", "scale": "paper", "trials": 7}
    write_json(f"{base}.json", about)
    files = {".json": sha256_of(Path(f"{base}.json").read_bytes())}
    write_json(f"{base}.run.json", run | {"files": files})
    monkeypatch.chdir(tmp_path)
    return base.parent


def test_costs_are_those_of_the_record(monkeypatch, tmp_path):
    run = {
        "cpu_seconds": {"train": 60.0, "aggregate": 90.0},
        "peak_bytes": {"train": 2**30, "aggregate": 3 * 2**29},
    }
    recorded(monkeypatch, tmp_path, "figure-1", run)
    recorded(monkeypatch, tmp_path, "figure-2", {"seconds": {"train": 1.0}})
    lines = recorded_costs().splitlines()[2:]
    assert lines[0] == "| figure-1 | 7 | 1.0 | 1.5 | – | 2.5 min | 1.50 GiB |"
    assert lines[1] == "| figure-2 | 7 | – | – | – | – | – |"


def test_a_verdict_stands_beside_the_check_that_decides_it(tmp_path):
    path = tmp_path / "claims.csv"
    wins = {"claim": "X1", "verdict": "refuted", "says": "Ours wins.", "bound": "above 0"}
    wins |= {"fixed": "before", "label": "identity"}
    so = {"claim": "X3", "verdict": "incomplete", "says": "It is so.", "bound": "below 1"}
    so |= {"fixed": "after"}
    write_claims(
        path,
        wins
        | {"check": "a minus b, at every point: above 0", "check_verdict": "holds"}
        | {"at": "fig, J = 5", "value": 0.25, "low": 0.2, "high": 0.3},
        wins
        | {"check": "c minus d, at every point: above 0", "check_verdict": "refuted"}
        | {"at": "fig, J = 9", "value": -0.5, "low": -0.6},
        NICE,
        so | {"check": "e, on average: below 1", "check_verdict": "holds", "at": "fig"},
        so | {"check": "f, on average: below 1", "check_verdict": "not run", "missing": "fig-2"},
    )
    lines = recorded_verdicts(path).splitlines()[2:]
    assert lines == [
        "| X1 | Ours wins. | refuted (identity) | c minus d (fig, J = 9) | -0.5 (-0.6 to ?) "
        "| above 0 | before |",
        "| X2 | It is nice. | no verdict | a judgement |  |  |  |",
        "| X3 | It is so. | incomplete | f (missing: fig-2) |  | below 1 | after |",
    ]


def test_a_verdict_that_depends_says_what_each_reading_gives(tmp_path):
    path = tmp_path / "claims.csv"
    head = {"claim": "X1", "verdict": "depends", "says": "So.", "bound": "level, at least 0"}
    head |= {"fixed": "before"}
    write_claims(
        path,
        head
        | {"reading": "one", "check": "a, on average: level, at least 0"}
        | {"check_verdict": "holds"},
        head
        | {"reading": "two", "check": "b, on average: level, at least 0"}
        | {"check_verdict": "refuted"},
    )
    (line,) = recorded_verdicts(path).splitlines()[2:]
    assert (
        line == "| X1 | So. | depends | one: holds; two: refuted |  | level, at least 0 | before |"
    )


def test_what_stands_around_a_generated_part_stays(monkeypatch, tmp_path):
    folder = recorded(monkeypatch, tmp_path, "figure-1", {"seconds": {}})
    write_claims(folder / "claims.csv", NICE)
    page = Path("docs/findings/pfnm.md")
    write_text(
        page, "before\n\n<!-- from here: fedrepro documents -->\nold\n<!-- to here -->\nafter\n"
    )
    found = documents()[page]
    assert found.startswith("before\n\n<!-- from here")
    assert found.endswith("<!-- to here -->\nafter\n")
    assert "X2" in found
    assert "old" not in found
    assert Path("docs/performance.md") not in documents()
