"""Randomness of steps, crops and noise: on what it depends, and how it is distributed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from plain import clients_of, starts, train
from scipy import stats

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.networks.layers import MARGIN, SHIFTS
from fedrepro.networks.network import dense
from fedrepro.networks.predict import network_of
from fedrepro.training.autograd_trainer_and_noise import BlockNoise, drawn_moves, moved, noise_of
from fedrepro.training.minibatches_and_augmentation import (
    CROPS,
    KINDS,
    Task,
    halves,
    kinds,
    normal_pairs,
    schedule,
)
from fedrepro.training.training_settings_and_procedures import settings_of

SHAPE, CLASSES = (2, 8, 7), 3
SIZES = [20, 7, 13]


def network():
    return network_of(parse_token("model", "cnn+channels~2+hidden~5+kernel~3"), SHAPE, CLASSES)


def procedure(**values):
    given = {"epochs": 2, "batch_size": 4, "init": "fan_in", "augment": "crop_flip", **values}
    return settings_of(components("training")["sgd"].spec(given))


def problem():
    return clients_of(SIZES, int(np.prod(SHAPE)), CLASSES)


def cropped(image, kind):
    """The definition, pixel by pixel."""
    flip, shift = divmod(kind, SHIFTS**2)
    down, right = divmod(shift, SHIFTS)
    padded = np.zeros((SHAPE[0], SHAPE[1] + 2 * MARGIN, SHAPE[2] + 2 * MARGIN), np.float32)
    padded[:, MARGIN:-MARGIN, MARGIN:-MARGIN] = image
    crop = padded[:, down : down + SHAPE[1], right : right + SHAPE[2]]
    return crop[:, :, ::-1] if flip else crop


def test_every_kind_is_a_crop_and_they_are_pinned_and_equally_likely():
    x = torch.rand(2, KINDS // 2, int(np.prod(SHAPE)))
    kind = torch.arange(KINDS).view(2, -1)
    found = moved(x, kind, SHAPE)
    for before, after, each in zip(x.flatten(0, 1), found.flatten(0, 1), range(KINDS), strict=True):
        assert np.array_equal(after.numpy().reshape(SHAPE), cropped(before.view(SHAPE), each))
    drawn = kinds(halves(RngKey(3).key(CROPS)), np.arange(200_000))
    assert drawn.min() == 0
    assert drawn.max() == KINDS - 1
    assert stats.chisquare(np.bincount(drawn, minlength=KINDS)).pvalue > 0.01
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.01
    other = kinds(halves(RngKey(3, client=1).key(CROPS)), np.arange(200_000))
    assert abs((drawn == other).mean() - 1 / KINDS) < 0.001
    # A change here changes results with augmentation: raise the versions of the trainings.
    pinned = [27, 62, 63, 53, 137, 153]
    assert kinds(halves(RngKey(0, client=1).key(CROPS)), np.arange(6)).tolist() == pinned


def by_example(task, chunks):
    """What is done to each example in each epoch, whatever the minibatch."""
    found = {}
    for chunk in chunks:
        drawn = drawn_moves(chunk, [task])
        for step, (rows, count) in enumerate(zip(chunk.index[:, 0], chunk.size[:, 0], strict=True)):
            for place in range(count):
                key = int(chunk.epoch[step, 0]), int(rows[place])
                assert key not in found
                found[key] = int(drawn[step, 0, place])
    return found


def test_an_example_is_moved_alike_in_any_batching_and_places_draw_apart():
    _, tasks = problem()
    for task in tasks:
        whole = by_example(task, schedule([task], 50, 3))
        assert len(whole) == 3 * len(task.rows)
        for batch in (1, 4):
            assert by_example(task, schedule([task], batch, 3)) == whole
        some = replace(task, rows=task.rows[2:])
        assert by_example(some, schedule([some], 4, 3)).items() <= whole.items()
    task = problem()[1][0]
    places = [{}, {"trial": 1}, {"client": 5}, {"round": 0}, {"round": 1}, {"round": 1, "call": 1}]
    halves = set()
    for place in places:
        there = replace(task, rng=task.rng.at(**place))
        drawn = [kind for _, kind in sorted(by_example(there, schedule([there], 4, 2)).items())]
        halves |= {tuple(drawn[:20]), tuple(drawn[20:])}
    # rounds 0 and 1 share their first epochs with local training, as they do their minibatches
    assert len(halves) == 2 * len(places) - 2


@pytest.mark.parametrize("batch", [4, None])
def test_training_sees_the_moved_images(batch):
    """As with images that were moved before, in an epoch."""
    net, given = network(), procedure(batch_size=batch, epochs=1)
    examples, tasks = problem()
    start = starts(net, given, tasks)
    images = examples.inputs.clone()
    for task in tasks:
        drawn = kinds(halves(task.rng.at(epoch=0).key(CROPS)), task.rows)
        for row, kind in zip(task.rows, drawn, strict=True):
            image = cropped(examples.inputs[row].view(SHAPE).numpy(), int(kind))
            images[row] = torch.from_numpy(image.copy()).flatten()
    found = train(net, examples, tasks, given, start)
    plain = replace(given, augment="none")
    wanted = train(net, replace(examples, inputs=images), tasks, plain, start)
    assert all(np.array_equal(found.tensors[name], wanted.tensors[name]) for name in start)
    assert np.array_equal(found.loss, wanted.loss)
    still = train(net, examples, tasks, plain, start)
    assert not np.array_equal(found.tensors["weight0"], still.tensors["weight0"])


def test_only_images_are_moved():
    examples, tasks = problem()
    net = dense((int(np.prod(SHAPE)), 4, CLASSES))
    given = procedure()
    with pytest.raises(FedreproError, match="augment~crop_flip moves images, but this dense"):
        train(net, examples, tasks, given, starts(net, given, tasks))


CPU = torch.device("cpu")
BATCH = 8
SHAPES = [(5, 3), (7,), (1,), (4, 4)]  # an odd number of entries among them


def noise(client=0, seed=0, device=CPU, **place):
    return noise_of(Task(np.arange(20), RngKey(seed, client=client).at(**place)), BATCH, device)


def drawn(given, step):
    """Everything that some layers draw in one step."""
    given.at(step)
    found = [given.kept(torch.empty(1, *shape), 0.4).flatten() for shape in SHAPES]
    return [*torch.cat(found).tolist(), *given.seeds(1)]


def test_a_step_depends_on_its_place_alone_and_places_draw_apart():
    whole, going = [drawn(noise(), step) for step in range(7)], noise()
    for step in (5, 0, 6, 1):  # in any order, over the ends of epochs, with steps left out
        assert drawn(going, step) == whole[step]
    rows = [
        drawn(noise(client, seed, **place), step)
        for place in ({"trial": 1}, {"round": 0}, {"round": 1}, {"round": 0, "call": 1})
        for seed in (5, 5 + 2**32, 5 + 2**64)
        for client in range(2)
        for step in range(6)
    ]
    assert len(set(map(tuple, rows))) == len(rows)


def test_the_table_of_pairs_has_the_moments_of_normal_numbers():
    pairs = normal_pairs(np.dtype(np.float64))
    assert len(set(pairs.tolist())) == len(pairs)
    assert abs((pairs.real * pairs.imag).mean()) < 1e-12
    for part in (pairs.real, pairs.imag):
        for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3), (5, 0), (6, 15)):
            assert abs((part**power).mean() - moment) < 2e-4 * max(1, moment), power
        assert stats.kstest(part, "norm").statistic < 1e-3
    assert abs((pairs.real**2 * pairs.imag**2).mean() - 1) < 1e-3


@pytest.mark.parametrize("share", [0.1, 0.5, 0.75, 1.0])
def test_a_share_is_kept(share):
    given = noise()
    given.at(0)
    found = given.kept(torch.empty(1, 300, 301), share)
    assert set(found.flatten().tolist()) <= {0.0, 1.0}
    assert abs(found.mean().item() - share) <= 4 * np.sqrt(share * (1 - share) / found.numel())


def test_the_numbers_are_pinned():
    # A change here changes results with dropout: raise the versions of its models.
    given = noise(client=1)
    given.at(4)
    assert given.kept(torch.empty(1, 5), 0.5).tolist() == [[0.0, 0.0, 0.0, 0.0, 1.0]]


def test_a_block_has_seeds_of_64_bits():
    """On a GPU one generator serves a block; what it is seeded with can be seen anywhere."""
    seeds, like = set(), torch.empty(2, 50)
    for seed in (5, 5 + 2**32, 5 + 2**64):
        given = BlockNoise(Task(np.arange(20), RngKey(seed)), BATCH, CPU)
        for step in range(6):
            given.at(step)
            seeds.add(given.generator.initial_seed())
            assert set(given.kept(like, 0.5).flatten().tolist()) == {0.0, 1.0}
    assert len(seeds) == 18
    assert max(seeds) > 2**63


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here")
def test_a_gpu_tells_all_bits_of_a_seed_apart():
    gpu = torch.device("cuda")
    found = {
        tuple(drawn(noise(seed=seed, device=gpu), step))
        for seed in (5, 5 + 2**32, 5 + 2**64)
        for step in range(6)
    }
    assert len(found) == 18
