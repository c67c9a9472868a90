"""What papers/gems/findings.md says of the paper, the data and the record beyond what it asks."""

from __future__ import annotations

import csv
from collections import Counter

from findings import RECORD, ROOT, asked, told
from mirror import needs_mirror
from test_real_data import ham_table

from fedrepro.numbers.verdicts.printed_verdicts import SETTING, read_published

FLAT = told("gems")
PRINTED = read_published(ROOT / "src/fedrepro/papers/gems/published.csv")
CELLS = [v for v in PRINTED if v.exhibit.startswith("table-") and v.metric != SETTING]
CASES = ("J = 2", "J = 3", "J = 5")


def test_what_is_said_of_the_printed_tables_is_so():
    quantities = [value for value in CELLS if not value.again]
    assert f"print {len(CELLS)} numbers of {len(quantities)} quantities" in FLAT
    spreads = [v.note for v in CELLS if "has a spread of" in v.note]
    assert Counter(note.rpartition(" ")[2] for note in spreads) == {"0.007": 3, "0.006": 3}


def test_the_mean_over_all_cases_is_that_of_the_printed_tables():
    tables = [v for v in CELLS if v.exhibit.startswith(("table-1-", "table-2-"))]
    of = {name: [v.value for v in tables if v.method == name] for name in ("GEMS", "Local")}
    assert len(of["GEMS"]) == 6
    gain = 100 * (sum(of["GEMS"]) - sum(of["Local"])) / 6
    assert f"is {gain:.2f} points above local models" in FLAT


def test_what_is_printed_for_gems_is_below_the_average_in_three_rows_of_table_5():
    rows = [v for v in CELLS if v.exhibit.startswith("table-5-")]
    at = {(v.exhibit, v.cell["case"], v.method): v.value for v in rows}
    below = [key for key in at if key[2] == "GEMS" and at[key] < at[(*key[:2], "Averaged")]]
    assert len(below) == 3
    assert "above what is printed for GEMS in three of its rows" in FLAT


@needs_mirror
def test_figure_5_is_a_count_of_the_photographs():
    counts = Counter(row["dx"] for row in ham_table())
    numbers = [f"{counts[name]:,}" for name in sorted(counts)] + [f"{counts.total():,}"]
    assert f"| {' | '.join([*sorted(counts), 'all'])} |" in FLAT
    assert f"| {' | '.join(numbers)} |" in FLAT
    share = 100 * max(counts.values()) / counts.total()
    assert f"The largest class has {share:.1f} % of them" in FLAT


def same(table: str, question: str, count: int = 20) -> float:
    """A number that is the same in every trial."""
    (value,) = set(asked(f"gems/{table}", f"trials {question}", count))
    return value


def test_at_the_printed_epsilon_gems_is_the_average():
    for case in CASES:
        for name in ("GEMS", "GEMS, balls"):
            for table, count in (("table-5-mnist", 20), ("table-5-ham10000", 5)):
                assert same(table, f"start_inside of {name} at case={case}", count) == 1
            assert same("table-5-mnist", f"descent_steps of {name} at case={case}") == 0
            assert same("table-5-mnist", f"{name} minus Averaged at case={case}") == 0
        assert same("table-5-mnist", f"GEMS tuned minus Averaged tuned at case={case}") == 0
    assert asked("gems/equal-steps", "range GEMS tuned minus Averaged tuned", 2) == [0, 0]
    one = "table-1-cifar10"
    assert (same(one, "common_point of GEMS", 5), same(one, "start_inside of GEMS", 5)) == (1, 0)


def test_what_is_said_of_points_is_so():
    for case in CASES:
        for name in ("GEMS, balls", "GEMS, balls, ε = 0.9"):
            question = f"{name} minus {name}, deepest at case={case}"
            assert asked("gems/deepest-point", question)[0] > 0
        question = f"common_point of GEMS, ε = 0.9 at case={case}"
        assert same("table-5-ham10000", question, 5) == 0
    proven = "common_point of Balls, proven radii at epsilon="
    assert {same("clients-at-points", f"{proven}0.{n}") for n in (2, 4, 6, 7, 8, 9)} == {0}
    for clients in (2, 3):
        question = f"clients_met of GEMS, proven radii at case=J = {clients}"
        assert same("two-epsilons", question) == clients
    for lr in ("0.01", "0.001"):  # "GEMS, all layers, is the best of all at both step sizes"
        best = asked("gems/tuning-scope", f"GEMS tuned at layers=all, lr={lr}")
        assert best == asked("gems/tuning-scope", f"most * at lr={lr}")
    top = "Raw, up to 50 epochs at lr=0.001, examples=1000"
    assert asked("gems/equal-steps", "most *") == asked("gems/equal-steps", top)
    prints = [
        asked("gems/table-5-mnist.printed", f"{m} at case=J = 2") for m in ("GEMS", "Averaged")
    ]
    assert prints[0] == prints[1]  # "78.0 both"


def test_where_spaces_are_empty_at_the_high_epsilon():
    empty = "trials empty_spaces of GEMS, ε = 0.9 at case=J ="
    two, three, five = (asked("gems/table-5-ham10000", f"{empty} {n}", 20) for n in (2, 3, 5))
    assert (set(two), set(three), set(five)) == ({2}, {3}, {0, 1, 2})
    some = sum(number > 0 for number in five)
    assert f"and so are one or two of five, in {some} of {len(five)} trials" in FLAT
    assert set(asked("gems/table-5-cifar10", f"{empty} 5", 20)) == {2, 3}


def test_sizes_are_those_of_the_clusters_and_one_less_as_published():
    gaps = []
    for clusters in (50, 75, 100):
        for epsilon in ("0.5", "1"):
            at = f"at clusters={clusters}, epsilon_hidden={epsilon}"
            assert same("table-9", f"hidden_units of GEMS {at}", 5) == clusters
            published = f"hidden_units of GEMS, as published {at}"
            assert same("table-9", published, 5) == clusters - 1
            gaps += asked("gems/table-9", f"GEMS tuned minus GEMS tuned, as published {at}")
        for name in ("GEMS", "GEMS tuned"):
            at = f"{name} at clusters={clusters}, epsilon_hidden="
            assert same("table-9", f"{at}0.5 minus {at}1", 5) == 0
    assert f"changes tuned accuracy by at most {max(map(abs, gaps)):.1f} points" in FLAT
    for clusters in (100, 150, 200):  # "a larger ε_hidden changes nothing", on CIFAR-10
        at = f"GEMS tuned at clusters={clusters}, epsilon_hidden="
        assert same("table-3", f"{at}0.5 minus {at}0.7", 5) == 0
        assert same("table-3", f"hidden_units of {at}0.7", 5) == clusters


def test_where_figure_6_has_a_common_point():
    grid = ("0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "0.95")
    for first in grid:
        for second in grid:
            at = f"common_point of GEMS at epsilon_first={first}, epsilon={second}"
            (found,) = asked("gems/figure-6", at)
            if max(float(first), float(second)) <= 0.6 or {first, second} == {"0.9", "0.3"}:
                assert found == 1
            if min(float(first), float(second)) >= 0.8:
                assert found == 0


def test_numbers_that_follow_from_others():
    theirs = (43.6, 20.7, 35.4, 42.4, 25.5)
    assert (
        f"have {', '.join(map(str, theirs[:4]))} and 25.5, in the mean {sum(theirs) / 5:.1f}"
        in FLAT
    )
    assert f"so that {300 / 7:.1f} would be all it can" in FLAT
    assert asked("gems/table-1-ham10000.printed", "Local")[0] < 200 / 7


def test_verdicts_that_are_explained_are_those_of_the_record():
    with (RECORD / "paper/gems/claims.csv").open() as file:
        verdicts = {row["claim"]: row["verdict"] for row in csv.DictReader(file)}
    part = FLAT[FLAT.index("## Why claims fail") : FLAT.index("## Left out by the paper")]
    failed = {claim for claim, verdict in verdicts.items() if verdict == "refuted"}
    alone = {"G2", "G3", "G15"}
    assert {verdicts[claim] for claim in alone} == {"stand-in only"}
    assert {verdicts[claim] for claim in ("G5", "G16", "G21")} == {"holds"}
    failed |= alone | {"G16", "G21"}
    assert failed <= {claim for claim in verdicts if f"{claim}," in part or f"{claim} " in part}


def test_what_the_count_of_reproduced_values_is_made_of():
    rows = [
        row | {"exhibit": path.name.removesuffix(".printed.csv")}
        for path in sorted((RECORD / "paper/gems").glob("*.printed.csv"))
        for row in csv.DictReader(path.open())
        if "printed again" not in row["note"]
    ]
    good = [row for row in rows if row["verdict"] == "reproduced" and not row["apart"]]
    plain = [row for row in good if row["method"] == "Global"]
    assert f"Of the {len(good)} that are reproduced {len(plain)} are Global, and those" in FLAT
    rest = [
        row
        for row in rows
        if row["verdict"] in ("reproduced", "better") and row["apart"].startswith("nearly fixed")
    ]
    assert rest
    assert all(row["method"] == "Local" or row["metric"] == "hidden_units" for row in rest)
    tables = ("table-1-mnist", "table-2-mnist", "table-5-mnist", "table-6")
    apart = [
        100 * abs(float(row["difference"]))
        for row in rows
        if row["method"] == "GEMS" and row["exhibit"] in tables and row["metric"] == "accuracy"
    ]
    assert f"the nearest on MNIST is {min(apart):.1f} points from print" in FLAT
