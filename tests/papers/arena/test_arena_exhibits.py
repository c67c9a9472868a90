"""The leaderboard arena/2 has the parts of arena/1, and methods have one budget."""

from __future__ import annotations

from synthetic import FILES, plan


def test_arena_2_has_the_parts_of_arena_1_and_one_budget_for_all():
    made, file = plan("paper"), FILES()["arena"]
    board = file.boards["2"]
    assert (board.each_trial, board.supersedes) == (True, "1")
    keys = {version: file.parts(version, "paper") for version in "12"}
    first, second = ([made.exhibit(key).name.partition("-")[2] for key in keys[v]] for v in "12")
    assert first == second
    counts = {}
    for point in (point for key in keys["2"] for point in made.exhibit(key).points):
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
    selected, file = {exhibit.key for exhibit in plan("quick").selected}, FILES()["arena"]
    parts = [file.parts(version, "quick") for version in file.boards]
    assert any(some and selected.issuperset(some) for some in parts)
