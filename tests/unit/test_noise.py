"""Random numbers inside training steps: what they depend on, and how they are distributed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from fedrepro.core.rng import RngKey
from fedrepro.training.minibatches import Task
from fedrepro.training.step_randomness import BlockNoise, noise_of, normal_pairs

CPU = torch.device("cpu")
BATCH = 8
SHAPES = [(5, 3), (7,), (1,), (4, 4)]  # an odd number of entries among them


def tasks(count=4, seed=0, **place):
    rng = RngKey(seed).at(**place)
    return [Task(np.arange(20 + j), rng.at(client=j)) for j in range(count)]


def drawn(noise, step, models, dtype=torch.float32):
    """Everything that some layers draw in one step, one row per model."""
    noise.at(step, models)
    found = []
    for shape in SHAPES:
        like = torch.empty(models, *shape, dtype=dtype)
        found += [noise.kept(like, 0.4).flatten(1), noise.normal(like).flatten(1)]
    return torch.cat(found, 1)


def test_a_step_depends_on_its_place_alone():
    given = tasks()
    whole = [drawn(noise_of(given, BATCH, CPU), step, 4) for step in range(7)]
    going = noise_of(given, BATCH, CPU)
    for step in (5, 0, 6, 1):  # in any order, over the ends of epochs, with steps left out
        assert torch.equal(drawn(going, step, 4), whole[step])
    alone = noise_of(given[2:3], BATCH, CPU)
    assert all(torch.equal(drawn(alone, s, 1), whole[s][2:3]) for s in range(7))
    fewer = noise_of(given, BATCH, CPU)
    assert torch.equal(drawn(fewer, 4, 2), whole[4][:2])


def test_models_steps_epochs_rounds_and_seeds_draw_apart():
    rows = [
        row
        for place in ({"trial": 1}, {"round": 0}, {"round": 1}, {"round": 0, "call": 1})
        for seed in (5, 5 + 2**32, 5 + 2**64)
        for step in range(6)
        for row in drawn(noise_of(tasks(2, seed, **place), BATCH, CPU), step, 2)
    ]
    assert len({row.numpy().tobytes() for row in rows}) == len(rows)


def test_numbers_do_not_repeat_within_a_step_nor_from_step_to_step():
    noise, like = noise_of(tasks(1), BATCH, CPU), torch.empty(1, 1000)
    found = []
    for step in range(9):
        noise.at(step, 1)
        found += [noise.normal(like), noise.normal(like)]
    # single pairs do, one in 65,536
    fours = torch.cat(found).view(-1, 4).tolist()
    assert len(set(map(tuple, fours))) == 18 * 250


def test_the_table_of_pairs_has_the_moments_of_normal_numbers():
    pairs = normal_pairs(np.dtype(np.float64))
    assert len(set(pairs.tolist())) == len(pairs)
    assert abs((pairs.real * pairs.imag).mean()) < 1e-12
    for part in (pairs.real, pairs.imag):
        for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3), (5, 0), (6, 15)):
            assert abs((part**power).mean() - moment) < 2e-4 * max(1, moment), power
        assert stats.kstest(part, "norm").statistic < 1e-3
    assert abs((pairs.real**2 * pairs.imag**2).mean() - 1) < 1e-3


@pytest.mark.parametrize("count", [1, 2, 7, 16, 1001])
def test_parts_of_whole_multiples_of_eight_are_the_whole(count):
    whole, parts = np.empty(count + 24, np.float32), np.empty(count + 24, np.float32)
    for out, cuts in ((whole, [0, count + 24]), (parts, [0, 8, 24, count + 24])):
        noise = noise_of(tasks(1), BATCH, CPU)
        noise.at(3, 1)
        for start, end in itertools.pairwise(cuts):
            noise.write(0, out[start:end])
    assert np.array_equal(whole, parts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_numbers_are_standard_normal(dtype):
    noise = noise_of(tasks(1), BATCH, CPU)
    noise.at(0, 1)
    found = noise.normal(torch.empty(1, 200_001, dtype=dtype)).numpy()[0]
    assert np.isfinite(found).all()
    assert stats.kstest(found, "norm").pvalue > 0.01
    pairs = found[: len(found) // 2], found[len(found) // 2 + 1 :]
    assert abs(np.corrcoef(*pairs)[0, 1]) < 0.01
    assert abs(np.corrcoef(pairs[0] ** 2, pairs[1] ** 2)[0, 1]) < 0.01
    assert 4 < np.abs(found).max() < 6


@pytest.mark.parametrize("share", [0.1, 0.5, 0.75, 1.0])
def test_a_share_is_kept(share):
    noise = noise_of(tasks(1), BATCH, CPU)
    noise.at(0, 1)
    found = noise.kept(torch.empty(1, 300, 301), share)
    assert set(found.flatten().tolist()) <= {0.0, 1.0}
    assert abs(found.mean().item() - share) <= 4 * np.sqrt(share * (1 - share) / found.numel())


def test_precision_changes_the_rounding_only():
    single, double = (drawn(noise_of(tasks(), BATCH, CPU), 3, 4, t) for t in TYPES)
    assert torch.allclose(single.double(), double, atol=1e-5)


TYPES = (torch.float32, torch.float64)


def test_the_numbers_are_pinned():
    # A change here changes results with dropout and variational weights: raise their versions.
    noise = noise_of([Task(np.arange(20), RngKey(0, client=1))], BATCH, CPU)
    noise.at(4, 1)
    like = torch.empty(1, 5)
    assert noise.kept(like, 0.5).tolist() == [PINNED_KEPT]
    assert noise.normal(like)[0].tolist() == pytest.approx(PINNED_NORMAL, abs=1e-5)


PINNED_KEPT = [0.0, 0.0, 0.0, 0.0, 1.0]
PINNED_NORMAL = [-1.596387, 0.217646, -0.473383, 0.784154, -0.369211]


def test_a_block_has_seeds_of_64_bits():
    """On a GPU one generator serves a block; what it is seeded with can be seen anywhere."""
    seeds, like = set(), torch.empty(2, 50)
    for seed in (5, 5 + 2**32, 5 + 2**64):
        for step in range(6):
            noise = BlockNoise(tasks(2, seed), BATCH, CPU)
            noise.at(step, 2)
            seeds.add(noise.generator.initial_seed())
            assert set(noise.kept(like, 0.5).flatten().tolist()) == {0.0, 1.0}
            assert noise.normal(like).std() > 0.5
    assert len(seeds) == 18
    assert max(seeds) > 2**63


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here")
def test_a_gpu_tells_all_bits_of_a_seed_apart():
    gpu = torch.device("cuda")
    like = torch.empty(2, 50, device=gpu)
    found = set()
    for seed in (5, 5 + 2**32, 5 + 2**64):
        for step in range(6):
            noise = noise_of(tasks(2, seed), BATCH, gpu)
            noise.at(step, 2)
            found.add(noise.normal(like).cpu().numpy().tobytes())
    assert len(found) == 18
