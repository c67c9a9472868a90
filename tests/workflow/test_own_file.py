"""A method and a partition outside the package, through the workflow: named in the configuration
alone, and computed anew when their file changes."""

from __future__ import annotations

import pytest
from test_workflow import checkout, edit, planned, run

from fedrepro.core.artifacts import read_table

pytestmark = pytest.mark.workflow

MINE = '''
import numpy as np

from fedrepro.api import GlobalModel, method
from fedrepro.core.registry import register
from fedrepro.data.split import Owners


@register("partition", "halves", version=1, clients=lambda values: 2)
def halves(examples, rng):
    """Two clients, every other example each."""
    return Owners((np.arange(len(examples)) % 2).astype(np.int32), 2)


@method("median", kind="one_shot", label="median", version="dev")
def median(clients, info, *, rng):
    """median_j w_j, weight by weight."""
    tensors = {k: np.median(v, axis=0)[None] for k, v in clients.tensors.items()}
    return GlobalModel(clients.model, tensors)
'''
EXHIBIT = """
paper: mine
title: Mine
source: nobody, nowhere, 2026
exhibits:
  table-mine:
    drawing: {name: table, rows: [epochs], columns: [method]}
    title: Mine
    place: nowhere
    caption: None.
    trials: 1
    dataset: {name: digits}
    model: {name: mlp}
    training: {name: adam}
    sweep: {training.epochs: [2]}
    partition: {name: halves}
    methods: [{name: median, label: median}]
"""
TARGET = "reports/tiny/mine/table-mine.html"


def test_a_file_of_ones_own_is_all_there_is_to_a_method(tmp_path):
    folder = checkout(tmp_path / "own")
    (folder / "mine.py").write_text(MINE)
    (folder / "config/exhibits/mine.yaml").write_text(EXHIBIT)
    config = folder / "config/config.yaml"
    config.write_text(config.read_text() + "components: [mine.py]\n")
    run(folder, TARGET)
    (path,) = (folder / "results/tiny").rglob("metrics.parquet")
    assert "methods=median" in str(path)
    assert read_table(path, "metrics").num_rows
    assert planned(folder, TARGET) == set()
    edit(folder / "mine.py", "np.median", "np.mean")
    assert planned(folder, TARGET) == {"aggregate", "table"}
