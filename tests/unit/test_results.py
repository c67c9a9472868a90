"""One table of results, and the columns that tell a final value from one of a round."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from scipy import stats
from synthetic import KEY, ROOT, draw, made_once, plan, plausible, rewrite, undrawn, workplace

import fedrepro
from fedrepro.cli import printing
from fedrepro.cli.main import main
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import LEADING
from fedrepro.core.provenance import same_bytes
from fedrepro.numbers import method_results_and_differences as found_results
from fedrepro.numbers.exhibit_files import whole_exhibits

__all__ = ["undrawn", "workplace"]
RECORD = ROOT / "reports/record"
pytestmark = pytest.mark.usefixtures("workplace", "undrawn")


def values(token: str, clients: int, trial: int, metric: str, split: str) -> float:
    """The settings of PFNM differ in training accuracy alone."""
    if token.startswith("pfnm") and split == "train":
        return 0.9 if token == "pfnm+sigma2~0.5" else 0.8
    return plausible(token, clients, trial, metric, split)


@pytest.fixture
def drawn(workplace, undrawn):
    made_once("results", lambda: draw(plan(), KEY, values))
    return workplace


def test_every_file_of_metrics_has_the_same_leading_columns(drawn):
    """Of the same metric and split only phase and round tell a final value from a round's."""
    made = plan()
    paths = [*made.metrics_files(made.exhibit(KEY)), f"reports/tiny/{KEY}.metrics.parquet"]
    for path in paths:
        assert tuple(pq.read_schema(path).names[: len(LEADING)]) == LEADING
    frame = pd.read_parquet(paths[-1])
    assert (frame["phase"] == np.where(frame["round"].isna(), "final", "round")).all()
    assert (frame["method"] == frame["setting"]).all()
    keys = ["trial", "setting", "metric", "split", "client", "partition_clients", "partition_name"]
    assert not frame[frame["round"].isna()].duplicated(keys).any()
    assert frame.duplicated(keys).any()


def test_what_was_drawn_before_is_shown_on_if_it_is_whole(drawn):
    keys = list(plan().exhibits)
    assert whole_exhibits(Path("reports/tiny"), keys, "tiny") == [KEY]
    Path(f"reports/tiny/{KEY}.png").unlink()
    assert whole_exhibits(Path("reports/tiny"), keys, "tiny") == []


PLACE = ["dataset", "partition", "model", "training", "method", "setting"]


def test_the_table_has_every_method_in_every_scenario_with_its_chosen_setting(drawn):
    exhibit, table = plan().exhibit(KEY), fedrepro.results("tiny")
    assert set(table["same_bytes"]) == {"yes"}
    accuracy = table[(table["metric"] == "accuracy") & (table["split"] == "test")]
    labels = [measure.label for measure in exhibit.measures]
    wanted = [(point.scenario.clients, name) for point in exhibit.points for name in labels]
    assert sorted(zip(accuracy["clients"], accuracy["method"], strict=True)) == sorted(wanted)
    assert set(table[table["method"] == "PFNM"]["setting"]) == {"pfnm+sigma2~0.5"}
    first, scenario = accuracy.iloc[0], exhibit.points[0].scenario
    for kind in ("dataset", "partition"):
        assert first[kind] == getattr(scenario, kind).token


def test_numbers_of_two_exhibits_stand_once_and_of_some_examples_with_those_of_none(drawn):
    draw(plan(), "pfnm/figure-2", values)
    table = fedrepro.results("tiny")
    assert not table.duplicated([*PLACE, "metric", "split", "trials"]).any()
    assert {"pfnm/figure-2 pfnm/figure-2a", "pfnm/figure-2a pfnm/figure-2"} & set(table["exhibits"])
    assert set(found_results.results("tiny", split="test")["split"]) == {"test", ""}


def test_it_fits_a_terminal(drawn, monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, width=80, force_terminal=True, highlight=False)
    monkeypatch.setattr(printing, "console", console)
    assert main(["results", "--scale", "tiny"]) == 0
    bare = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    rows = [line for line in bare.splitlines() if line.startswith(("│", "┃", "┏", "└"))]
    assert 0 < max(map(len, rows)) <= 80
    assert "dataset: digits" in bare
    # every number of the table stands somewhere, whole
    numbers = {f"{value:.6g}" for value in fedrepro.results("tiny")["mean"]}
    assert numbers <= set(bare.replace("│", " ").split())


def test_some_of_it_is_asked_for_by_exhibit_method_and_metric_as_csv(drawn, capsys):
    whole = found_results.results("tiny", exhibit="pfnm")
    assert set(whole["exhibits"]) == {KEY}
    words = ["--metric", "accuracy", "--method", "PFNM", "--exhibit", KEY]
    assert main(["results", "--scale", "tiny", "--csv", *words]) == 0
    some = pd.read_csv(io.StringIO(capsys.readouterr().out))
    own = whole[(whole["method"] == "PFNM") & (whole["metric"] == "accuracy")]
    assert 0 < len(some) == len(own) < len(whole)
    assert some["mean"].tolist() == pytest.approx(own["mean"].tolist())
    assert len(found_results.results("tiny", method="pfnm", metric="accuracy")) == len(own)
    told = [heading for heading, _ in found_results.scenario_blocks(whole)]
    assert len(set(told)) == len(told) > 1  # each scenario once


@pytest.mark.parametrize(
    ("only", "sentence"),
    [
        ({"method": "PFMN"}, "did you mean 'PFNM'"),
        ({"metric": "accurcy"}, "did you mean 'accuracy'"),
        ({"exhibit": "pfnm/figure-9"}, "unknown exhibit 'pfnm/figure-9'"),
        ({"split": "tst"}, "unknown split 'tst'"),
    ],
)
def test_what_is_not_there_is_a_sentence(drawn, only, sentence):
    with pytest.raises(FedreproError, match=sentence):
        found_results.results("tiny", **only)


def by_trial(token, clients, trials):
    return [values(token, clients, trial, "accuracy", "test") for trial in range(trials)]


def test_two_methods_are_compared_trial_by_trial(drawn):
    found = found_results.paired_differences("tiny", "PFNM", "downpour_sgd", Path("reports"))
    assert set(found["exhibit"]) == {KEY}
    assert len(found) == len(plan().exhibit(KEY).points)
    for row in found.itertuples():
        place = int(row.clients), row.trials
        apart = np.subtract(*(by_trial(one, *place) for one in ("pfnm+sigma2~0.5", "downpour_sgd")))
        assert (row.method, row.other_method) == ("PFNM", "D-SGD")
        assert row.difference == pytest.approx(apart.mean(), abs=1e-9)
        wanted = stats.ttest_1samp(apart, 0).confidence_interval(0.95)
        assert (row.low, row.high) == pytest.approx(tuple(wanted))


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("accuracy", "A is better than B at 1 of 4 points, worse at 2, and not separated at 1"),
        ("bytes_up", "A is better than B at 2 of 4 points, worse at 1, and not separated at 1"),
        ("epochs", "A is larger than B at 1 of 4 points, smaller at 2, and not separated at 1"),
    ],
)
def test_a_comparison_says_at_how_many_points_an_interval_is_beyond_zero(metric, words):
    ends = {"difference": [0.2, -0.2, -0.3, 0.1]}
    ends |= {"low": [0.1, -0.3, -0.4, -0.1], "high": [0.3, -0.1, -0.2, 0.3]}
    assert found_results.paired_verdict(pd.DataFrame(ends), metric, "A", "B").startswith(words)
    lost = pd.DataFrame({key: [math.nan] * 2 for key in ends} | {"difference": [1.0, math.inf]})
    lost.loc[0] = math.nan
    said = found_results.paired_verdict(lost, metric, "A", "B")
    assert "without a number at 2, and not separated at 0" in said


def test_runs_that_two_exhibits_show_are_compared_once():
    """On the record: figure 2 of PFNM joins the points of 2a to 2d."""
    found = found_results.paired_differences("paper", "PFNM", "U-Ens", RECORD, exhibit="pfnm")
    assert not found.duplicated(["one", "other", "difference"]).any()
    assert not {"pfnm/figure-2", "pfnm/figure-2a"} <= set(found["exhibit"])


def test_what_is_measured_on_no_examples_is_compared_too():
    only = {"metric": "bytes_up", "exhibit": "arena/1-fashion-mnist-skewed"}
    found = found_results.paired_differences("paper", "RegMean", "FedAvg", RECORD, **only)
    assert (found["low"] > 0).all()
    assert len(found) == 2  # sizes are equal at both points


def test_a_method_is_found_by_its_components_name_where_its_model_is_tuned(monkeypatch, capsys):
    """Its settings read local;tune+... and fedavg;training+..., not local+... alone."""
    monkeypatch.chdir(ROOT)
    key = "gems/table-5-mnist"
    only = {"metric": "accuracy", "split": "test", "exhibit": key}
    tuned = found_results.paired_differences("paper", "local", "gems_convex", RECORD, **only)
    assert set(tuned["method"]) == {"Local", "Local tuned"}
    table = found_results.results("paper", reports=RECORD, method="local", **only)
    assert set(table["method"]) == {"Local", "Local tuned"}
    options = ["--exhibit", key, "--reports", str(RECORD), "--scale", "paper"]
    assert main(["results", "--method", "local", *options]) == 0
    assert "│ tune │" in " ".join(capsys.readouterr().out.split())


def test_the_comparison_is_a_table_and_a_sentence(drawn, capsys):
    assert main(["compare", "PFNM", "D-SGD", "--scale", "tiny"]) == 0
    said = capsys.readouterr().out
    assert f"{KEY}: clients" in said
    last = said.splitlines()[-1]
    points = int(re.search(r"of (\d+) points", last)[1])
    assert sum(map(int, re.findall(r"at (\d+)", last))) == points == len(plan().exhibit(KEY).points)


@pytest.mark.parametrize(
    ("methods", "options", "sentence"),
    [
        (["PFNM", "nobody"], {}, "unknown method 'nobody'"),
        (["PFNM", "pfnm"], {}, "PFNM is named twice"),
        (["PFNM", "fedavg"], {}, "of both PFNM and fedavg"),
        (["PFNM", "D-SGD"], {"metric": "accurcy"}, "unknown metric"),
        (["PFNM", "D-SGD"], {"split": "nowhere"}, "accuracy nowhere of both PFNM and D-SGD"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_a_sentence(drawn, methods, options, sentence):
    with pytest.raises(FedreproError, match=sentence):
        found_results.paired_differences("tiny", *methods, Path("reports"), **options)


def test_nothing_drawn_and_an_older_drawing_are_sentences(workplace, capsys):
    with pytest.raises(FedreproError, match="by --reports reports/record --scale paper"):
        found_results.results("tiny")
    base = draw(plan(), KEY)
    text = Path(f"{base}.csv").read_text().replace("\n2,", "\n3,")
    rewrite(base, ".csv", text.encode())
    assert main(["results", "--scale", "tiny"]) == 0
    assert "was drawn with other settings than the config has now" in capsys.readouterr().err


def test_the_lines_of_the_guide_run_as_they_are_written(workplace):
    draw(plan("quick"), KEY)
    text = (ROOT / "docs/using.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert [block.split()[1] for block in blocks] == ["pandas", "duckdb"]
    pivot, every = (run_line(block) for block in blocks)
    at = every.columns.index("partition_clients")
    rows = {(row[-2], row[at]): row[-1] for row in every.fetchall()}
    points = plan("quick").exhibit(KEY).points
    trials = range(points[0].trials["D-SGD"])
    for clients in (point.scenario.clients for point in points):
        final = [plausible("downpour_sgd", clients, t, "accuracy", "test") for t in trials]
        assert pivot.loc["downpour_sgd", clients] == pytest.approx(sum(final) / len(final))
        assert rows["downpour_sgd", clients] == pytest.approx(sum(final) / len(final))


def run_line(block: str):
    """What the last line of a block evaluates to."""
    head, _, line = block.partition("\n")
    names: dict[str, object] = {}
    exec(head, names)
    return eval(line.strip(), names)


MADE = {"arithmetic": "portable", "device": "cpu"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "yes"),
        ({"components": {"model": ["cnn;v1;bias~true"]}}, "cnn changed since v1"),
        ({"components": {"method": ["gone;v1;"]}}, "gone changed since v1"),
        ({"components": {"dataset": ["mnist;v1;features~convnet"]}}, "convnet changed since v1"),
        ({"computed": [MADE, {"device": "cpu"}]}, "libraries not pinned"),
        ({"computed": [MADE | {"device": "H100"}]}, "on H100"),
    ],
)
def test_an_exhibit_says_whether_its_bytes_come_out_again(change, told):
    now = {"computed": [MADE], "components": {"model": ["mlp;v1;hidden~100"]}}
    assert same_bytes(now | change) == told
