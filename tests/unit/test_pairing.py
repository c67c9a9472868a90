"""Means over other trials do not stand side by side: they are refused, or paired and marked."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from small_exhibits import small
from synthetic import KEY, draw, plan, undrawn, workplace

from fedrepro.core.errors import FedreproError
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
UNPAIRED = [RIVALS[0], {"name": "average", "label": "A"}]
OF_NONE = [RIVALS[0], RIVALS[1] | {"paired_with": "V"}]


@pytest.mark.parametrize(
    ("methods", "more", "told"),
    [
        (UNPAIRED, {}, "say by `paired_with` which method"),
        (OF_NONE, {}, "of U, A"),
        (RIVALS, {"trials_of": {"A": 2, "U": 4}}, "'U' has 4 of 5 trials"),
        (RIVALS, {"paired": False}, r"'A' has 2 trials where others have 5.*paired: true"),
        (RIVALS, {"drawing": "accuracy-against-size"}, "not accuracy-against-size"),
    ],
)
def test_half_a_pair_is_refused(methods, more, told):
    third = {"name": "local", "label": "L"}
    with pytest.raises(FedreproError, match=told):
        small(methods=[*methods, third], **{"paired": True} | FEW | more)


def test_a_pair_is_marked_in_the_caption():
    exhibit = small(methods=RIVALS, paired=True, **FEW)
    assert exhibit.caption.startswith("a caption A, with 2 trials, is shown as U over all 5 plus")


def shown(*given):
    """Rows of (method, metric, values, place), with what is paired."""
    rows = []
    for method, metric, values, place in given:
        told = {"method": method, "metric": metric, "split": "test", "setting": method, "sd": 0.1}
        told |= {"mean": sum(values) / len(values), "trials": len(values)}
        rows.append(place | told | {"by_trial": " ".join(map(str, values))})
    pairs = small(methods=RIVALS, paired=True, **FEW).pairs
    return with_pairs(rows, list(place), pairs)


TWO, THIRD, U = {"clients": 2}, {"round": 3}, [0.9, 0.8, 0.5, 0.5, 0.5]


def test_a_paired_mean_is_the_others_mean_and_the_difference_within_trials():
    elsewhere = ("U", "accuracy", [0.1] * 5, {"clients": 4})
    rows = ("U", "accuracy", U, TWO), ("A", "accuracy", [0.8, 0.75], TWO), elsewhere
    first, second, _ = shown(*rows)
    assert (first["paired_mean"], first["paired_with"]) == (None, "")
    assert second["paired_mean"] == pytest.approx(0.64 - 0.075)  # 0.775 would be above U
    assert (second["paired_with"], second["mean"]) == ("U", pytest.approx(0.775))


def test_sizes_hang_on_no_trial():
    rows = ("U", "hidden_units", [50] * 5, TWO), ("A", "hidden_units", [9, 9], TWO)
    assert shown(*rows)[1]["paired_mean"] is None


def test_single_rounds_are_set_beside_what_the_other_ended_with():
    rows = ("U", "accuracy", U, TWO | {"round": None}), ("A", "accuracy", [0.4, 0.3], TWO | THIRD)
    assert shown(*rows)[1]["paired_mean"] == pytest.approx(0.64 - 0.5)


# ------------------------------------------------------------------- drawn again from the record


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
    monkeypatch.setattr(
        "fedrepro.stages.figures_and_pages.load_exhibits", lambda: load_exhibits(tmp_path)
    )
    with pytest.raises(FedreproError, match="figure-2a: the record has other methods, points"):
        redraw("tiny", [KEY])
