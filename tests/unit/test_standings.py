"""Scores with intervals, ranks and groups of methods by one test, and how often that test errs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrepro.numbers import significance_ranking as ranking

RECORD = Path(__file__).parents[2] / "reports/record/paper/arena/2.scenarios.csv"
BOUND = 0.07  # of errors, where 0.05 are meant
TRIALS = 5


def noise(seed: int, scenarios: int = 6, trials: int = TRIALS) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(scenarios, trials))


def stand(scores: dict[str, np.ndarray], line: np.ndarray | None = None):
    return {one.method: one for one in ranking.standings(scores, line)}


def test_the_baseline_scores_nothing_the_ceiling_one_and_no_difference_is_sure_by_chance() -> None:
    low, high = np.array([0.5, 0.6]), np.array([0.9, 0.8])
    for own, score in ((low, 0), ((low + high) / 2, 0.5), (high, 1)):
        assert ranking.scores_of(own, low, high).mean() == pytest.approx(score)
    assert ranking.estimate(np.zeros((3, 2))).chance == 1.0
    assert ranking.estimate(np.full((3, 2), 0.5)).chance == 0.0
    # one number says nothing of its scatter
    assert ranking.estimate(np.array([[1.0]])).high == np.inf
    assert ranking.estimate(np.array([[1.0], [1.1], [0.9]])).chance < 0.01  # a single trial


def test_errors_of_scenarios_and_of_trials_add_up() -> None:
    """Where trials agree it is Student's t over scenarios, where scenarios do over trials."""
    units = np.repeat(np.arange(4.0)[:, None], 5, axis=1)
    over_units = ranking.estimate(units)
    assert over_units.value == 1.5
    assert over_units.high - 1.5 == pytest.approx(3.182446 * np.arange(4.0).std(ddof=1) / 2)
    assert ranking.estimate(units, units=False).high == 1.5  # which then has no error at all
    over_trials = ranking.estimate(units.T, units=False)
    assert over_trials.high - 1.5 == pytest.approx(over_units.high - 1.5)
    both = ranking.estimate(units + np.arange(5.0))
    squares = np.arange(4.0).var(ddof=1) / 4, np.arange(5.0).var(ddof=1) / 5
    t = 3.182446  # of three degrees of freedom: Satterthwaite's are more than the units have
    assert both.high - both.value == pytest.approx(t * sum(squares) ** 0.5)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 6))
def test_equal_methods_share_a_group_and_their_intervals(seed: int, scenarios: int) -> None:
    same = noise(seed, scenarios)
    found = stand({"one": same, "two": same.copy(), "three": same.copy()}, same)
    assert {one.group for one in found.values()} == {1}
    assert {(one.rank_low, one.rank_high) for one in found.values()} == {(1, 3)}
    assert found["one"].not_significantly_different == ("three", "two")
    assert {one.verdict for one in found.values()} == {ranking.NOT_SHOWN}


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
def test_one_that_is_better_by_far_everywhere_is_alone(seed: int) -> None:
    scores = {"far": noise(seed) + 50, "a": noise(seed + 1), "b": noise(seed + 1)}
    found = stand(scores, noise(seed + 2) + 25)
    assert found == stand(dict(reversed(scores.items())), noise(seed + 2) + 25)
    assert (found["far"].group, found["far"].rank_low, found["far"].rank_high) == (1, 1, 1)
    assert found["far"].not_significantly_different == ()
    assert found["a"].group == found["b"].group == 2
    assert [found[name].verdict for name in ("far", "a", "b")] == ["better", "worse", "worse"]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 7), st.sampled_from([3, 4, 10]))
def test_no_row_contradicts_itself_or_another(seed: int, methods: int, scenarios: int) -> None:
    """Groups, ranks and what is beside the line follow from the same pairs."""
    rng = np.random.default_rng(seed)
    size = (scenarios, TRIALS)
    levels = [0.5 * at * rng.random() + 0.3 * rng.normal(size=size) for at in range(methods)]
    scores = {f"m{at}": level for at, level in enumerate(levels)}
    found = stand(scores, 0.3 * rng.normal(size=size))
    for one in found.values():
        alike = one.not_significantly_different
        others = [other for other in found.values() if other is not one]
        ahead = [o for o in others if o.method not in alike and o.score.value > one.score.value]
        assert one.rank_low == 1 + len(ahead)
        assert one.rank_high - one.rank_low == len(alike)
        assert (one.verdict == ranking.NOT_SHOWN) == (one.chance > ranking.LEVEL)
        assert all(one.method in found[name].not_significantly_different for name in alike)
        if one.rank_low == one.rank_high == 1:
            assert one.group == 1
            assert all(other.group > 1 for other in others)


def test_pairs_cancel_what_trials_share_and_without_units_only_trials_are_drawn_again() -> None:
    """The trials scatter by ten, and one method is better by a tenth in each."""
    common = 10 * noise(0)
    found = stand({"better": common + 0.1 + 0.001 * noise(1), "other": common})
    assert (found["better"].group, found["other"].group) == (1, 2)
    assert found["better"].score.high > found["other"].score.low  # intervals of each alone overlap
    # Two scenarios that are far apart, in each of which the trials agree which method leads.
    scores = {"a": noise(0, 2) * 0.01 + [[1.0], [0.1]], "b": noise(1, 2) * 0.01}
    assert {one.group for one in ranking.standings(scores, units=False)} == {1, 2}
    assert {one.group for one in ranking.standings(scores)} == {1}
    assert ranking.standings(scores, noise(2, 2), ranked=False)[0].group is None


def test_holm_groups_and_other_usual_tests_are_those_of_scipy() -> None:
    assert ranking.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert ranking.holm([0.01, 0.02, 0.05]) == pytest.approx([0.03, 0.04, 0.05])
    assert ranking.holm([0.5, 0.5]) == [1.0, 1.0]
    assert ranking.holm([]) == []
    assert ranking.standings({}) == []
    apart = np.zeros((4, 4), bool)
    apart[0, 2] = apart[2, 0] = apart[0, 3] = apart[3, 0] = True
    assert ranking.grouped([0, 1, 2, 3], apart) == {0: 1, 1: 1, 2: 2, 3: 2}
    # Two of three methods swap places; the third is last everywhere, and Wilcoxon's least chance
    # in twelve scenarios is below a third of the level.
    means = np.stack([noise(0, 12, 1).ravel(), noise(1, 12, 1).ravel(), np.full(12, -9.0)])
    for apart in ranking.usual_tests(means).values():
        assert apart.tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    few = ranking.usual_tests(means[:, :5])  # 2 / 2^5 is above the level whatever was measured
    assert not few["Wilcoxon"].any()


@pytest.fixture(scope="module")
def measured() -> dict[str, np.ndarray]:
    """Data set -> FedLPA less the best client on the record, (scenarios, trials)."""
    table = pd.read_csv(RECORD)
    table = table[(table["metric"] == "score") & (table["starts"] == "one start")]
    table = table[table["case"] != "all"].set_index(["data", "case", "clients"])
    ours, line = (
        table.loc[table["method"] == name, "by_trial"].str.split(expand=True).astype(float)
        for name in ("FedLPA", "best client")
    )
    assert ours.index.equals(line.index)
    return {str(data): own.to_numpy() for data, own in (ours - line).groupby("data", sort=False)}


class Record:
    """Scores of equal methods that scatter as the record's; share: of variance, the data set's."""

    def __init__(self, measured: dict[str, np.ndarray], share: float, *, shape: bool) -> None:
        self.sizes, self.shape = [len(rows) for rows in measured.values()], shape
        centred = [rows.mean(axis=1) - rows.mean() for rows in measured.values()]
        self.around = np.concatenate(centred)
        self.around *= np.sqrt(sum(self.sizes) / (sum(self.sizes) - len(self.sizes)))
        rest = np.concatenate([rows - rows.mean(1, keepdims=True) for rows in measured.values()])
        self.trial = rest.mean(axis=0).std(ddof=1)
        self.own = rest.std(ddof=1)
        self.share, self.rng = share, np.random.default_rng(0)

    def drawn(self, methods: int) -> list[np.ndarray]:
        """(methods, scenarios, trials) per data set; differences of methods have the scatter."""
        common = self._of(methods, 1, TRIALS, sd=self.trial)
        sd, tables = self.around.std(), []
        self.fixed = []  # of this what other trials would not change
        for size in self.sizes:
            scenario = self._of(methods, size, 1, sd=sd)
            if self.shape:  # all of it in the first method: a difference then has the shape itself
                scenario[:] = 0
                scenario[0, :, 0] = self.rng.choice(self.around, size)
            data = self._of(methods, 1, 1, sd=sd * self.share**0.5)
            own = self._of(methods, size, TRIALS, sd=self.own)
            self.fixed.append(data + (1 - self.share) ** 0.5 * scenario)
            tables.append(self.fixed[-1] + common + own)
        return tables

    def _of(self, *size: int, sd: float) -> np.ndarray:
        return self.rng.normal(size=size) * sd / 2**0.5


def errors(record: Record, methods: int, form, times: int) -> float:
    """How often at least one pair of so many equal methods is told apart."""
    drawn = (ranking.chances_of([*form(record.drawn(methods))]) for _ in range(times))
    return sum(bool((chances <= ranking.LEVEL).any()) for chances in drawn) / times


@pytest.mark.parametrize(
    ("methods", "times", "shape"),
    [
        *((2, 1500, False), (2, 1500, True), (9, 400, False)),
        pytest.param(9, 400, True, marks=pytest.mark.nightly),
    ],
)
def test_a_test_on_one_data_set_errs_seldom(measured, methods: int, times: int, shape: bool):
    """In ten, four and six scenarios; scenarios of the data set are drawn, and not the data set."""
    for at in range(3):
        record = Record(measured, 0.0, shape=shape)
        assert errors(record, methods, lambda tables, at=at: tables[at], times) < BOUND


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize(("methods", "times"), [(2, 1500), (9, 400)])
def test_a_test_over_data_sets_errs_seldom(measured, methods: int, times: int, share: float):
    """Also where half of the scenarios' variance is that of their data set."""
    record = Record(measured, share, shape=False)
    assert errors(record, methods, lambda of: np.stack([t.mean(1) for t in of], 1), times) < BOUND


def test_scenarios_taken_for_independent_would_err_often_and_intervals_over_trials_miss_seldom(
    measured,
):
    """So the simulation can tell."""
    record = Record(measured, 0.5, shape=False)
    assert errors(record, 2, lambda tables: np.concatenate(tables, axis=1), 400) > 0.2
    record, missed = Record(measured, 0.5, shape=False), 0
    for _ in range(1500):
        trials = np.concatenate(record.drawn(2), axis=1)
        found = ranking.estimate(trials[0] - trials[1] + 1, units=False)
        fixed = np.concatenate(record.fixed, axis=1)
        missed += not found.low <= (fixed[0] - fixed[1]).mean() + 1 <= found.high
    assert missed / 1500 < BOUND
