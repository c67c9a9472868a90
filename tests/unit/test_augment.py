"""Random crops and mirror images: what they do to an image, and what they depend on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.networks.network import dense
from fedrepro.networks.predict import network_of
from fedrepro.training.engine import train
from fedrepro.training.examples import Examples
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.minibatches import Task, schedule, whole_steps
from fedrepro.training.procedure import settings_of
from fedrepro.training.step_randomness import CROPS, KINDS, MARGIN, SHIFTS, Crops, kinds

SHAPE, CLASSES = (2, 8, 7), 3
SIZES = [20, 7, 13]


def network():
    token = "cnn+channels~2+hidden~5+kernel~3"
    return network_of(parse_token("model", token), SHAPE, CLASSES)


def procedure(**values):
    given = {"epochs": 2, "batch_size": 4, "init": "fan_in", "augment": "crop_flip", **values}
    return settings_of(components("training")["sgd"].spec(given))


def problem():
    rng = np.random.default_rng(1)
    examples = Examples(
        torch.tensor(rng.random((40, int(np.prod(SHAPE)))), dtype=torch.float32),
        torch.tensor(rng.integers(0, CLASSES, 40)),
    )
    rows = np.split(rng.permutation(40), np.cumsum(SIZES)[:-1])
    return examples, [Task(r, RngKey(0, 0, j)) for j, r in enumerate(rows)]


def cropped(image, kind):
    """The definition, pixel by pixel."""
    flip, shift = divmod(kind, SHIFTS**2)
    down, right = divmod(shift, SHIFTS)
    padded = np.zeros((SHAPE[0], SHAPE[1] + 2 * MARGIN, SHAPE[2] + 2 * MARGIN), np.float32)
    padded[:, MARGIN:-MARGIN, MARGIN:-MARGIN] = image
    crop = padded[:, down : down + SHAPE[1], right : right + SHAPE[2]]
    return crop[:, :, ::-1] if flip else crop


def test_every_kind_is_a_crop_of_the_padded_image_or_its_mirror_image():
    x = torch.rand(2, KINDS // 2, int(np.prod(SHAPE)))
    kind = torch.arange(KINDS).view(2, -1)
    found = Crops(network()).moved(x, kind)
    for before, after, each in zip(x.flatten(0, 1), found.flatten(0, 1), range(KINDS), strict=True):
        assert np.array_equal(after.numpy().reshape(SHAPE), cropped(before.view(SHAPE), each))


def test_one_of_the_kinds_changes_nothing():
    x = torch.rand(1, 1, int(np.prod(SHAPE)))
    middle = MARGIN * SHIFTS + MARGIN
    assert torch.equal(Crops(network()).moved(x, torch.tensor([[middle]])), x)


def by_example(task, chunks):
    """What is done to each example in each epoch, whatever the minibatch."""
    crops = Crops(network())
    crops.begin([task])
    found = {}
    for chunk in chunks:
        drawn = crops.drawn(chunk)
        for step, (rows, count) in enumerate(zip(chunk.index[:, 0], chunk.size[:, 0], strict=True)):
            for place in range(count):
                key = int(chunk.epoch[step, 0]), int(rows[place])
                assert key not in found
                found[key] = int(drawn[step, 0, place])
    return found


def test_an_example_is_moved_alike_in_any_batching():
    _, tasks = problem()
    for task in tasks:
        whole = by_example(task, whole_steps([task], 6, 3))
        assert len(whole) == 3 * len(task.rows)
        for batch in (1, 4, 50):
            assert by_example(task, schedule([task], batch, 3)) == whole
        some = replace(task, rows=task.rows[2:])
        assert by_example(some, schedule([some], 4, 3)).items() <= whole.items()


def test_places_draw_apart():
    task = problem()[1][0]
    places = [{}, {"trial": 1}, {"client": 5}, {"round": 0}, {"round": 1}, {"round": 1, "call": 1}]
    halves = set()
    for place in places:
        there = replace(task, rng=task.rng.at(**place))
        drawn = [kind for _, kind in sorted(by_example(there, schedule([there], 4, 2)).items())]
        halves |= {tuple(drawn[:20]), tuple(drawn[20:])}
    # rounds 0 and 1 share their first epochs with local training, as they do their minibatches
    assert len(halves) == 2 * len(places) - 2


def test_kinds_are_equally_likely_and_neighbours_unrelated():
    drawn = kinds(RngKey(3).key(CROPS), np.arange(200_000))
    assert drawn.min() == 0
    assert drawn.max() == KINDS - 1
    assert stats.chisquare(np.bincount(drawn, minlength=KINDS)).pvalue > 0.01
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.01
    other = kinds(RngKey(3, client=1).key(CROPS), np.arange(200_000))
    assert abs((drawn == other).mean() - 1 / KINDS) < 0.001


def test_the_draws_are_pinned():
    # A change here changes results with augmentation: raise the versions of the trainings.
    assert kinds(RngKey(0, client=1).key(CROPS), np.arange(6)).tolist() == PINNED


PINNED = [27, 62, 63, 53, 137, 153]


@pytest.mark.parametrize("batch", [4, None])
def test_training_sees_the_moved_images(batch):
    """As with images that were moved before, in an epoch."""
    net, given = network(), procedure(batch_size=batch, epochs=1)
    examples, tasks = problem()
    start = initial_weights(net, given, [task.rng for task in tasks])
    moved = examples.inputs.clone()
    for task in tasks:
        for row, kind in zip(
            task.rows, kinds(task.rng.at(epoch=0).key(CROPS), task.rows), strict=True
        ):
            image = cropped(examples.inputs[row].view(SHAPE).numpy(), int(kind))
            moved[row] = torch.from_numpy(image.copy()).flatten()
    found = train(net, examples, tasks, given, start)
    plain = replace(given, augment="none")
    wanted = train(net, replace(examples, inputs=moved), tasks, plain, start)
    assert all(np.array_equal(found.tensors[name], wanted.tensors[name]) for name in start)
    assert np.array_equal(found.loss, wanted.loss)
    still = train(net, examples, tasks, plain, start)
    assert not np.array_equal(found.tensors["weight0"], still.tensors["weight0"])


@pytest.mark.parametrize("batch", [4, None])
@pytest.mark.parametrize("path", ["grouped", "loop"])
def test_bytes_do_not_depend_on_the_company(path, batch):
    net, given = network(), procedure(batch_size=batch)
    examples, tasks = problem()
    start = initial_weights(net, given, [task.rng for task in tasks])
    whole = train(net, examples, tasks, given, start, path=path)
    for j in range(len(tasks)):
        alone = train(
            net, examples, tasks[j : j + 1], given, {k: v[j : j + 1] for k, v in start.items()},
            path=path,
        )  # fmt: skip
        for name, value in alone.tensors.items():
            gap = np.abs(whole.tensors[name][j] - value[0]).max()
            # grouped convolutions round by their number of groups
            assert gap == 0 if path == "loop" else gap < 1e-5


def test_only_images_are_moved():
    examples, tasks = problem()
    net = dense((int(np.prod(SHAPE)), 4, CLASSES))
    given = procedure()
    with pytest.raises(FedreproError, match="augment~crop_flip moves images, but this dense"):
        train(net, examples, tasks, given, initial_weights(net, given, [t.rng for t in tasks]))
