"""When a step is recorded and played, without a GPU; `test_recorded.py` needs one."""

from __future__ import annotations

import pytest
import torch

from fedrepro.training import recorded
from fedrepro.training.recorded import BEFORE, Recorder


class Played:
    """Stands for a graph of a step."""

    def __init__(self, take, given, pool):
        self.shared = pool
        self.graph = self

    def pool(self):
        return "pool"

    def play(self, given):
        return given[0] + 100


@pytest.fixture
def recorder(monkeypatch):
    monkeypatch.setattr(recorded, "Graph", Played)
    return Recorder()


def step(recorder, models):
    """What comes of a step that gives its rows back, and a hundred more when it is played."""
    return int(recorder.step(lambda rows: rows, (torch.zeros(models, 1),))[0, 0])


def test_a_step_is_recorded_once_it_was_taken_often_enough(recorder):
    found = [step(recorder, 3) for _ in range(BEFORE + 2)]
    assert found == [0] * BEFORE + [100, 100]


def test_each_number_of_models_counts_for_itself_and_graphs_share_memory(recorder):
    for _ in range(BEFORE):
        assert step(recorder, 3) == step(recorder, 2) == 0
    assert step(recorder, 2) == 100
    assert list(recorder.graphs) == [2]
    assert step(recorder, 3) == 100
    assert [graph.shared for graph in recorder.graphs.values()] == [None, "pool"]
