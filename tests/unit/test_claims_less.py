"""A verdict never improves when less is run: what is missing makes it incomplete, and is named.

Exactly true are: a claim of whose named exhibits some are absent is incomplete, or not run if all
are; one that lacks any number that it looks at is incomplete; all others are judged as if nothing
else were missing. Fewer trials than the rules ask for make it incomplete too. Above that number
fewer trials are other data: they may decide otherwise, by chance and as seldom as the level says.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from claim_tables import LOOSE, check, judged, of_series, table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedrepro.core.artifacts import read_json
from fedrepro.numbers.summary import read_csv
from fedrepro.verdicts.cells import Numbers, Range, grids
from fedrepro.verdicts.claims import load_claims
from fedrepro.verdicts.judging import Rules
from fedrepro.verdicts.table import rows

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "reports/record/paper/pfnm"
FILE = load_claims(ROOT / "src/fedrepro/papers/pfnm/claims.yaml")
ALL_NAMED = {
    claim.id: list(dict.fromkeys(e for one in claim.all_checks for e in one.named))
    for claim in FILE.claims
    if not claim.untested
}
# claims are committed before the first number of what they name, so some may wait for theirs
NAMED = {
    name: named
    for name, named in ALL_NAMED.items()
    if all((RECORD / f"{exhibit}.csv").exists() for exhibit in named)
}
CLAIMS = {claim.id: claim for claim in FILE.claims if claim.id in NAMED}

# exhibits whose claims are committed and whose numbers are still to come
TO_COME: set[str] = set()

slowly = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])


def test_no_recorded_exhibit_went_missing():
    named = {exhibit for own in ALL_NAMED.values() for exhibit in own}
    assert {name for name in named if not (RECORD / f"{name}.csv").exists()} == TO_COME


@cache
def recorded(name):
    frame = read_csv((RECORD / f"{name}.csv").read_text())
    return Numbers.described(frame, read_json(RECORD / f"{name}.json"))


def verdict_of(name, numbers, rules=FILE.rules):
    return next(rows([CLAIMS[name]], numbers, {}, rules))["verdict"]


@cache
def full(name):
    return verdict_of(name, {exhibit: recorded(exhibit) for exhibit in NAMED[name]})


EXHIBITS = sorted({name for named in NAMED.values() for name in named})


def test_every_claim_is_judged_on_the_whole_record():
    assert not {full(name) for name in CLAIMS} & {"incomplete", "not run"}


@settings(slowly, max_examples=12)
@given(st.sets(st.sampled_from(EXHIBITS)))
def test_without_some_exhibits_a_claim_is_as_before_or_incomplete(there):
    numbers = {name: recorded(name) for name in there}
    for name, named in NAMED.items():
        left = there & set(named)
        wanted = full(name) if left == set(named) else "incomplete" if left else "not run"
        found = verdict_of(name, numbers)
        if found == "depends" and left:  # two readings that differ need no third
            assert full(name) == "depends"
            continue
        assert (name, found) == (name, wanted)


def test_the_case_of_only_two_panels():
    """With figures 2a and 2b alone P6 once held, and so did P7, P8 and P10."""
    numbers = {name: recorded(name) for name in ("figure-2a", "figure-2b")}
    assert {verdict_of(name, numbers) for name in ("P6", "P7", "P8", "P10")} == {"incomplete"}
    first = next(rows([CLAIMS["P6"]], numbers, {}, FILE.rules))
    assert first["missing"] == "figure-2c; figure-2d"


def looked_at(name, exhibit):
    """Positions of the rows of an exhibit that a claim's checks read, except single rounds."""
    numbers, found = recorded(exhibit), set()
    for one in CLAIMS[name].all_checks:
        if exhibit not in one.named:
            continue
        frame = numbers.frame
        methods = one.methods if exhibit in one.alike else [one.to]
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
def test_without_some_of_its_numbers_a_claim_is_incomplete(data):
    name = data.draw(st.sampled_from(sorted(CLAIMS)))
    exhibit = data.draw(st.sampled_from(NAMED[name]))
    gone = data.draw(
        st.lists(st.sampled_from(looked_at(name, exhibit)), min_size=1, max_size=6, unique=True)
    )
    numbers = {one: recorded(one) for one in NAMED[name]}
    whole = numbers[exhibit]
    numbers[exhibit] = Numbers(whole.frame.drop(index=gone), whole.grid, whole.every)
    # two readings that differ settle what a third cannot change
    allowed = {"incomplete", *({"depends"} & {full(name)})}
    assert verdict_of(name, numbers) in allowed


@slowly
@given(st.data())
def test_without_any_rows_a_claim_is_as_before_or_incomplete(data):
    name = data.draw(st.sampled_from(sorted(CLAIMS)))
    exhibit = data.draw(st.sampled_from(NAMED[name]))
    whole = recorded(exhibit)
    columns = [*whole.columns, "method", "metric"]
    key = data.draw(st.sampled_from(columns))
    value = data.draw(st.sampled_from(sorted(set(whole.frame[key].dropna()), key=str)))
    numbers = {one: recorded(one) for one in NAMED[name]}
    left = whole.frame[whole.frame[key] != value]
    numbers[exhibit] = Numbers(left, whole.grid, whole.every)
    assert verdict_of(name, numbers) in (full(name), "incomplete")


def test_fewer_trials_than_the_rules_ask_for_decide_nothing():
    rules = Rules(trials=3, holm=False)
    for name, claim in CLAIMS.items():
        numbers = {}
        for exhibit in NAMED[name]:
            frame = recorded(exhibit).frame.copy()
            frame["by_trial"] = [" ".join(t.split()[:2]) for t in frame["by_trial"]]
            numbers[exhibit] = Numbers(frame, recorded(exhibit).grid, recorded(exhibit).every)
        assert verdict_of(name, numbers, rules) == "incomplete", claim.id


# ------------------------------------------------------------------------ what is named as missing

PLACES = [({"clients": j, "hidden": h}, "A", 0.9) for j in (2, 5) for h in (50, 100)]


@pytest.mark.parametrize(
    ("entries", "given", "missing"),
    [
        (PLACES[1:], {"form": "value"}, ["A at x, J = 2, hidden = 50"]),
        (PLACES, {"form": "value", "metric": "hidden_units"}, ["hidden units of A in x"]),
        (PLACES, {"form": "value", "where": {"clients": [5, 9]}}, ["clients = 9 of A in x"]),
        (
            PLACES,
            {"form": "value", "where": {"clients": {"from": 6}}},
            ["A in x where clients from 6"],
        ),
        (PLACES, {"form": "difference", "minus": ["B"]}, ["accuracy of B in x"]),
        (
            [*PLACES, *(({"clients": j, "hidden": 50}, "B", 0.8) for j in (2, 5))],
            {"form": "difference", "minus": ["B"]},
            ["B at x, J = 2, hidden = 100", "B at x, J = 5, hidden = 100"],
        ),
        (PLACES[:2], {"form": "change", "along": "clients"}, ["a second value of clients in x"]),
        (
            PLACES,
            {"form": "rounds_to", "reach": "A"},
            [f"single rounds of A at x, J = {j}, hidden = {h}" for j in (2, 5) for h in (50, 100)],
        ),
    ],
)
def test_what_is_missing_is_named(entries, given, missing):
    found = judged(check(**given, above=0), {"x": table(*entries)})
    assert found.verdict == "incomplete"
    assert found.missing == missing


def test_an_exhibit_to_compare_with_is_named_too():
    numbers = {"x": table(*PLACES)}
    spread = check(form="spread", over=["hidden"], minus_exhibit="y", above=0)
    assert judged(spread, numbers).missing == ["y"]
    assert judged(spread, numbers).verdict == "incomplete"
    assert judged(spread, {}).verdict == "not run"
    lacking = judged(spread, numbers | {"y": table(*PLACES[:2])})
    assert lacking.missing == ["A at y, J = 5"]


def test_points_that_are_left_out_by_design_are_not_missing():
    entries = [*PLACES, ({"clients": 2, "hidden": 50}, "B", 0.8)]
    one = check(form="difference", minus=["B"], above=0, ragged=True)
    found = judged(one, {"x": table(*entries, sd=0.001)})
    assert (found.verdict, found.points) == ("holds", 1)


def test_a_size_that_a_method_gives_nowhere_in_one_exhibit_is_judged_by_the_others():
    """What was left out by design is said so in the exhibit, and not still to come."""
    one = check(
        form="difference", exhibits=["x", "y"], minus=["B"], above=0, ragged=True,
        where={"units": [200]},
    )  # fmt: skip
    whole = table(({"units": 200}, "A", 0.9), ({"units": 200}, "B", 0.8), sd=0.001)
    left = [({"units": 200}, "B", [0.7] * 5), ({"units": 50}, "A", [0.6] * 5)]
    frame = of_series(left).frame
    gap = {**frame.iloc[0].to_dict(), "method": "A", "metric": "left_out", "split": ""}
    said = Numbers(pd.concat([frame, pd.DataFrame([gap])], ignore_index=True), {}, {})
    assert judged(one, {"x": whole, "y": said}).verdict == "holds"
    assert judged(one, {"x": whole, "y": Numbers(frame, {}, {})}).verdict == "incomplete"
    alone = judged(one.model_copy(update={"exhibits": ["y"]}), {"y": said})
    assert alone.missing == ["a point to judge by in y"]


def test_rounds_that_were_not_measured_are_named():
    places = [({"round": r}, "A", [0.5, 0.6]) for r in (1, 10, 30)]
    ends = [({"round": None}, name, [0.9, 0.8]) for name in "AB"]
    numbers = of_series([*places, *ends])
    one = check(form="rounds_to", reach="B", above=5)
    assert judged(one, {"x": numbers}).verdict != "incomplete"
    told = Numbers(numbers.frame, {}, {"A": 10})
    assert judged(one, {"x": told}, LOOSE).missing == ["round 20 of A at x"]


def test_the_json_of_an_exhibit_says_what_its_table_should_hold():
    about = read_json(RECORD / "s-figure-4d.json")
    assert grids(about)["PFNM"]["clients"] == [25]
    assert grids(about)["PFNM"]["sigma02"] == [1.0, 5.0, 10.0, 50.0]
    depths = grids(read_json(RECORD / "figure-3a.json"))["U-Ens"]["hidden"]
    assert depths[:2] == ["50", "50@50"]
    cases = grids(read_json(RECORD / "wider-downpour.json"))["D-SGD"]
    assert list(cases) == ["case", "clients", "hidden"]
    assert cases["case"] == ["homogeneous", "heterogeneous"]
