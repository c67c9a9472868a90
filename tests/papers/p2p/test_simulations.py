"""Simulations: beliefs against what is known of them, their stage, exhibits and generated nodes."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import jobs
import numpy as np
import pandas as pd
import pytest
from small_exhibits import file_of, small
from test_published_forms import arrays_of

from fedrepro.core.checksummed_files import read_provenance, read_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.metrics import MetricRow, Table
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.drawings.lines_and_layout import figure, rules
from fedrepro.numbers.tables_and_selection import summarise
from fedrepro.papers.p2p.methods import finite_beliefs_and_bounds as finite
from fedrepro.papers.p2p.methods import regression_beliefs
from fedrepro.papers.p2p.methods.regression_beliefs import Information
from fedrepro.planning.config_files import Config, load_exhibits
from fedrepro.planning.exhibit import exhibit_of
from fedrepro.planning.plan import Plan

W = np.array([[0.9, 0.1], [0.6, 0.4]])
NOISE = 0.64


@pytest.fixture
def draws() -> np.random.Generator:
    return np.random.default_rng(3)


def normalised(logs):
    """Beliefs that sum to one; algorithm 1 leaves them as they are."""
    return logs - np.log(np.exp(logs).sum(axis=-1, keepdims=True))


def learned(weights, likelihoods):
    """Beliefs after the samples of each step (steps, ..., N, M) and an exchange after each."""
    beliefs = 0.0
    for seen in likelihoods:
        beliefs = finite.mixed_beliefs(weights, beliefs + seen)
    return beliefs


@pytest.mark.parametrize("nodes", [1, 3])
def test_on_a_complete_graph_the_likelihood_is_taken_to_the_power_one_over_n(draws, nodes):
    """One node alone has the exact posterior."""
    likelihoods = np.log(draws.random((6, nodes, 4)))
    found = normalised(learned(np.full((nodes, nodes), 1 / nodes), likelihoods))
    pooled = normalised(likelihoods.sum(axis=(0, 1)) / nodes)
    assert found == pytest.approx(np.tile(pooled, (nodes, 1)), abs=1e-12)


def test_beliefs_are_those_of_the_recursion_of_the_proof(draws):
    """log rho(a)/rho(b) after n steps is sum_k sum_j (W^k)_ij z_j^(n-k+1): appendix A."""
    likelihoods = np.log(draws.random((7, 2, 2)))
    beliefs, ratios = (of[..., 0] - of[..., 1] for of in (learned(W, likelihoods), likelihoods))
    expected = sum(np.linalg.matrix_power(W, k) @ ratios[7 - k] for k in range(1, 8))
    assert beliefs == pytest.approx(expected, abs=1e-12)


def test_a_tie_is_an_error_and_an_estimate_leads_by_more_than_rounding():
    near, far = [finite.TIE, 0.0, -1.0], [3 * finite.TIE, 0.0, -1.0]
    logs = np.log([[0.4, 0.4, 0.2], [0.4, 0.3, 0.3], [0.2, 0.4, 0.4]])
    found = finite.learnt(np.array([*logs, near, far]), truth=0)
    assert found.tolist() == [False, True, False, False, True]


@pytest.mark.parametrize("nodes", [1, 4])
def test_on_a_complete_graph_precisions_are_those_of_all_data_divided_by_n(draws, nodes):
    """One node alone has the exact posterior."""
    features, targets = draws.normal(size=(9, nodes, 3)), draws.normal(size=(9, nodes))
    weights, beliefs = np.full((nodes, nodes), 1 / nodes), Information.prior(0.5, 3)
    for f, y in zip(features, targets, strict=True):  # one example a node, and an exchange
        own = regression_beliefs.observed(beliefs, f, y, NOISE)
        beliefs = regression_beliefs.mixed_information(weights, own)
    x, y = features.reshape(-1, 3), targets.reshape(-1)
    precision = np.eye(3) / 0.5 + x.T @ x / NOISE / nodes
    shift = x.T @ y / NOISE / nodes
    exact = {"precision": precision, "shift": shift, "covariance": np.linalg.inv(precision)}
    exact["mean"] = np.linalg.solve(precision, shift)
    for name, value in exact.items():
        for found in getattr(beliefs, name):
            assert found == pytest.approx(value, rel=1e-10), name


def test_the_expected_squared_error_is_that_of_many_new_examples(draws):
    means, truth = np.array([[0.1, 0.2, -0.4]]), np.array([-0.3, 0.5, 0.8])
    moments = np.diag([1, 1 / 3, 0.75])
    (exact,) = regression_beliefs.expected_squared_error(means, truth, moments, NOISE)
    x = draws.uniform(-1, 1, (200_000, 3)) * [0, 1, 1.5] + [1, 0, 0]
    y = x @ truth + draws.normal(0, NOISE**0.5, len(x))
    assert ((y - x @ means[0]) ** 2).mean() == pytest.approx(exact, rel=0.02)


C = np.log(0.7 / 0.3)
EVIDENCE = 0.4 * C  # of the node that sees a bit against the wrong value of it, in nats


def test_the_bounds_of_case_a():
    """W = [[.25, .75], [.75, .25]]: eigenvalue -1/2, S_W = 1."""
    problem = finite.Problem(nodes=2, parameters=4, range=C, rate=EVIDENCE / 2, delta=0.05)
    assert finite.printed_bound(problem, -0.5) == pytest.approx(1597, abs=1)
    assert finite.corrected_bound(problem, 1.0) == pytest.approx(4060, abs=1)
    # where mixing takes longest
    assert finite.corrected_bound(problem, 1e4) == pytest.approx(4 * C * 1e4 / (EVIDENCE / 2))


NOTHING = {"dataset": None, "partition": None, "model": None, "training": None, "sweep": {}}
ALONE = {"name": "regression_beliefs", "cooperation": "alone"}
NODES = [
    {**ALONE, "steps": 4, "every": 2, "repeats": 3, "label": f"node {i}", "node": i} for i in (1, 2)
]


def simulated(token: str):
    spec = parse_token("method", token)
    return spec.component.fn(rng=RngKey(0), **spec.values)


@pytest.mark.parametrize(
    ("cooperation", "errors"),
    [("alone", [1.126, 0.730]), ("graph", [0.650, 0.650]), ("central", [0.650])],
)
def test_errors_of_the_regression_after_200_samples(cooperation, errors):
    """By an independent simulation, each within 0.003."""
    values = {"cooperation": cooperation, "steps": 200, "every": 200, "repeats": 1000}
    token = components("method")["regression_beliefs"].spec(values).token
    assert simulated(token).rounds[200]["squared_error"] == pytest.approx(errors, abs=0.003)


def test_the_theorem_on_the_matrix_of_case_a_and_samples_that_graphs_need():
    whole = simulated("finite_beliefs+repeats~2")
    ended, short = whole.ended, simulated("finite_beliefs+repeats~2+steps~1600").ended
    assert ended["bound_printed"] == pytest.approx(1597, abs=1)
    assert ended["bound_corrected"] == pytest.approx(4060, abs=1)
    assert ended["modulus"] == pytest.approx(0.5)
    # errors stand at the bounds that are reached
    assert max(whole.rounds) == math.ceil(ended["bound_corrected"])
    assert {"error_at_printed", "error_at_corrected"} <= ended.keys()
    assert "error_at_printed" in short
    assert "error_at_corrected" not in short
    few, many, one, none = (
        simulated(f"finite_beliefs+{token}").ended["samples_needed"]
        for token in (
            *(f"graph~complete+nodes~{n}+repeats~200+steps~60" for n in (4, 16)),
            *("steps~60", "repeats~50+steps~3"),
        )
    )
    assert many < few
    assert one == pytest.approx(21, abs=2)
    assert none == math.inf


TOKEN = "regression_beliefs+every~2+repeats~3+steps~4"


def test_a_block_of_trials_has_a_row_for_each_node_and_step_and_the_same_bytes_twice(tmp_path):
    def tables(name, trials):
        files = {"--out": "metrics.parquet", "--timings": "timings.parquet"}
        out = [word for key, file in files.items() for word in (key, tmp_path / name / file)]
        words = ["--method", TOKEN, "--trials", trials, "--seed", "7", *map(str, out)]
        assert jobs.stage("simulate", *words) == 0
        table = read_table(Path(out[1]), "metrics")
        return out[1], table, table.to_pandas()

    (path, table, rows), (other, *_) = (tables(name, "0-1") for name in ("a", "b"))
    assert path.read_bytes() == other.read_bytes()
    assert set(rows["trial"]) == set(rows["client"]) == {0, 1}
    assert sorted(rows["round"].dropna().unique()) == [1, 2, 4]
    last, final = rows[rows["round"] == 4], rows[rows["phase"] == "final"]
    assert last["value"].tolist() == final["value"].tolist()
    source = read_provenance(table)
    assert (source["seed"], source["path"]) == (7, TOKEN)
    # trials are the same however they are cut into jobs
    *_, one = tables("one", "1")
    pd.testing.assert_frame_equal(rows[rows["trial"] == 1].reset_index(drop=True), one)


TABLE = {"drawing": "table"}
PANELS = {"name": "lines", "panels": [{"metric": "squared_error"}]}


def panels(**settings):
    return PANELS | {"panels": [{"metric": "squared_error"} | settings]}


STEPS = {"defaults": NOTHING, "drawing": PANELS, "methods": NODES}


def test_runs_of_a_simulation_are_shown_by_several_entries_and_need_no_data():
    exhibit, table = small(**STEPS), Table(())
    (run,) = exhibit.trials
    assert exhibit.points[0].scenario is None
    for setting in run.method.expand():
        for trial, node, done in itertools.product((0, 1), (0, 1), (None, 2)):
            place = {"client": node, "round": done}
            table.add([MetricRow(trial, setting, "squared_error", 10 * trial + node, **place)])
    numbers = summarise(exhibit, {run: table.arrow()}).numbers
    final = numbers[numbers["round"].isna()].set_index("method")["by_trial"].to_dict()
    assert final == {"node 1": "0 10", "node 2": "1 11"}
    plan = Plan(Config(), {"small": file_of(**STEPS)}, "tiny")
    (exhibit,) = plan.exhibits.values()
    (path,) = plan.metrics_files(exhibit)
    assert path.startswith("results/tiny/simulate/regression_beliefs-")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"dataset": {"name": "digits"}}, "the key 'partition' is missing"),
        (TABLE | {"methods": [{"name": "average"}]}, "is no simulation; these, and no"),
        ({"drawing": panels(dots="error")}, "none of its methods reports error"),
        ({"drawing": panels(of="node 3")}, "of shares of 'node 3', which is none of its methods"),
        ({"drawing": panels(along="steps")}, "along 'steps', which it neither sweeps nor shows"),
        ({"drawing": panels(along="case")}, "the number in each case's label, which not all have"),
        (TABLE | {"defaults": {}, "sweep": {}}, "is a simulation; these, and no others, leave"),
    ],
)
def test_a_mistake_is_a_sentence(settings, sentence):
    with pytest.raises(FedreproError, match=sentence):
        small(**STEPS | settings)


def test_bounds_stand_where_the_csv_has_them():
    exhibit, rows = exhibit_of(load_exhibits()["p2p"], "theorem-1", "paper"), []
    for at, point in enumerate(exhibit.points):
        (measure,) = point.measures
        for nodes in (setting["nodes"] for setting in measure.settings):
            ended = {"bound_printed": 100 + at, "bound_corrected": 200 + at}
            numbers = [(*item, None) for item in {**ended, "samples_needed": 7 + nodes}.items()]
            numbers += [("error", 1 / n, n) for n in (1, 10)]
            head = point.values["case"], nodes, "", 0, measure.label
            rows += [(*head, *number) for number in numbers]
    names = ["case", "nodes", "split", "sd", "method", "metric", "mean", "round"]
    with rules():
        left, right = figure(exhibit, pd.DataFrame(rows, columns=names)).axes
    upright = {
        line.get_xdata()[0] for line in left.lines if len(set(map(float, line.get_xdata()))) == 1
    }
    assert upright == {100, 101, 102, 200, 201, 202}
    assert len(right.lines) == 5
    assert list(right.lines[0].get_ydata()) == [11, 23, 71]


def test_nodes_see_one_coordinate_and_follow_the_papers_model(tmp_path: Path) -> None:
    arrays = arrays_of("p2p_nodes+examples~20000+test~20000", tmp_path)
    assert (arrays.kind, arrays.classes) == ("regression", ())
    assert arrays.group_names == ("node-1", "node-2")
    x, y, node = arrays.x["train"], arrays.y["train"], arrays.group("train")
    for number, (seen, slope, reach) in enumerate([(0, 0.5, 1), (1, 0.8, 1.5)]):
        own = node == number
        assert not x[own, 1 - seen].any()
        assert np.abs(x[own, seen]).max() == pytest.approx(reach, abs=0.01)
        design = np.stack([np.ones(own.sum()), x[own, seen]], 1)
        found, residual, *_ = np.linalg.lstsq(design, y[own], rcond=None)
        assert found == pytest.approx([-0.3, slope], abs=0.03)
        assert residual[0] / own.sum() == pytest.approx(0.64, abs=0.03)
    assert (arrays.group("test") == -1).all()
    assert arrays.x["test"].all(1).all()
    one, other = (arrays_of(f"p2p_nodes{more}", tmp_path).y["train"] for more in ("", "+draw~1"))
    assert not np.array_equal(one, other)
    assert arrays_of("p2p_nodes+view~central", tmp_path).x["train"].all()
