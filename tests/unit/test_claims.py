"""Claims: every form finds its value, and every verdict is reached, on tables made for it."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pandas as pd
import pytest
from pydantic import TypeAdapter, ValidationError

from fedrepro.config import SCALES, Config, load_exhibits
from fedrepro.errors import FedreproError
from fedrepro.evaluation.claims import judge, load_claims, rows, sentence, verdict
from fedrepro.evaluation.metrics import METRICS
from fedrepro.evaluation.predicates import Check
from fedrepro.exhibits.summary import NUMBERS, csv_text, read_csv
from fedrepro.plan import Plan

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "config/published/pfnm.yaml"


def scattered(mean, sd, trials, shape):
    """Values for each trial with that mean and sample sd; two shapes that do not go together."""
    pattern = {"up": [-1, -1, 1, 1], "turn": [-1, 1, -1, 1]}[shape][:trials]
    scale = statistics.stdev(pattern) if trials > 1 else 1.0
    return [mean + sd * (x - statistics.fmean(pattern)) / scale for x in pattern]


def table(*entries, sd=0.01, trials=4, metric="accuracy", split="test", shape="up"):
    """Rows of (place, method, mean, shape of the scatter)."""
    found = []
    for place, method, mean, *own in entries:
        values = scattered(mean, sd, trials, *(own or [shape]))
        found.append(
            {
                **place,
                "method": method,
                "metric": metric,
                "split": split,
                "mean": mean,
                "sd": sd if trials > 1 else None,
                "trials": trials,
                "by_trial": " ".join(f"{value:.12g}" for value in values),
                "setting": method,
            }
        )
    frame = pd.DataFrame(found)
    rest = [c for c in frame if c not in NUMBERS]
    return read_csv(csv_text(frame[[*rest, *NUMBERS]]))


def check(**given):
    return TypeAdapter(Check).validate_python({"exhibits": ["x"], "of": "A", **given})


def pair(difference, **given):
    """A and B at one point; what their trials have in common does not go together."""
    at = {"clients": 5}
    rows = ((at, "A", 0.9 + difference, "up"), (at, "B", 0.9, "turn"))
    return {"x": table(*rows, **given)}


BEATS = {"form": "difference", "minus": ["B"]}
# the difference has an sd of sqrt(2) * 0.01 over four trials; t of 3 degrees of freedom is 3.182
WIDTH = 3.182446 * math.sqrt(2) * 0.01 / 2


@pytest.mark.parametrize(
    ("difference", "bound", "wanted"),
    [
        (0.03, {"above": 0}, "holds"),
        (0.02, {"above": 0}, "undecided"),
        (-0.02, {"above": 0}, "undecided"),
        (-0.03, {"above": 0}, "refuted"),
        (0.0, {"at_least": -0.03}, "holds"),
        (-0.06, {"at_least": -0.03}, "refuted"),
        (-0.04, {"at_least": -0.03}, "undecided"),
        (-0.03, {"below": 0}, "holds"),
        (0.0, {"below": 0}, "undecided"),
        (0.03, {"below": 0}, "refuted"),
        (0.0, {"at_most": 0.03}, "holds"),
        (0.06, {"at_most": 0.03}, "refuted"),
    ],
)
def test_a_bound_is_kept_or_broken_by_a_95_percent_interval(difference, bound, wanted):
    judged = judge(check(**BEATS, **bound), pair(difference))
    assert judged.verdict == wanted
    assert judged.deciding is not None
    assert judged.deciding.high - judged.deciding.value == pytest.approx(WIDTH)


def test_the_interval_is_that_of_a_t_test_on_pairs():
    from scipy.stats import ttest_1samp

    numbers = pair(0.02)
    one, other = (
        [float(value) for value in numbers["x"].set_index("method").loc[name, "by_trial"].split()]
        for name in "AB"
    )
    test = ttest_1samp([a - b for a, b in zip(one, other, strict=True)], 0.0)
    found = judge(check(**BEATS, above=0), numbers).deciding
    assert found is not None
    low, high = test.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_what_methods_share_in_a_trial_does_not_widen_their_difference():
    at = {"clients": 5}
    together = {"x": table((at, "A", 0.91), (at, "B", 0.9), sd=0.1)}
    found = judge(check(**BEATS, above=0), together)
    assert found.verdict == "holds"
    assert found.deciding is not None
    assert found.deciding.high - found.deciding.low == pytest.approx(0, abs=1e-9)


def test_numbers_of_fewer_trials_are_compared_over_those():
    at = {"clients": 5}
    few = table((at, "A", 0.8, "turn"), trials=2)
    frame = pd.concat([few, table((at, "B", 0.9))])  # B rises: its first two are below 0.9
    (found,) = check(**BEATS, above=0).findings("x", {"x": frame})
    first = [float(value) for value in frame["by_trial"].iloc[1].split()[:2]]
    assert statistics.fmean(first) < 0.9
    assert found.value == pytest.approx(0.8 - statistics.fmean(first))
    assert len(found.trials) == 2


def test_without_noise_a_bound_is_sharp():
    equal = pair(0.0, sd=0.0)
    assert judge(check(**BEATS, above=0), equal).verdict == "refuted"
    assert judge(check(**BEATS, at_least=0), equal).verdict == "holds"


def test_a_single_trial_decides_nothing():
    assert judge(check(**BEATS, above=0), pair(0.5, trials=1)).verdict == "undecided"


def test_an_exhibit_that_is_missing_is_not_run():
    judged = judge(check(**BEATS, above=0), {})
    assert judged.verdict == "not run"
    assert verdict([judged]) == "not run"


def test_a_best_rival_is_taken_at_each_point():
    numbers = {
        "x": table(
            ({"clients": 5}, "A", 0.9),
            ({"clients": 5}, "B", 0.8),
            ({"clients": 5}, "C", 0.95),
            ({"clients": 9}, "A", 0.9),
            ({"clients": 9}, "B", 0.7),
            ({"clients": 9}, "C", 0.2),
        )
    }
    found = check(form="difference", minus=["B", "C"], above=0)
    values = [f.value for f in found.findings("x", numbers)]
    assert values == pytest.approx([-0.05, 0.2])


def three(a, b, c, **given):
    at = zip((2, 5, 10), (a, b, c), strict=True)
    return {"x": table(*(({"clients": j}, "A", mean) for j, mean in at), **given)}


def test_every_point_or_some_point_or_the_mean():
    numbers = three(0.9, 0.5, 0.9)
    for points, wanted in (("every", "refuted"), ("some", "holds"), ("mean", "holds")):
        judged = judge(check(form="value", points=points, above=0.6), numbers)
        assert (points, judged.verdict) == (points, wanted)
    low = judge(check(form="value", points="every", above=0.6), numbers)
    assert low.deciding is not None
    assert low.deciding.at == "x, J = 5"
    assert low.points == 3


@pytest.mark.parametrize(
    ("ends", "wanted"),
    [
        ({}, -0.1),
        ({"end": "best"}, 0.2),
        ({"start": "best"}, -0.3),
        ({"start": "best", "end": "best"}, 0.0),
    ],
)
def test_a_change_is_from_the_first_or_best_to_the_last_or_best(ends, wanted):
    found = check(form="change", along="clients", above=0, **ends)
    (finding,) = found.findings("x", three(0.7, 0.9, 0.6))
    assert finding.value == pytest.approx(wanted)


def test_depths_are_ordered_by_their_number_and_widths_by_size():
    for texts in (("50", "50@50", "50@50@50"), ("50", "100", "400")):
        numbers = {
            "x": table(*(({"hidden": t}, "A", 0.1 * at) for at, t in enumerate(reversed(texts))))
        }
        (finding,) = check(form="change", along="hidden", below=0).findings("x", numbers)
        assert finding.value == pytest.approx(-0.2)


def test_a_ratio_carries_the_errors_of_both():
    numbers = pair(0.0)
    (finding,) = check(form="ratio", to="B", at_most=2).findings("x", numbers)
    assert finding.value == pytest.approx(1)
    assert finding.high - 1 == pytest.approx(WIDTH / 0.9)
    (certain,) = check(form="ratio", to="A", at_most=2).findings("x", numbers)
    assert (certain.low, certain.high) == pytest.approx((1, 1))


def grid(value):
    places = [{"sigma2": s, "gamma0": g} for s in (0.1, 1.0) for g in (1.0, 50.0)]
    return table(*((p, "A", value(p["sigma2"], p["gamma0"])) for p in places), sd=0.001)


def test_a_spread_is_over_the_named_columns_only():
    numbers = {"x": grid(lambda s, g: 0.9 + 0.1 * s + 0.001 * g)}
    over_both = check(form="spread", over=["sigma2", "gamma0"], at_most=0.1)
    assert [f.value for f in over_both.findings("x", numbers)] == pytest.approx([0.139])
    over_one = check(form="spread", over=["gamma0"], at_most=0.1)
    assert [f.value for f in over_one.findings("x", numbers)] == pytest.approx([0.049, 0.049])
    kept = check(form="spread", over=["gamma0"], at_most=0.1, where={"sigma2": "last"})
    assert len(list(kept.findings("x", numbers))) == 1


def test_a_spread_may_be_set_against_that_of_another_exhibit():
    numbers = {"x": grid(lambda s, g: 0.9 + 0.1 * s), "y": grid(lambda s, g: 0.9 + 0.01 * s)}
    found = check(form="spread", over=["sigma2"], minus_exhibit="y", above=0)
    assert [f.value for f in found.findings("x", numbers)] == pytest.approx([0.081, 0.081])
    assert judge(found, numbers).verdict == "holds"
    assert judge(found, {"x": numbers["x"]}).verdict == "not run"


def test_an_effect_compares_columns():
    numbers = {"x": grid(lambda s, g: 0.5 + 0.1 * s + 0.001 * g)}
    found = check(form="effect", over="sigma2", than=["gamma0"], above=0)
    (finding,) = found.findings("x", numbers)
    assert finding.value == pytest.approx(0.09 - 0.049)


def test_a_correlation_needs_four_points():
    at = (2, 5, 10, 20)
    falling = [({"clients": j}, "A", 1 - 0.02 * j) for j in at]
    same = [({"clients": j}, "B", 0.9 - 0.01 * j) for j in at]
    found = check(form="correlation", with_method="B", at_least=0.5)
    assert judge(found, {"x": table(*falling, *same)}).verdict == "holds"
    assert judge(found, {"x": table(*falling[:3], *same[:3])}).verdict == "not run"


def rising(rounds, goal=0.9):
    """Accuracy that rises to 0.9 in so many rounds, measured every ten, up to 100."""
    places = [({"round": r}, "A", min(0.9, 0.9 * r / rounds)) for r in range(10, 101, 10)]
    end = {"round": None}
    return {"x": table(*places, (end, "A", 0.9), (end, "B", goal), sd=0.001)}


@pytest.mark.parametrize(
    ("rounds", "bound", "wanted"),
    [(50, 40, "holds"), (50, 70, "refuted"), (500, 90, "holds"), (500, 400, "undecided")],
)
def test_rounds_to_a_goal_that_may_lie_beyond_the_last_round(rounds, bound, wanted):
    found = check(form="rounds_to", reach="B", within=0.01, above=bound)
    assert judge(found, rising(rounds)).verdict == wanted


@pytest.mark.parametrize(
    ("given", "sentence_"),
    [
        ({"form": "value"}, "needs a bound"),
        ({"form": "eval", "above": 0}, "eval"),
        ({"form": "value", "above": 0, "code": "1"}, "code"),
    ],
)
def test_a_check_is_one_of_the_forms_with_a_bound_and_nothing_else(given, sentence_):
    with pytest.raises(ValidationError, match=sentence_):
        check(**given)


def test_a_mistake_in_the_file_is_a_sentence(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("paper: x\nclaims: [{id: X1, place: p, says: s}]\n")
    with pytest.raises(FedreproError, match="claim x1 needs checks, or says why it is untested"):
        load_claims(path)


# --------------------------------------------------------------------------- the paper's own file


def test_every_claim_is_there_with_a_bound_or_a_reason_for_none():
    claims = load_claims(PUBLISHED).claims
    assert [claim.id for claim in claims] == [f"P{n}" for n in range(1, 25)]
    assert {claim.id for claim in claims if claim.untested} == {"P5", "P14"}


def test_claims_speak_of_exhibits_methods_and_metrics_that_there_are():
    exhibits: dict[str, set[str]] = {}
    for scale in SCALES:
        for key, exhibit in Plan(
            Config(), load_exhibits(ROOT / "config/exhibits"), scale
        ).exhibits.items():
            exhibits.setdefault(key.split("/")[1], set()).update(m.label for m in exhibit.measures)
    for claim in load_claims(PUBLISHED).claims:
        for one in claim.checks:
            named = {one.of, *getattr(one, "minus", [])}
            named |= {getattr(one, k) for k in ("to", "reach", "with_method") if hasattr(one, k)}
            assert one.metric in METRICS
            for name in one.exhibits:
                assert named <= exhibits[name], (claim.id, name)


def test_a_row_for_each_check_says_what_was_checked_and_on_what():
    numbers = {"figure-2d": table(({"clients": 5}, "PFNM", 0.9), ({"clients": 9}, "PFNM", 0.5))}
    claims = {claim.id: claim for claim in load_claims(PUBLISHED).claims}
    (found,) = rows([claims["P9"]], numbers, {"figure-2d": "Shapes stand in."})
    assert (found["verdict"], found["check_verdict"]) == ("holds", "holds")
    assert found["value"] == pytest.approx(-0.4)
    assert found["data"] == "Shapes stand in."
    assert found["at"] == "figure-2d, J = 5 to 9"
    (judgement,) = rows([claims["P14"]], numbers, {})
    assert judgement["verdict"] == "no verdict"
    for claim in claims.values():
        for one in claim.checks:
            assert sentence(one)
