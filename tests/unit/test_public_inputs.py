"""Inputs of another data set at the server: which they are, who is refused, what FedDF makes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contract import call
from partitioned import data_of
from problems import problem

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.data.prepared import unlabelled
from fedrepro.planning.runs import public_data_of

FEDDF = components("method")["feddf"]


class Pictures:
    """A prepared data set of so many examples."""

    token = "pictures"

    def __init__(self, count, shape):
        self.x, self.shape = np.arange(count, dtype=np.float32)[:, None], shape

    def labels(self, split):
        return data_of(np.arange(len(self.x)) % 3).labels(split)

    def inputs(self, split, rows):
        return self.x[rows]


def test_a_method_names_the_data_set_and_no_other_method_has_one():
    assert public_data_of(FEDDF.spec({"public_data": "digits"})).token == "digits"
    assert public_data_of(components("method")["average"].spec()) is None


@pytest.mark.parametrize("name", ["nowhere", ["mnist", "digits"]])
def test_what_is_not_one_data_set_is_refused(name):
    with pytest.raises(FedreproError, match=r"not the name of one data set: known are .*digits"):
        public_data_of(FEDDF.spec({"public_data": name}))


def test_at_most_ten_thousand_inputs_are_drawn_and_the_same_again():
    found = unlabelled(Pictures(10_500, (2,)), (2,), "x", RngKey(0, 1))
    assert found.shape == (10_000, 1)
    assert len(np.unique(found)) == 10_000
    assert np.array_equal(found, unlabelled(Pictures(10_500, (2,)), (2,), "x", RngKey(0, 1)))
    assert not np.array_equal(found, unlabelled(Pictures(10_500, (2,)), (2,), "x", RngKey(0, 2)))


def test_inputs_of_another_shape_are_refused():
    with pytest.raises(FedreproError, match="have the shape 8 × 8, and the networks take 2"):
        unlabelled(Pictures(5, (8, 8)), (2,), "x", RngKey(0))


def test_of_equal_clients_feddf_starts_where_it_ends():
    """The average already gives the ensemble's shares: gradients are 0, and Adam stays close."""
    given = problem()
    same = {k: np.repeat(v[:1], 4, axis=0) for k, v in given.models.tensors.items()}
    own = replace(given, models=replace(given.models, tensors=same))
    made = call("feddf", own, epochs=3, lr=1e-5)
    for name, value in made.tensors.items():
        assert np.allclose(value, same[name][:1], atol=1e-3)
