"""The leaderboard arena/2 has the parts of arena/1, and methods have one budget."""

from __future__ import annotations

from fedrepro.planning.config_files import Config, load_exhibits
from fedrepro.planning.plan import Plan


def test_arena_2_has_the_parts_of_arena_1_and_one_budget_for_all():
    plan = Plan(Config(), {"arena": load_exhibits()["arena"]}, "paper")
    file = plan.files["arena"]
    board = file.boards["2"]
    assert (board.each_trial, board.supersedes) == (True, "1")
    keys = {version: file.parts(version, "paper") for version in "12"}
    first, second = ([plan.exhibit(key).name.partition("-")[2] for key in keys[v]] for v in "12")
    assert first == second
    counts = {}
    for point in (point for key in keys["2"] for point in plan.exhibit(key).points):
        assert point.scenario.training.values["epochs"] == 10
        for measure in point.measures:
            counts.setdefault(len(measure.settings), set()).add(measure.label)
            assert measure.choose is None or measure.choose.split == "client_validation"
            if measure.label == "FENS":
                assert all(s.method.values["leave"] for s in measure.settings)
    assert set(counts) == {1, 2, 8}
    assert counts[2] == {"class-weighted ensemble", "weight matching"}
    assert not counts[1] & counts[8]


def test_what_make_draws_has_all_tables_of_a_leaderboard():
    files = load_exhibits()
    selected = {exhibit.key for exhibit in Plan(Config(), files, "quick").selected}
    parts = [files["arena"].parts(version, "quick") for version in files["arena"].boards]
    assert any(some and selected.issuperset(some) for some in parts)
