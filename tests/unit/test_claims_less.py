"""A verdict never improves when less is run: what is missing makes it incomplete, and is named.

Exactly true are: a claim of whose named exhibits some are absent is incomplete, or not run if all
are; one that lacks any number that it looks at is incomplete; all others are judged as if nothing
else were missing. Fewer trials than the rules ask for decide nothing (test_claims.py). Above that
number fewer trials are other data: they may decide otherwise by chance, as seldom as the level is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from claim_tables import by, check, judged, table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedrepro.core.artifacts import read_json
from fedrepro.numbers.exhibit_tables import read_csv
from fedrepro.numbers.verdicts.claim_numbers import Numbers, Range
from fedrepro.numbers.verdicts.claim_verdicts import load_claims, rows

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "reports/record/paper/pfnm"
FILE = load_claims(ROOT / "src/fedrepro/papers/pfnm/claims.yaml")
CLAIMS = {claim.id: claim for claim in FILE.claims if not claim.untested}
NAMED = {
    name: list(dict.fromkeys(exhibit for one in claim.all_checks for exhibit in one.named))
    for name, claim in CLAIMS.items()
}
EXHIBITS = sorted({name for named in NAMED.values() for name in named})
slowly = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])


@cache
def recorded(name):
    frame = read_csv((RECORD / f"{name}.csv").read_text())
    return Numbers.described(frame, read_json(RECORD / f"{name}.json"))


def verdict_of(name, numbers):
    return next(rows([CLAIMS[name]], numbers, {}, FILE.rules))["verdict"]


@cache
def full(name):
    return verdict_of(name, {exhibit: recorded(exhibit) for exhibit in NAMED[name]})


@settings(slowly, max_examples=12)
@given(st.sets(st.sampled_from(EXHIBITS)))
def test_without_some_exhibits_a_claim_is_as_before_or_incomplete(there):
    numbers = {name: recorded(name) for name in there}
    for name, named in NAMED.items():
        left = there & set(named)
        assert full(name) not in ("incomplete", "not run")
        wanted = full(name) if left == set(named) else "incomplete" if left else "not run"
        # two readings that differ need no third
        if (found := verdict_of(name, numbers)) != "depends" or not left:
            assert (name, found) == (name, wanted)
        assert found in (wanted, full(name))


def looked_at(name, exhibit):
    """Positions of the rows of an exhibit that a claim's checks read, except single rounds."""
    frame, found = recorded(exhibit).frame, set()
    for one in (one for one in CLAIMS[name].all_checks if exhibit in one.named):
        methods = [one.of, *one.others] if exhibit in one.exhibits else [getattr(one, "to", one.of)]
        kept = frame["method"].isin(methods) & (frame["metric"] == one.metric)
        kept &= frame["split"] == one.split
        if "round" in frame:
            kept &= frame["round"].isna()
        for key, wanted in one.where.items():
            if isinstance(wanted, list):
                kept &= frame[key].isin(wanted)
            elif isinstance(wanted, Range):
                kept &= frame[key].between(wanted.least, wanted.most)
            else:
                kept &= frame[key] == (frame[key].max() if wanted == "last" else frame[key].min())
        found |= set(frame.index[kept])
    return sorted(found)


@slowly
@given(st.data())
def test_without_numbers_a_claim_is_as_before_or_incomplete(data):
    """Without numbers that it looks at it is incomplete; without any others, as before or that."""
    name = data.draw(st.sampled_from(sorted(CLAIMS)))
    exhibit = data.draw(st.sampled_from(NAMED[name]))
    numbers = {one: recorded(one) for one in NAMED[name]}
    whole = numbers[exhibit]
    rows_ = st.sampled_from(looked_at(name, exhibit))
    gone = data.draw(st.lists(rows_, min_size=1, max_size=6, unique=True))
    numbers[exhibit] = replace(whole, frame=whole.frame.drop(index=gone))
    # two readings that differ settle what a third cannot change
    assert verdict_of(name, numbers) in {"incomplete", *({"depends"} & {full(name)})}
    key = data.draw(st.sampled_from([*whole.columns, "method", "metric"]))
    value = data.draw(st.sampled_from(sorted(set(whole.frame[key].dropna()), key=str)))
    numbers[exhibit] = replace(whole, frame=whole.frame[whole.frame[key] != value])
    assert verdict_of(name, numbers) in (full(name), "incomplete")


CELLS = dict.fromkeys([(2, 50), (2, 100), (5, 50), (5, 100)], 0.9)
WHOLE = by("clients", "hidden", A=CELLS)
BEATS = {"form": "difference", "minus": ["B"]}
SPREAD = {"form": "spread", "over": ["hidden"], "minus_exhibit": "y"}
ROUNDS = {"form": "rounds_to", "reach": "B"}
FIRST_TWO = dict(list(CELLS.items())[:2])
SINGLE = by(
    "round", A={1: [0.5, 0.6], 10: [0.5, 0.6], 30: [0.5, 0.6], None: [0.9, 0.8]},
    B={None: [0.9, 0.8]},
)["x"]  # fmt: skip
PLAIN = by("clients", A={5: 0.9}, a={5: 0.5}, B={5: 0.7})
THREE_POINTS = by("clients", A={2: 0.9, 5: 0.8, 10: 0.7}, B={2: 0.9, 5: 0.8, 10: 0.7})


@pytest.mark.parametrize(
    ("numbers", "given", "missing"),
    [
        (by("clients", "hidden", A=dict(list(CELLS.items())[1:])), {"form": "value"},
         ["A at x, J = 2, hidden = 50"]),
        (WHOLE, {"form": "value", "metric": "hidden_units"}, ["hidden units of A in x"]),
        (WHOLE, {"form": "value", "where": {"clients": [5, 9]}}, ["clients = 9 of A in x"]),
        (WHOLE, {"form": "value", "where": {"clients": {"from": 6}}},
         ["A in x where clients from 6"]),
        (WHOLE, BEATS, ["accuracy of B in x"]),
        (by("clients", "hidden", A=CELLS, B={(2, 50): 0.8, (5, 50): 0.8}), BEATS,
         ["B at x, J = 2, hidden = 100", "B at x, J = 5, hidden = 100"]),
        (by("clients", "hidden", A=FIRST_TWO), {"form": "change", "along": "clients"},
         ["a second value of clients in x"]),
        (WHOLE, ROUNDS | {"reach": "A"},
         [f"single rounds of A at x, J = {j}, hidden = {h}" for j, h in CELLS]),
        ({"x": replace(SINGLE, every={"A": 10})}, ROUNDS, ["round 20 of A at x"]),
        ({"x": SINGLE}, ROUNDS, []),
        (WHOLE, SPREAD, ["y"]),
        (WHOLE | {"y": by("clients", "hidden", A=FIRST_TWO)["x"]}, SPREAD, ["A at y, J = 5"]),
        (PLAIN, {"form": "gain", "over": "a", "than": {"B": "b"}}, ["accuracy of b in x"]),
        (THREE_POINTS, {"form": "correlation", "with_method": "B"},
         ["four points for a correlation in x, which has 3"]),
        (by("round", A={10: 0.5}), {"form": "value"}, ["accuracy of A in x"]),
    ],
)  # fmt: skip
def test_missing_numbers_are_named(numbers, given, missing):
    found = judged(check(**given, above=0), numbers)
    assert (found.missing, found.verdict == "incomplete") == (missing, bool(missing))
    assert judged(check(**given, above=0), {}).verdict == "not run"


@pytest.mark.parametrize(
    ("method", "rounds", "due"),
    [("A", [1, 3, 6, 8], []), ("A", [3, 8], [1, 6]), ("A", [8], [1, 3, 6]), ("A", [], []),
     ("B", [8], [])],
)  # fmt: skip
def test_rounds_that_should_have_been_measured_are_named(method, rounds, due):
    """The first and the last one always, and every third between."""
    assert Numbers(pd.DataFrame(), every={"A": 3}).due(method, rounds) == due


def test_points_that_are_left_out_by_design_are_not_missing_and_judged_by_the_others():
    numbers = by("clients", "hidden", A=CELLS, B={(2, 50): 0.8})
    found = judged(check(**BEATS, above=0, ragged=True), numbers)
    assert (found.verdict, found.points) == ("holds", 1)
    # An exhibit says what was left out by design, and it is not still to come.
    one = check(**BEATS, exhibits=["x", "y"], above=0, ragged=True, where={"units": [200]})
    whole = by("units", A={200: 0.9}, B={200: 0.8})
    frame = table(({"units": 200}, "B", [0.7] * 5), ({"units": 50}, "A", [0.6] * 5)).frame
    gap = {**frame.iloc[0].to_dict(), "method": "A", "metric": "left_out", "split": ""}
    said = Numbers(pd.concat([frame, pd.DataFrame([gap])], ignore_index=True), {}, {})
    assert judged(one, whole | {"y": said}).verdict == "holds"
    assert judged(one, whole | {"y": Numbers(frame, {}, {})}).verdict == "incomplete"
    alone = judged(one.model_copy(update={"exhibits": ["y"]}), {"y": said})
    assert alone.missing == ["a point to judge by in y"]
