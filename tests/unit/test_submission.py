"""fedrepro submit and verify: an honest entry holds, and each alteration is found out."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import once
import pandas as pd
import pyarrow as pa
import pytest

from fedrepro.cli.main import main, name_configured
from fedrepro.core import checksummed_files as artifacts
from fedrepro.core import user_component_files as component_files
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.planning.config_files import load_config, load_exhibits
from fedrepro.planning.plan import Plan
from fedrepro.record.record_entries_and_leaderboards import entries_in, record, write_board
from fedrepro.record.site.pages import page as rendered
from fedrepro.record.site.report_data import read_reports
from fedrepro.stages import submissions
from fedrepro.stages.figures_claims_and_pages import draw_exhibit
from fedrepro.stages.snakemake_in_folder import compute, start

PAGE = (Path(__file__).parents[2] / "docs/adding-a-method.md").read_text()
MEDIAN = next(c for c in re.findall(r"```python\n(.*?)```", PAGE, re.S) if '@method("median"' in c)
SAYS = {"name": "median", "label": "median of others"}
PLACE = Path("reports/record/tiny/mini/1.entries/median")
# a convolution, so that nothing has to be compiled: where QEMU plays a processor that takes minutes
BOARD = """
paper: mini
title: A small leaderboard
source: tests
boards:
  "1": {title: small, baseline: FedAvg, ceiling: pooled, line: best}
exhibits:
  1-digits:
    title: Digits
    place: nowhere
    caption: None.
    drawing: {name: table, rows: [method], columns: [case], sizes: false}
    dataset: {name: digits}
    model: {name: cnn, channels: [2], kernel: 3, hidden: [4], bias: false}
    training: {name: sgd, epochs: 1, batch_size: 64, init: fan_in, shared_init: true}
    partition: {name: dirichlet, alpha: 0.5, validation: 100, validation_at: clients}
    sweep: {partition.clients: [2]}
    trials: 2
    cases:
      one: {label: alpha 0.5}
      iid: {label: iid, partition: {name: iid, validation: 100, validation_at: clients}}
    methods:
      - {name: average, label: FedAvg}
      - {name: pooled, label: pooled, reference: true}
      - {name: best_client, label: best, reference: true}
"""


@contextmanager
def working_in(place: Path) -> Iterator[Path]:
    """In a folder, with what its configuration names and nothing else."""
    with chdir(place), pytest.MonkeyPatch.context() as patch:
        patch.setenv(component_files.NAMED, "")  # and back to what it was
        del os.environ[component_files.NAMED]
        name_configured()
        yield place
    components("method")


def computed(place: Path) -> None:
    """The leaderboard with the method, its entry, and the leaderboard of a record without it."""
    start(place / "mine")
    with chdir(place / "mine"):
        Path("config/exhibits").mkdir(exist_ok=True)
        Path("config/exhibits/mini.yaml").write_text(BOARD)
        Path("median.py").write_text(MEDIAN)
        own = {"components": ["median.py"], "also": {"mini": [SAYS]}}
        Path("config/config.yaml").write_text(json.dumps(own))
    with working_in(place / "mine"):
        compute(["reports/tiny/mini/1.csv"], 1, own=True)
        assert main(["submit", "mini/1", "--scale", "tiny", "--by", "a test"]) == 0
        config = load_config().model_copy(update={"also": {}})
        plan = Plan(config, load_exhibits(of=["mini/1"]), "tiny")
        draw_exhibit("mini/1-digits", plan, Path("reports/tiny/mini/1-digits"))
        record("tiny", ["mini/1-digits"])
    # and the folder of who keeps the leaderboard
    start(place / "kept")
    for name in ("config/exhibits", "reports/record"):
        shutil.copytree(place / "mine" / name, place / "kept" / name, dirs_exist_ok=True)
    shutil.rmtree(place / "mine/reports/record")


@pytest.fixture
def kept(tmp_path) -> Iterator[Path]:
    """The folder of who keeps the leaderboard; the entry lies there."""
    shutil.copytree(once.folder("submission", computed) / "kept", tmp_path / "kept")
    with working_in(tmp_path / "kept") as place:
        yield place


def rewritten(name: str, **changes: object) -> None:
    """A json of the entry with other words."""
    artifacts.write_json(PLACE / name, artifacts.read_json(PLACE / name) | changes)


def with_number(value: float) -> None:
    """Rewrite the first accuracy, as fedrepro itself would have written it."""
    path = min(PLACE.glob("results/**/metrics.parquet"))
    source, table = artifacts.read_source(path), artifacts.read_table(path, "metrics")
    values = table["value"].to_pylist()
    values[table["metric"].to_pylist().index("accuracy")] = value
    column = table.column_names.index("value")
    table = table.set_column(column, "value", pa.array(values, pa.float64()))
    artifacts.write_table(path, table.replace_schema_metadata(), "metrics", source)


def redrawn() -> None:
    """Draw the entry's exhibit again, from metrics that may have been altered."""
    entry = submissions.read_entry(PLACE)
    component_files.set_files([str(PLACE.absolute() / "median.py")])
    file = submissions.exhibit_file_of(load_exhibits()["mini"], entry.says)
    with chdir(PLACE):
        plan = Plan(entry.config(), {"mini": file}, "tiny")
        draw_exhibit("mini/1-digits", plan, Path("mini/1-digits"))
    component_files.set_files([])


def verified(*words: str) -> int:
    return main(["verify", str(PLACE), "--cores", "1", *words])


@pytest.mark.long
def test_an_altered_number_is_found_out_also_where_all_else_follows_from_it(kept, capsys):
    with_number(0.987)
    assert verified("--runs", "0") == 1
    assert "1-digits.csv does not follow from the entry's metrics" in capsys.readouterr().out
    redrawn()
    assert submissions.verify(PLACE, 0, 0).runs == 2
    methods = artifacts.read_json(PLACE / "mini/1-digits.json")["methods"]
    rewritten("mini/1-digits.json", methods=[methods[0] | {"sends": "nothing"}])
    assert verified("--runs", "all") == 1
    said = capsys.readouterr().out
    assert "1-digits.json does not follow" in said
    assert "accuracy: 0.987 in the entry, 0." in said
    assert "does not hold: 2 of 2 files of metrics were computed again" in said
    assert not (PLACE / "verdict.json").exists()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"says": SAYS | {"settings": [{"trim": 0.1}]}}, "unknown parameter 'trim'"),
        ({"says": SAYS | {"epochs": 3}}, "cannot set 'epochs', by which it would stand on another"),
        ({"says": {"name": "medina"}}, "unknown method 'medina'"),
        ({"seed": 1}, "lacks results/tiny/aggregate/digits-median-.*, which its exhibits"),
        ({"exhibits": ["mini/1-letters"]}, "unknown exhibit 'mini/1-letters'"),
        ({"exhibits": ["minor/1-digits"]}, "unknown leaderboard 'minor'"),
        ({"file": "../median.py"}, r"entry\.json: 'file' is .*; string should match"),
    ],
)
def test_what_cannot_be_verified_is_a_sentence(kept, changes, why):
    rewritten("entry.json", **changes)
    with pytest.raises(FedreproError, match=why):
        submissions.verify(PLACE, 0, 0)


def test_a_changed_method_is_refused(kept):
    (PLACE / "median.py").write_text(MEDIAN.replace("np.median", "np.no_median"))
    told = "author again .*is of median;v1-.*, which is median;v1-.* now"
    with pytest.raises(FedreproError, match=told):
        submissions.verify(PLACE, 1, 0)


def test_a_file_may_be_named_as_any_method(kept):
    (PLACE / "median.py").rename(PLACE / "Me-dian.py")
    rewritten("entry.json", file="Me-dian.py")
    assert submissions.verify(PLACE, 0, 0).runs == 2


def board() -> pd.DataFrame:
    return pd.read_csv("reports/record/tiny/mini/1.csv").set_index("method")


@pytest.mark.long
def test_rows_say_who_computed_them_and_reported_ones_change_nothing(kept, capsys):
    label, entry = SAYS["label"], PLACE.rename("aside")
    record, file = Path("reports/record/tiny"), load_exhibits()["mini"]
    write_board(file, "1", "tiny", record)
    before = {path: path.read_bytes() for path in record.glob("mini/1*.*") if path.is_file()}
    without = board()
    assert "computed" not in without
    shutil.copytree(entry, PLACE)
    assert verified("--runs", "0", "--enter") == 0
    table = board()
    here = dict.fromkeys(without.index, "computed here")
    assert table["computed"].to_dict() == here | {label: "reported"}
    assert table.loc[label, "without_rank"] == "reported by others, not verified"
    assert table.drop(index=label).drop(columns="computed").equals(without)
    # the picture does not show what nobody here has seen
    assert label.encode() not in Path(record, "mini/1.groups.svg").read_bytes()
    (paper,) = read_reports(record, "tiny", ["mini/1-digits"]).papers
    given = {"shown": paper.boards[0], "links": {}, "guide": "", "later": ""}
    page = rendered("board.md", up="../", **given)
    assert "Some rows are entries of others." in page
    assert "<i>reported</i>" in next(line for line in page.split("<tr>") if label in line)
    assert ">here<" in next(line for line in page.split("<tr>") if "<td>FedAvg</td>" in line)

    assert verified("--runs", "1", "--seed", "3", "--enter") == 0
    told = "1 of 2 files of metrics were computed again (--seed 3), with the same bytes"
    assert told in capsys.readouterr().out
    assert board().loc[label, "computed"] == "verified"
    assert pd.notna(board().loc[label, "score"])
    (PLACE / "median.py").write_text(MEDIAN + "\n")
    with pytest.raises(FedreproError, match="it is not what its verdict is of"):
        entries_in(record, "mini", "1", "tiny")
    assert (PLACE / "verdict.json").exists()
    submissions.enter(PLACE, submissions.Verdict(2, [], []), 0)
    assert board().loc[label, "computed"] == "reported"  # no verdict of before is believed
    shutil.rmtree(PLACE)
    write_board(file, "1", "tiny", record)
    assert {path: path.read_bytes() for path in before} == before


def test_no_entry_and_entries_at_no_leaderboard_or_with_another_label_are_refused(kept, tmp_path):
    verdict = submissions.Verdict(2, ["results/x"], [])
    PLACE.rename("aside")
    with pytest.raises(FedreproError, match="lies at no leaderboard: move it to"):
        submissions.enter(Path("aside"), verdict, 0)
    Path("aside").rename(PLACE)
    rewritten("entry.json", says=SAYS | {"label": "FedAvg"})
    redrawn()
    with pytest.raises(FedreproError, match="'FedAvg', as another method of the leaderboard"):
        submissions.enter(PLACE, verdict, 0)
    assert not (PLACE / "verdict.json").exists()
    for wrong in (tmp_path, tmp_path / "gone"):
        with pytest.raises(FedreproError, match=r"has no entry\.json: name a folder that"):
            submissions.verify(wrong, 0, 0)
    (tmp_path / "entry.json").write_text('{"by": ')
    with pytest.raises(FedreproError, match="get the folder from its author again"):
        submissions.verify(tmp_path, 0, 0)


def test_what_cannot_be_submitted_is_a_sentence(tmp_path, capsys):
    shutil.copytree(once.folder("submission", computed) / "mine", tmp_path / "mine")
    with working_in(tmp_path / "mine"):
        words = ["submit", "mini/1", "--scale", "tiny"]
        for said, told in (
            ([*words[:3], "quick"], "mini/1-digits is not computed whole with 'median'"),
            (["submit", "minor/1"], "unknown leaderboard 'minor/1'"),
            (["submit", "pfnm/figure-2a"], "unknown leaderboard 'pfnm/figure-2a'"),
        ):
            assert main(said) == 2
            assert told in capsys.readouterr().err
        Path("median.py").write_text(MEDIAN + "\n# another\n")
    with working_in(tmp_path / "mine"):
        assert main(words) == 2
        assert "median.py changed since its runs" in capsys.readouterr().err
        assert not PLACE.exists()
