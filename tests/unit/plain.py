"""Train one client by torch.nn.functional alone, as the engine must."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedrepro.core.rng import RngKey
from fedrepro.training import autograd_trainer_and_noise as autograd_trainer
from fedrepro.training import engine
from fedrepro.training.autograd_trainer_and_noise import ModelNoise
from fedrepro.training.federation.clients import initial_weights
from fedrepro.training.minibatches_and_augmentation import Task, epoch_order, normal_pairs
from fedrepro.training.training_examples import Examples


def clients_of(sizes, numbers, classes, dtype=torch.float32):
    """Random examples of so many numbers, and the task of each client: as many as its size."""
    rng, count = np.random.default_rng(3), sum(sizes)
    x, y = rng.random((count, numbers)), rng.integers(0, classes, count)
    rows = np.split(rng.permutation(count), np.cumsum(sizes)[:-1])
    tasks = [Task(own, RngKey(0, 0, j)) for j, own in enumerate(rows)]
    return Examples(torch.tensor(x, dtype=dtype), torch.tensor(y)), tasks


def starts(net, given, tasks, dtype=torch.float32):
    found = initial_weights(net, given, [task.rng for task in tasks])
    return {name: value.astype(str(dtype)[6:]) for name, value in found.items()}


def train(*given, path=None, block=None, **more):
    """By the engine: compiled, grouped by automatic differentiation, or so in a loop."""
    together = 1 if path == "loop" else block
    with pytest.MonkeyPatch.context() as patch:
        if path is not None:
            patch.setattr(engine, "is_compiled", lambda *_: path == "compiled")
        if together is not None:
            patch.setattr(autograd_trainer, "block_size", lambda *_: together)
        return engine.train(*given, **more)


class Noise(ModelNoise):
    """What a step draws: masks, and normal numbers, pairs from a table at random places."""

    def normal(self, like):
        pairs, kind = -(-like.numel() // 2), like.numpy().dtype
        places = self.stream.random_raw(-(-pairs // 4)).view(np.uint16)[:pairs]
        drawn = np.take(normal_pairs(kind), places).view(kind)[: like.numel()]
        return torch.from_numpy(drawn).view(like.shape)


def mlp(w, x, noise, layers, dropout=0.0, batch=8):
    for i in range(layers):
        x = x @ w[f"weight{i}"] + w.get(f"bias{i}", 0)
        if i < layers - 1:
            x = torch.relu(x)
            if dropout:
                # a short minibatch takes the first rows of a whole one's mask
                whole = x.new_empty(1, batch, x.shape[1])
                x = x * noise.kept(whole, 1 - dropout)[0, : len(x)] / (1 - dropout)
    return x


def variational(w, x, noise, layers):
    for i in range(layers):
        drawn = {}
        for part in ("weight", "bias"):
            mean, spread = w[f"{part}{i}"], w[f"{part}{i}_spread"]
            drawn[part] = mean + functional.softplus(spread) * noise.normal(mean.detach())
        x = x @ drawn["weight"] + drawn["bias"]
        x = torch.relu(x) if i < layers - 1 else x
    return x


def cnn(w, x, shape, convolutions, padding, pool_every, dense_layers):
    x = x.view(len(x), *shape)
    for i in range(convolutions):
        x = torch.relu(functional.conv2d(x, w[f"weight{i}"], w.get(f"bias{i}"), padding=padding))
        if (i + 1) % pool_every == 0:
            x = functional.max_pool2d(x, 2)
    x = x.flatten(1)
    for i in range(convolutions, convolutions + dense_layers):
        x = x @ w[f"weight{i}"] + w.get(f"bias{i}", 0)
        x = torch.relu(x) if i < convolutions + dense_layers - 1 else x
    return x


def lstm(w, x, layers, all_positions=False):
    """The equations of the cell, step by step: logits (B, K), or (B, K, T) of all positions."""
    x = w["table0"][x.long()]
    for i in range(1, layers + 1):
        units = w[f"recurrent{i}"].shape[1]
        h = c = torch.zeros(len(x), units, dtype=x.dtype)
        states = []
        for t in range(x.shape[1]):
            gates = x[:, t] @ w[f"weight{i}"].T + h @ w[f"recurrent{i}"].T + w[f"bias{i}"]
            entry, forget, new, out = gates.split(units, 1)
            c = torch.sigmoid(forget) * c + torch.sigmoid(entry) * torch.tanh(new)
            h = torch.sigmoid(out) * torch.tanh(c)
            states.append(h)
        x = torch.stack(states, 1)
    logits = x @ w[f"weight{layers + 1}"] + w[f"bias{layers + 1}"]
    return logits.transpose(1, 2) if all_positions else logits[:, -1]


def loop(predict, examples, task, settings, start, extra=None, random=False):
    """One client's weights after training; extra(weights, start, x) gives a further loss."""
    dtype = examples.dtype
    first = {k: torch.tensor(v).to(dtype) for k, v in start.items()}
    weights = {k: v.clone().requires_grad_() for k, v in first.items()}
    lr = settings.lr
    if settings.optimiser == "adam":
        optimiser = torch.optim.Adam(
            weights.values(),
            lr=lr,
            weight_decay=settings.l2,
            amsgrad=settings.amsgrad,
            betas=(settings.beta1, settings.beta2),
            eps=settings.eps,
        )
    else:
        optimiser = torch.optim.SGD(
            weights.values(), lr=lr, weight_decay=settings.l2, momentum=settings.momentum
        )
    noise = Noise(task, settings.batch_size, torch.device("cpu")) if random else None
    steps = task.total(settings.batch_size, settings.epochs)
    right, accuracies = 0, []  # running training accuracy of the epoch, and of those that are over
    for step in range(steps):
        epoch, inside = divmod(task.done + step, task.per_epoch(settings.batch_size))
        order = epoch_order(task, epoch)
        rows = torch.tensor(order[inside * settings.batch_size :][: settings.batch_size])
        if noise is not None:
            noise.at(step)
        x = examples.inputs[rows].to(dtype) / examples.scale
        logits, y = predict(weights, x, noise), examples.targets[rows]
        if logits.dim() == 3:  # after each character of a window, the next one
            y = torch.stack([*x.long().unbind(1)[1:], y], 1)
        loss = functional.cross_entropy(logits, y)
        if extra is not None:
            loss = loss + extra(weights, first, x)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if not settings.patience:
            continue
        right += int((logits.argmax(1) == y).sum())
        if inside == task.per_epoch(settings.batch_size) - 1:
            accuracies, right = [*accuracies, right], 0
            before, last = accuracies[: -settings.patience], accuracies[-settings.patience :]
            if before and max(last) <= max(before):  # the last ones are no better than before
                break
    return {k: np.asarray(v.detach()) for k, v in weights.items()}
