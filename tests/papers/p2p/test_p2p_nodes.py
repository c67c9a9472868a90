"""The generated nodes of the paper's regression."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_published_forms import arrays_of


def test_nodes_see_one_coordinate_and_follow_the_papers_model(tmp_path: Path) -> None:
    arrays = arrays_of("p2p_nodes+examples~20000+test~20000", tmp_path)
    assert (arrays.kind, arrays.classes, arrays.group_names) == (
        "regression",
        (),
        ("node-1", "node-2"),
    )
    x, y, node = arrays.x["train"], arrays.y["train"], arrays.group("train")
    for number, (seen, slope, reach) in enumerate([(0, 0.5, 1), (1, 0.8, 1.5)]):
        own = node == number
        assert not x[own, 1 - seen].any()
        assert np.abs(x[own, seen]).max() == pytest.approx(reach, abs=0.01)
        design = np.stack([np.ones(own.sum()), x[own, seen]], 1)
        found, residual, *_ = np.linalg.lstsq(design, y[own], rcond=None)
        assert found == pytest.approx([-0.3, slope], abs=0.03)
        assert residual[0] / own.sum() == pytest.approx(0.64, abs=0.03)
    assert (arrays.group("test") == -1).all()
    assert arrays.x["test"].all(1).all()
    other = arrays_of("p2p_nodes+draw~1", tmp_path)
    assert not np.array_equal(other.y["train"], arrays_of("p2p_nodes", tmp_path).y["train"])
    assert arrays_of("p2p_nodes+view~central", tmp_path).x["train"].all()
