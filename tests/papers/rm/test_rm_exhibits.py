"""What config says of representation matching, and the keys of an exhibit that it needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_exhibits import small
from synthetic import FILES as read_files

from fedrepro.core.errors import FedreproError
from fedrepro.numbers.verdicts.claims import load_claims
from fedrepro.numbers.verdicts.printed_verdicts import read_published
from fedrepro.planning.config import Config
from fedrepro.planning.plan import Plan

ROOT = Path(__file__).parents[3]
FILES = {"rm": read_files()["rm"]}
TWO = [{"name": "fedavg", "label": "A", "fraction": 0.5}, {"name": "average", "label": "B"}]
CASES = {"one": {"label": "one"}, "two": {"label": "two", "parameters": {"rounds": 4, "epochs": 2}}}


def parameters(**settings):
    """Of method A at each point: rounds, epochs, fraction."""
    exhibit = small(sweep={"partition.clients": [2]}, **{"methods": TWO, **settings})
    specs = [point.measures[0].spec for point in exhibit.points]
    return [tuple(spec[key] for key in ("rounds", "epochs", "fraction")) for spec in specs]


def test_a_parameter_of_an_exhibit_is_for_all_methods_that_have_it_and_do_not_set_it():
    assert parameters(parameters={"rounds": 7, "fraction": 1.0}) == [(7, 1, 0.5)]


def test_a_case_says_otherwise_and_a_listed_setting_too():
    assert parameters(parameters={"rounds": 7}, cases=CASES) == [(7, 1, 0.5), (4, 2, 0.5)]
    listed = {"settings": [{"rounds": 2}, {"rounds": 3}], "choose": "server"}
    assert parameters(methods=[TWO[0] | listed], parameters={"rounds": 7, "epochs": 3}) == [
        ((2, 3), 3, 0.5)
    ]


def test_a_parameter_of_no_method_is_a_sentence():
    with pytest.raises(FedreproError, match="unknown parameter 'round' in parameters of"):
        parameters(parameters={"round": 7})


def test_every_claim_is_there_with_a_bound_or_a_reason_for_none():
    claims = load_claims(ROOT / "src/fedrepro/papers/rm/claims.yaml").claims
    assert [claim.id for claim in claims] == [f"R{n}" for n in range(1, 31)]
    assert {claim.id for claim in claims if claim.untested} == {"R18", "R22", "R29", "R30"}


def test_every_printed_number_is_there_once_beside_those_with_fewer_rounds():
    values = read_published(ROOT / "src/fedrepro/papers/rm/published.csv")
    whole = [value for value in values if not value.exhibit.endswith("-reduced")]
    assert len(whole) == 80
    places = {(v.exhibit, *v.cell.items(), v.method, v.metric, v.split) for v in whole}
    assert len(places) == 80
    assert {v.note.partition(":")[0] for v in whole if v.exhibit in ("table-2", "table-3")} == {
        "not run"
    }


def test_the_paper_has_what_it_prints_of_its_settings():
    plan = Plan(Config(), FILES, "paper")
    for name in ("table-1", "table-2", "table-3"):
        exhibit = plan.exhibit(f"rm/{name}")
        assert {point.scenario.clients for point in exhibit.points} == {10}
        assert {point.scenario.training["batch_size"] for point in exhibit.points} == {64}
        assert set(exhibit.trials.values()) == {3}
        for point in exhibit.points:
            for (label, setting), _ in point.runs.items():
                assert (setting["rounds"], setting["entropy"]) == (600, 1.0), label
                assert (setting["weights"], setting["least_entropy"]) == ("all", 2.0), label
    times = plan.exhibit("rm/table-4")
    assert [point.measures[0].spec["rounds"] - 1 for point in times.points] == [200, 20, 20]


def test_no_rule_of_choice_reads_test_examples():
    for scale in ("tiny", "quick", "paper"):
        for exhibit in Plan(Config(), FILES, scale).exhibits.values():
            rules = {m.choose.split for p in exhibit.points for m in p.measures if m.choose}
            assert rules <= {"server_validation"}
