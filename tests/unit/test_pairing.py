"""Means over other trials do not stand side by side: they are refused, or paired and marked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from small_exhibits import small
from synthetic import KEY, draw, plan, undrawn, workplace

from fedrepro.core.errors import FedreproError
from fedrepro.drawings.figure_layout import names_of
from fedrepro.numbers.exhibit_files import open_recorded
from fedrepro.numbers.exhibit_tables import read_csv
from fedrepro.numbers.trial_statistics import as_shown, with_pairs
from fedrepro.planning.config import load_exhibits
from fedrepro.record.record_results import record
from fedrepro.stages.figures_and_pages import redraw

__all__ = ["undrawn", "workplace"]
ROOT = Path(__file__).parents[2]

RIVALS = [
    {"name": "uniform_ensemble", "label": "U"},
    {"name": "average", "label": "A", "paired_with": "U"},
]
FEW = {"trials": 5, "trials_of": {"A": 2}}


def test_an_exhibit_that_mixes_numbers_of_trials_is_refused():
    with pytest.raises(FedreproError, match=r"'A' has 2 trials where others have 5.*paired: true"):
        small(methods=RIVALS, **FEW)
    assert small(methods=RIVALS, trials=5).pairs == {}


@pytest.mark.parametrize(
    ("methods", "more", "told"),
    [
        ([RIVALS[0], {"name": "average", "label": "A"}], {}, "say by `paired_with` which method"),
        ([RIVALS[0], RIVALS[1] | {"paired_with": "V"}], {}, "of U, A"),
        (RIVALS, {"trials_of": {"A": 2, "U": 4}}, "'U' has 4 of 5 trials"),
    ],
)
def test_half_a_pair_is_refused(methods, more, told):
    third = {"name": "local", "label": "L"}
    with pytest.raises(FedreproError, match=told):
        small(methods=[*methods, third], paired=True, **FEW | more)


def test_pairs_are_for_drawings_that_mark_them():
    with pytest.raises(FedreproError, match="not accuracy-against-size"):
        small(methods=RIVALS, paired=True, drawing="accuracy-against-size", **FEW)


def test_a_pair_is_marked_in_legend_and_caption():
    exhibit = small(methods=RIVALS, paired=True, **FEW)
    assert names_of(exhibit) == {"U": "U", "A": "A (paired)"}
    assert exhibit.caption.startswith("a caption A, with 2 trials, is shown as U over all 5 plus")


def row(method, metric, values, **place):
    told = {"method": method, "metric": metric, "split": "test", "setting": method, "sd": 0.1}
    count, text = len(values), " ".join(map(str, values))
    return {**place, **told, "mean": sum(values) / count, "trials": count, "by_trial": text}


def shown(*rows):
    pairs = small(methods=RIVALS, paired=True, **FEW).pairs
    leading = [key for key in rows[0] if key in ("clients", "round")]
    return with_pairs(list(rows), leading, pairs)


def test_a_paired_mean_is_the_others_mean_and_the_difference_within_trials():
    u = row("U", "accuracy", [0.9, 0.8, 0.5, 0.5, 0.5], clients=2)
    a = row("A", "accuracy", [0.8, 0.75], clients=2)
    elsewhere = row("U", "accuracy", [0.1] * 5, clients=4)
    first, second, _ = shown(u, a, elsewhere)
    assert (first["paired_mean"], first["paired_with"]) == (None, "")
    assert second["paired_mean"] == pytest.approx(0.64 - 0.075)  # 0.775 would be above U
    assert second["paired_with"] == "U"
    assert second["mean"] == a["mean"]


def test_sizes_hang_on_no_trial():
    rows = shown(
        row("U", "hidden_units", [50] * 5, clients=2), row("A", "hidden_units", [9, 9], clients=2)
    )
    assert rows[1]["paired_mean"] is None


def test_single_rounds_are_set_beside_what_the_other_ended_with():
    u = row("U", "accuracy", [0.9, 0.8, 0.5, 0.5, 0.5], clients=2, round=None)
    a = row("A", "accuracy", [0.4, 0.3], clients=2, round=3)
    assert shown(u, a)[1]["paired_mean"] == pytest.approx(0.64 - 0.5)


# ------------------------------------------------------------------- drawn again from the record

BASE = Path(f"reports/record/tiny/{KEY}")


@pytest.fixture
def recorded(workplace, undrawn):
    draw(plan(), KEY)
    record("tiny", [KEY])
    return {path.name: path.read_bytes() for path in BASE.parent.glob("figure-2a.*")}


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


def test_what_is_drawn_again_from_the_record_is_the_same(recorded):
    redraw("tiny", [KEY])
    after = {path.name: path.read_bytes() for path in BASE.parent.glob("figure-2a.*")}
    assert after == recorded


@pytest.mark.parametrize("key", ["rm/entropy-term", "gems/table-7"])
def test_what_only_a_case_has_is_in_what_is_drawn_again(workplace, undrawn, key):
    made = plan()
    exhibit = made.exhibit(key)
    usual = {setting.method.token for m in exhibit.measures for setting in m.settings}
    draw(made, key)
    record("tiny", [key])
    base = Path(f"reports/record/tiny/{key}")
    before = {path.name: path.read_bytes() for path in base.parent.glob(f"{base.name}.*")}
    methods = pq.read_table(f"{base}.metrics.parquet")["method"].to_pylist()
    assert set(methods) - usual
    redraw("tiny", [key])
    assert {path.name: path.read_bytes() for path in base.parent.glob(f"{base.name}.*")} == before


def test_measured_times_are_drawn_again_with_the_rest(workplace, tmp_path):
    key, kept = "rm/table-4", tmp_path / "kept"
    (kept / "paper/rm").mkdir(parents=True)
    for path in ROOT.glob(f"reports/record/paper/{key}.*"):
        shutil.copy(path, kept / "paper/rm")
    before = {path.name: path.read_bytes() for path in (kept / "paper/rm").glob("table-4.*csv")}
    assert "table-4.times.csv" in before
    redraw("paper", [key], kept)
    assert {name: (kept / "paper/rm" / name).read_bytes() for name in before} == before
    open_recorded(kept / "paper", key, "paper").read(".times.csv")


def test_numbers_of_other_settings_are_not_drawn_again(recorded, monkeypatch, tmp_path):
    text = load_exhibits()["pfnm"].as_yaml()
    assert "partition.clients: [2, 4]" in text
    changed = text.replace("partition.clients: [2, 4]", "partition.clients: [2, 8]")
    (tmp_path / "pfnm.yaml").write_text(changed)
    monkeypatch.setattr(
        "fedrepro.stages.figures_and_pages.load_exhibits", lambda: load_exhibits(tmp_path)
    )
    with pytest.raises(FedreproError, match="figure-2a: the record has other methods, points"):
        redraw("tiny", [KEY])
