"""Methods whose data arrive in steps, run by the stage: a number for every step."""

from __future__ import annotations

import pytest
from test_stages import compute, data  # noqa: F401

from fedrepro.core.artifacts import read_table
from fedrepro.core.state_and_model_files import load_state

DEEP = [
    "--dataset", "digits", "--partition", "dirichlet+clients~3",
    "--model", "mlp+hidden~10@10", "--training", "adam+epochs~2",
]  # fmt: skip
METHODS = [
    "pfnm_streaming+sigma2~0.1+sigma2_layers~1@0.5+steps~3",
    "uniform_ensemble_streaming+members~all+steps~3",
    "weighted_ensemble_streaming+steps~3",
    "downpour_streaming+rounds~2+steps~3",
    "downpour_sgd+messages~averaged+minibatches~2+rounds~3",
]


@pytest.mark.parametrize("method", METHODS)
def test_every_step_is_measured(data, tmp_path, method):  # noqa: F811
    words = ("--method", method, "--out", tmp_path / "m", "--global-model", tmp_path / "g")
    assert compute("federate", data, tmp_path, *words, scenario=DEEP, trials="0") == 0
    frame = read_table(tmp_path / "m", "metrics").to_pandas()
    each = frame[frame["round"].notna() & (frame["metric"] == "accuracy")]
    assert sorted(each["round"]) == [1, 2, 3]
    units = frame[frame["metric"] == "hidden_units"].sort_values("round")["value"]
    if method.startswith("pfnm"):
        assert len(units) == 4  # after each step, and of the final model
        assert units.is_monotonic_increasing
    assert set(load_state(tmp_path / "g")["trials"]) == {"0"}
