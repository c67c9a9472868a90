"""Parts of documents that are generated from what is recorded."""

from __future__ import annotations

from pathlib import Path

from fedrepro.artifacts import write_json, write_text
from fedrepro.cli.documents import documents, recorded_costs, recorded_verdicts
from fedrepro.exhibits.files import sha256_of

HEAD = "claim,verdict,place,says,check,check_verdict,at,value,low,high,bound,points,reason,data\n"


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
    path.write_text(
        HEAD
        + 'X1,refuted,p,Ours wins.,"a minus b, at every point: above 0",holds,"fig, J = 5",'
        + "0.25,0.2,0.3,above 0,2,r,\n"
        + 'X1,refuted,p,Ours wins.,"c minus d, at every point: above 0",refuted,"fig, J = 9",'
        + "-0.5,-0.6,,above 0,2,r,\n"
        + "X2,no verdict,p,It is nice.,,,,,,,,,a judgement,\n"
        + 'X3,not run,p,It is so.,"e, on average: below 1",not run,,,,,below 1,,r,\n'
    )
    lines = recorded_verdicts(path).splitlines()[2:]
    assert lines == [
        "| X1 | Ours wins. | refuted | c minus d (fig, J = 9) | -0.5 (-0.6 to ?) | above 0 |",
        "| X2 | It is nice. | no verdict | a judgement |  |  |",
        "| X3 | It is so. | not run | e (not run) |  | below 1 |",
    ]


def test_what_stands_around_a_generated_part_stays(monkeypatch, tmp_path):
    folder = recorded(monkeypatch, tmp_path, "figure-1", {"seconds": {}})
    (folder / "claims.csv").write_text(HEAD + "X2,no verdict,p,It is nice.,,,,,,,,,a judgement,\n")
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
