"""What a pooled image gives back, against unpooling and convolving it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from fedrepro.core.registry import parse_token
from fedrepro.networks.layers import Pass, Pooled
from fedrepro.networks.predict import network_of
from fedrepro.papers.rm.methods._representation import pooled_gap


def literal(value, pooled, weight, bias, theirs, relu, scale):
    kernel, (height, width) = weight.shape[-1], theirs.shape[-2:]
    image = functional.max_unpool2d(value[0], pooled.argmax[0], 2, output_size=pooled.size)
    back = functional.conv2d(image, weight[0], bias[0], padding=kernel // 2)
    back = back.relu() if relu else back
    high, wide = height - back.shape[-2], width - back.shape[-1]
    back = functional.pad(back, (wide // 2, wide - wide // 2, high // 2, high - high // 2))
    return ((back - theirs[0]) ** 2).sum((1, 2, 3)) @ scale[0]


def drawn(seed, examples, channels, units, size, kernel, target, dtype=torch.float64):
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=rng, dtype=dtype)

    full = normal(examples, channels, *size).relu()
    value, argmax = functional.max_pool2d(full, 2, return_indices=True)
    return (
        value.unsqueeze(0).requires_grad_(),
        Pooled(argmax.unsqueeze(0), size),
        normal(1, units, channels, kernel, kernel).requires_grad_(),
        normal(1, units).requires_grad_(),
        normal(1, examples, units, *target),
        torch.rand(1, examples, generator=rng, dtype=dtype),
    )


def gradients(found, value, weight, bias):
    return torch.autograd.grad(found * 3, [value, weight, bias])


sides = st.integers(2, 9)


@given(
    st.integers(0, 99),
    st.integers(1, 3),
    st.integers(1, 6),
    # with 16 units and a kernel of 5, rows of kernels are long
    st.sampled_from([1, 2, 3, 16]),
    st.tuples(sides, sides),
    st.integers(1, 5),
    st.tuples(sides, sides),
    st.booleans(),
)
def test_gap_and_gradients_are_those_of_the_convolution(
    seed, examples, channels, units, size, kernel, target, relu
):
    value, pooled, weight, bias, theirs, scale = drawn(
        seed, examples, channels, units, size, kernel, target
    )
    right = literal(value, pooled, weight, bias, theirs, relu, scale)
    found = pooled_gap(value, pooled, weight, bias, theirs, relu, scale)
    torch.testing.assert_close(found[0], right, rtol=1e-12, atol=1e-12)
    wanted = gradients(right, value, weight, bias)
    alive = value != 0  # the ReLU below lets nothing else through
    found_of = gradients(found, value, weight, bias)
    right_of = [wanted[0] * alive, *wanted[1:]]
    torch.testing.assert_close(list(found_of), right_of, rtol=1e-11, atol=1e-11)


def test_single_precision_and_the_same_bytes_again():
    one = drawn(0, 4, 8, 16, (12, 12), 5, (12, 12), torch.float32)
    value, pooled, weight, bias, theirs, scale = one
    double = [part.detach().double().requires_grad_() for part in (value, weight, bias)]
    right = literal(double[0], pooled, double[1], double[2], theirs.double(), True, scale.double())
    wanted = gradients(right, *double)
    runs = []
    for _ in range(2):
        found = pooled_gap(value, pooled, weight, bias, theirs, True, scale)
        runs.append([found, *gradients(found, value, weight, bias)])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
    torch.testing.assert_close(runs[0][0][0].double(), right, rtol=1e-5, atol=0)
    for ours, theirs_ in zip(runs[0][2:], wanted[1:], strict=True):
        torch.testing.assert_close(ours.double(), theirs_, rtol=1e-4, atol=1e-3)


def test_what_is_not_finite_shows():
    value, pooled, weight, bias, theirs, scale = drawn(0, 2, 2, 1, (4, 4), 3, (4, 4))
    broken = weight.detach().clone()
    broken[0, 0, 0, 0, 0] = torch.nan
    found = pooled_gap(value, pooled, broken.requires_grad_(), bias, theirs, False, scale)
    assert found.isnan().all()


def test_rows_that_fill_a_minibatch_up_count_nothing():
    value, pooled, weight, bias, theirs, scale = drawn(0, 3, 2, 2, (6, 6), 3, (6, 6))
    scale[0, 1] = 0
    found = pooled_gap(value, pooled, weight, bias, theirs, True, scale)
    rest = [0, 2]
    alone = pooled_gap(
        value[:, rest], Pooled(pooled.argmax[:, rest], pooled.size), weight, bias,
        theirs[:, rest], True, scale[:, rest],
    )  # fmt: skip
    assert torch.equal(found, alone)
    assert not torch.autograd.grad(found, value)[0][0, 1].any()


@pytest.mark.parametrize("convolution", ["grouped", "channels_last"])
def test_pooling_before_a_relu_changes_no_byte(convolution):
    net = network_of(parse_token("model", "cnn+hidden~7"), (1, 8, 8), 3)
    rng = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.randn((1, *shape), generator=rng).div_(4).requires_grad_()
        for name, shape in net.shapes.items()
    }
    x = torch.randn((1, 5, 64), generator=rng)

    def through(layers):
        run, out = Pass(convolution, keep=True), x.reshape(1, 5, *net.shape)
        run.record(out)
        for layer, names in layers:
            out = layer.forward({local: tensors[name] for local, name in names.items()}, out, run)
        run.record(out)
        return [out, *torch.autograd.grad(out.square().sum(), list(tensors.values()))]

    written = [(layer, names) for layer, _, names in net.places]
    assert [layer for layer, _ in written] != [layer for layer, _ in net.evaluated]
    for a, b in zip(through(written), through(net.evaluated), strict=True):
        assert torch.equal(a, b)
