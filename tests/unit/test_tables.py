"""Tables: their texts in html, measured times, and means over other trials, which are paired."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from small_exhibits import small
from synthetic import KEY, ROOT, draw, plan, undrawn, workplace

from fedrepro.core.checksummed_files import read_json, write_json, write_table
from fedrepro.core.errors import FedreproError
from fedrepro.drawings.tables import TableRow, TextCell, TextTable, html, number_form, number_text
from fedrepro.numbers.exhibit_files import open_recorded
from fedrepro.numbers.run_times import times_of
from fedrepro.numbers.tables_and_selection import NUMBERS, csv_text, read_csv
from fedrepro.numbers.trial_statistics import as_shown
from fedrepro.planning.config_files import load_exhibits
from fedrepro.record.record_entries_and_leaderboards import record
from fedrepro.stages.figures_claims_and_pages import redraw

EVIL = "<b>\u2028A & \n\"B'"


def test_html_says_the_texts_and_nothing_else():
    """Escaped, and on one line."""
    table = TextTable(EVIL, (EVIL,), ((EVIL,),), (TableRow((EVIL,), (TextCell(EVIL),)),), (EVIL,))
    text = html(table)
    assert text.count("&lt;b&gt; A &amp; &quot;B&#x27;") == 6
    tags = set(re.findall(r"</?(\w+)", text))
    assert tags == {"table", "caption", "thead", "tbody", "tr", "th", "td", "ol", "li"}


@pytest.mark.parametrize(
    ("metric", "mean", "sd", "text"),
    [
        ("accuracy", 0.97123, 0.0034, "97.12 ± 0.34"),
        ("accuracy", 0.5, float("nan"), "50.00"),
        ("rounds", 1234.0, 0.0, "1,234 ± 0"),
        ("rounds", 18.4, float("nan"), "18.4"),
        ("seconds", 0.5, 0.25, "0.500 ± 0.250"),
    ],
)
def test_a_number_is_written_with_its_spread_in_its_unit(metric, mean, sd, text):
    assert number_text(number_form(metric), mean, sd) == text


def test_a_cell_has_its_number_lines_marks_and_footnote_and_alike_heads_span_columns():
    cell = TextCell("50.00 ± 1.00", ("7 units",), "49.00", "reproduced", best=True, notes=(1,))
    rows = (TableRow(("A",), (cell,), soft=True),)
    text = html(TextTable("", ("m",), (("J = 5",),), rows, ("why",)))
    for part in (
        '<td class="best verdict-reproduced">50.00 ± 1.00<sup>1</sup><span>7 units</span>'
        "<span>printed 49.00: reproduced</span></td>",
        '<tr class="reference">',
        "<li>why</li>",
    ):
        assert part in text
    heads = (("iid", "10"), ("iid", "50"), ("shards", "50"))
    table = TextTable("", ("C",), heads, (TableRow(("0",), (TextCell("1"),) * 3),))
    assert table.levels == [[("iid", 2), ("shards", 1)], [("10", 1), ("50", 1), ("50", 1)]]
    assert '<th scope="colgroup" colspan="2">iid</th>' in html(table)


METHODS = [
    {"name": "fedavg", "label": "FA", "rounds": 3},
    {"name": "fedadam", "label": "other", "rounds": 3},
]
TIMED = {"drawing": {"metric": "seconds", "split": ""}, "sweep": {"partition.clients": [2]}}


def timings(folder, *trials, **columns):
    """Seconds of each round of each trial in a run's folder; the path of its metrics."""
    given = {"trial": list(range(len(trials))), "round_seconds": list(trials)}
    write_table(folder / "timings.parquet", columns or given, "timings", {})
    return str(folder / "metrics.parquet")


def test_rounds_are_the_trials_of_times_and_overhead_is_over_the_first_method_or_refused(tmp_path):
    exhibit = small(methods=METHODS, trials=2, **TIMED)
    assert exhibit.timed
    # the first round of a trial, and further trials, are left out
    seconds = {"fedavg": [[9.0, 1.0, 3.0], [9.0, 2.0, 2.0]], "fedadam": [[9.0, 2.0, 3.0]] * 3}
    names = [run.method.name for run in exhibit.trials]
    paths = [[timings(tmp_path / name, *seconds[name])] for name in names]
    files = dict(zip(exhibit.trials, paths, strict=True))
    found = read_csv(csv_text(times_of(exhibit, files, ["clients", *NUMBERS])))
    by_label = found.set_index(["method", "metric"])
    other = by_label.loc[("other", "seconds")]
    assert (other["by_trial"], other["trials"]) == ("2 3 2 3", 4)
    assert by_label.loc[("FA", "overhead"), "mean"] == 0
    assert by_label.loc[("other", "overhead"), "mean"] == pytest.approx(25)
    exhibit = small(methods=METHODS[:1], trials=1, **TIMED)
    path = timings(tmp_path, trial=[0], seconds=[1.0])
    with pytest.raises(FedreproError, match="has no times of single rounds; delete its folder"):
        times_of(exhibit, {run: [path] for run in exhibit.trials}, ["clients", *NUMBERS])


__all__ = ["undrawn", "workplace"]


def files_of(key, reports="reports/record/tiny"):
    base = Path(f"{reports}/{key}")
    return {path.name: path.read_bytes() for path in base.parent.glob(f"{base.name}.*")}


@pytest.fixture
def recorded(workplace, undrawn):
    draw(plan(), KEY)
    record("tiny", [KEY])
    return files_of(KEY)


def test_the_csv_of_a_figure_says_what_is_paired(recorded):
    numbers = read_csv(recorded["figure-2a.csv"].decode())
    distilled = numbers[(numbers["method"] == "KD") & (numbers["metric"] == "accuracy")]
    assert set(distilled["paired_with"]) == {"U-Ens"}
    others = numbers[numbers["method"] != "KD"]
    assert others["paired_mean"].isna().all()
    drawn = as_shown(numbers)
    assert drawn.loc[distilled.index, "mean"].tolist() == distilled["paired_mean"].tolist()
    assert drawn.loc[distilled.index, "sd"].isna().all()
    assert drawn.loc[others.index, "mean"].tolist() == others["mean"].tolist()
    redraw("tiny", [KEY])
    assert files_of(KEY) == recorded
    old = read_json(at := f"reports/record/tiny/{KEY}.json")
    write_json(at, old | {"failed": {"m": ["m failed"]}})
    redraw("tiny", [KEY])
    assert "m failed" in read_json(at)["notes"]
    old["scenario"]["model"]["values"]["hidden"] = "9"
    write_json(at, old | {"seed": 1})
    with pytest.raises(FedreproError, match="than the config has, of seed 1, hidden: compute it"):
        redraw("tiny", [KEY])


@pytest.mark.parametrize("key", ["rm/entropy-term", "gems/table-7"])
def test_what_only_a_case_has_is_in_what_is_drawn_again(workplace, undrawn, key):
    made = plan()
    usual = {s.method.token for m in made.exhibit(key).measures for s in m.settings}
    draw(made, key)
    record("tiny", [key])
    before = files_of(key)
    methods = pq.read_table(f"reports/record/tiny/{key}.metrics.parquet")["method"].to_pylist()
    assert set(methods) - usual
    redraw("tiny", [key])
    assert files_of(key) == before


def test_measured_times_are_drawn_again_with_the_rest(workplace):
    key = "rm/table-4"
    Path("kept/paper/rm").mkdir(parents=True)
    before = files_of(key, ROOT / "reports/record/paper")
    for name, data in before.items():
        Path("kept/paper/rm", name).write_bytes(data)
    redraw("paper", [key], Path("kept"))
    after = files_of(key, "kept/paper")
    tables = [name for name in before if name.endswith("csv")]
    assert "table-4.times.csv" in tables
    assert [after[name] for name in tables] == [before[name] for name in tables]
    open_recorded(Path("kept/paper"), key, "paper").read(".times.csv")


def test_numbers_of_other_settings_are_not_drawn_again(recorded, monkeypatch, tmp_path):
    text = load_exhibits()["pfnm"].as_yaml()
    assert "partition.clients: [2, 4]" in text
    changed = text.replace("partition.clients: [2, 4]", "partition.clients: [2, 8]")
    (tmp_path / "pfnm.yaml").write_text(changed)
    stage = "fedrepro.stages.figures_claims_and_pages"
    monkeypatch.setattr(f"{stage}.load_exhibits", lambda: load_exhibits(tmp_path))
    with pytest.raises(FedreproError, match="figure-2a: the record has other methods, points"):
        redraw("tiny", [KEY])
