"""Training on the CPU by compiled code (`compiled_steps.py`), one model after another.

Imports Numba, which takes half a second: the engine imports this module when it needs it. With
`keep_gradients` results have sums, over steps, of each model's gradients.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedrepro.core.portable_ops import padding_and_alignment as padding
from fedrepro.core.portable_ops.compiled_functions_and_products import Array, multiplier
from fedrepro.networks.compiled_layout_and_buffers import Rows, body_of, parts_of, turned_in
from fedrepro.networks.layers import Shape
from fedrepro.training import compiled_steps
from fedrepro.training import minibatches_and_augmentation as batches
from fedrepro.training import step_arrays_losses_variational as compiled
from fedrepro.training.compiled_representation_matching import maps_of, room_of
from fedrepro.training.loss_terms import Entropy, GaussianPrior, compiled_kind
from fedrepro.training.training_examples import Arrays, Examples
from fedrepro.training.training_settings_and_procedures import (
    EarlyStopping,
    Procedure,
    TrainedModels,
)

log = logging.getLogger(__name__)
train: Any = compiled_steps.train_model
NOTHING: Any = compiled.Nothing()
_latest: list[CompiledTrainer] = []


def trainer_of(procedure: Procedure, examples: Examples, keep_gradients: bool) -> CompiledTrainer:
    """Return the previous call's trainer, whose buffers exist, if it fits; otherwise a new one."""
    if not (_latest and _latest[0].fits(procedure, examples, keep_gradients)):
        _latest.clear()
        _latest.append(CompiledTrainer(procedure, examples, keep_gradients))
    _latest[0].procedure = procedure
    return _latest[0]


class CompiledTrainer:
    """A trainer of models on the CPU by compiled code, one after another in shared buffers."""

    def __init__(self, procedure: Procedure, examples: Examples, keep_gradients: bool) -> None:
        network, layers = procedure.network, parts_of(procedure.network)
        assert layers is not None
        self.procedure, self.layers, self.dtype = procedure, layers, examples.kind
        self.drawn, self.turned = layers.drawn, turned_in(network, layers)
        roles = {name: parameter.role for name, parameter in network.parameters.items()}
        self.means = {k: shape for k, shape in network.shapes.items() if roles[k] != "spread"}
        # of a variational network the means, then the spreads
        self.rows = Rows({**self.means, **network.shapes, **procedure.private}, self.turned)
        self.size = self.rows.size
        self.prior = next((t for t in procedure.losses if isinstance(t, GaussianPrior)), None)
        indirect = self.drawn or layers.recurrent
        given, self.examples, self.keep_gradients = procedure.settings, examples, keep_gradients
        fused = given.optimiser == "sgd" and given.batch_size and not (given.momentum or given.l2)
        # a step is just w - lr · gradient, which need not be stored
        self.direct = bool(fused) and not (indirect or keep_gradients or procedure.weight_penalties)
        scale = self.dtype.type(examples.scale)
        inputs, targets = examples.inputs.cpu().numpy(), examples.targets.cpu().numpy()
        self.data = compiled.Data(inputs, targets, scale, 1 / scale)
        self.net, body = self._net()
        self.model = self._model(keep_gradients)
        self.room = self._room(body)
        self.weights = self.rows.views(self.model.weights)
        self.received = self.rows.views(self.model.received) if procedure.terms else {}
        self.summed = self.rows.views(self.model.summed) if keep_gradients else None

    def fits(self, procedure: Procedure, examples: Examples, keep_gradients: bool) -> bool:
        """Return whether this trainer was made for equal arguments, apart from lr and epochs."""
        own, other = (
            (one.network, replace(one.settings, lr=0.0, epochs=0), one.terms)
            for one in (self.procedure, procedure)
        )
        kept = self.keep_gradients == keep_gradients
        return kept and self.examples is examples and own == other

    def parts(
        self,
        tasks: Sequence[batches.Task],
        start: Arrays,
        reference: Arrays | None,
        memory: Arrays | None,
    ) -> Iterator[TrainedModels]:
        """Train a model for each of `tasks` from tensors `start`; yield each as a `TrainedModels`.

        Tensors are (n, *shape), or (1, *shape) for all. Terms compare weights with `reference`, by
        default `start`. Optimisers' `memory`, if any, is updated. Each result overwrites the last.
        """
        shapes = self.procedure.network.shapes
        for place, task in enumerate(tasks):
            self._begin(place, start, {**start, **(reference or {})}, memory)
            taken = 0 if memory is None else int(memory["steps"][place])
            losses, steps_taken = self._train(task, taken)
            if memory is not None:
                for k, name in enumerate(self.procedure.settings.remembered):
                    memory[name][place] = self.model.moments[k]
            yield TrainedModels(
                np.array([place]),
                losses[:, None],
                np.array([steps_taken]),
                np.array([bool(np.isfinite(self.model.weights).all())]),
                _whole(self.weights, shapes),
                _whole(self.weights, self.procedure.private),
                None if self.summed is None else _whole(self.summed, shapes),
            )

    def _begin(self, place: int, start: Arrays, received: Arrays, memory: Arrays | None) -> None:
        model = self.model
        model.weights[:] = 0  # what fills up rows may not be a number any more
        for views, tensors in ((self.weights, start), (self.received, received)):
            for name, view in views.items():
                value = tensors[name]
                view[...] = value[place if len(value) > 1 else 0].reshape(view.shape)
        if self.drawn:  # the prior of the divergence: as received, or the same for all weights
            model.gradient[:] = 0  # the noise of a draw goes there, but not into what fills up rows
            size, sd = self.net.size, 1 if self.prior is None else self.prior.sd
            if sd is None:
                model.prior[:] = model.received[:size]
                compiled.softplus(model.received[size:], model.prior_deviation)
            else:
                model.prior[:], model.prior_deviation[:] = 0, sd
        model.summed[:] = 0
        for k, name in enumerate(self.procedure.settings.remembered):
            model.moments[k][:] = 0 if memory is None else memory[name][place]

    def _train(self, task: batches.Task, taken: int) -> tuple[Array, int]:
        """Train on `task` after `taken` steps; return losses (steps,), and steps until stopped."""
        settings, loss_parts = self.procedure.settings, []
        stopping, descent, done = EarlyStopping(task, settings), self._descent(task), 0
        for some in batches.visits(
            task, settings.batch_size, settings.epochs, bool(settings.patience)
        ):
            losses, crops = np.empty(len(some.ends) - 1), np.empty(0, np.int64)
            keys, places = np.empty((0, 2), np.uint64), np.empty((0, 2), np.int64)
            if settings.augment != "none":
                keys, places = some.words(task.rng, batches.CROPS)
                crops = batches.kinds(keys[np.repeat(places[:, 0], np.diff(some.ends))], some.rows)
            if self.procedure.network.draws:
                keys, places = some.words(task.rng, batches.NOISE)
            order = compiled.StepOrder(
                some.rows, some.ends, self.procedure.rows, keys, places, crops
            )
            known, began = len(train.stats.cache_misses), time.perf_counter()
            right = train(
                self.data, order, self.net, descent, self.model, self.room, taken + done, losses
            )
            if len(train.stats.cache_misses) > known:
                took = time.perf_counter() - began
                log.info("training was compiled for this machine: %.0f s", took)
            loss_parts.append(losses)
            done += len(losses)
            if settings.patience:
                stopping.see(done, right)
            if not np.isfinite(losses).all() or stopping.over:
                break
        return np.concatenate(loss_parts), stopping.taken

    def _descent(self, task: batches.Task) -> Any:
        settings, number, share = self.procedure.settings, self.dtype.type, 0.0
        if self.prior and settings.batch_size:
            minibatches = task.total(settings.batch_size, settings.epochs)
            full = min(settings.batch_size, len(task.rows))
            share = self.prior.share(len(task.rows), minibatches, full)
        adam = compiled.AMSGRAD if settings.amsgrad else compiled.ADAM
        return compiled.StepNumbers(
            compiled.SGD if settings.optimiser == "sgd" else adam,
            self.direct,
            number(settings.lr),
            number(settings.l2),
            number(settings.momentum),
            settings.beta1,
            settings.beta2,
            number(settings.eps),
            number(sum(term.pull for term in self.procedure.weight_penalties)),
            number(sum(term.shift for term in self.procedure.weight_penalties)),
            number(share),
        )

    def _net(self) -> tuple[Any, Any]:
        network, layers, at = self.procedure.network, self.layers, self.rows.offsets
        rows = self.procedure.rows
        sizes, below, private = layers.sizes, layers.below, self.procedure.private
        body = buffers = given = NOTHING
        pairs, shares = self._pairs()
        if below:
            body, buffers = body_of(network, layers, at, rows, self.dtype, bool(pairs))
        rows *= network.predictions
        ends = np.cumsum([0, *(padding.row_of(m) for m in sizes[1:-1])])
        images = sum(source <= len(layers.convolutions) for source, _ in pairs)
        if images:
            given = maps_of(layers, body, pairs[:images], shares[:images], private, at, self.dtype)
        tensors = [(at[k], math.prod(v[:-1]), v[-1]) for k, v in self.means.items()]
        terms = [term for term in self.procedure.losses if isinstance(term, Entropy)]
        entropies = [(term.coefficient, term.least) for term in terms]
        net = compiled.NetArrays(
            body,
            np.array(sizes, np.int64),
            np.array([at[f"weight{below + k}"] for k in range(len(sizes) - 1)], np.int64),
            ends.astype(np.int64) * rows,
            rows,
            network.predictions,
            layers.biased,
            np.array(pairs[images:], np.int64) - len(layers.convolutions) if pairs else NOTHING,
            np.array([at[f"match{j}_weight"] for j in range(images, len(pairs))], np.int64),
            np.array(shares[images:], np.float64),
            given,
            self.dtype.type(1 - network.dropout),
            np.array(entropies, np.float64).reshape(-1, 2),
            np.array(tensors, np.int64) if self.drawn else NOTHING,
            batches.normal_pairs(self.dtype)
            if self.drawn
            else np.empty(0, np.result_type(self.dtype, "c8")),
            Rows(self.means, self.turned).size,
            multiplier(self.dtype.name).address,
        )
        return net, buffers

    def _pairs(self) -> tuple[list[tuple[int, int]], list[float]]:
        """Return pairs (source, target), numbers of activations to match, and gradient factors."""
        images = (math.prod(shape) for _, shape, _ in self.layers.convolutions)
        sizes = [*images, *self.layers.sizes]
        for term in self.procedure.losses:
            if compiled_kind(term) == "matching":
                matching: Any = term
                pairs = matching.pairs(len(sizes))
                mean = matching.reduction == "mean"
                each = [2 * matching.coefficient / (sizes[to] if mean else 1) for _, to in pairs]
                return pairs, each
        return [], []

    def _room(self, body: Any) -> Any:
        sizes, rows = self.net.sizes.tolist(), self.net.rows
        across, matching = padding.padded_to(rows), self.net.pairs is not NOTHING
        hidden = sum(map(padding.row_of, sizes[1:])) * rows
        widest = max(map(padding.row_of, sizes if matching else sizes[1:]))
        deep = max(sizes if self.net.maps[0] else sizes[1:])
        word_count = sum(-(-rows * m // 2) for m in sizes[1:-1]) if self.net.kept < 1 else 0
        word_count = compiled.DRAWN // 8 if self.drawn else word_count
        numbers = {
            "x": rows * sizes[0] + padding.PAD,  # vectors of channels go over the end
            "activations": hidden,
            "errors": hidden,
            "theirs": hidden * matching,
            "back": rows * widest * matching,
            "turned": widest * across,
            "below": deep * across,
            "shift": rows,
            "zeros": max(widest, across),
        }
        buffers = {name: padding.aligned(size, self.dtype) for name, size in numbers.items()}
        given = NOTHING
        if self.layers.convolutions and matching:
            given = room_of(self.net.body, self.net.given, body, buffers["x"].size)
        return compiled.Scratch(body, given, **buffers, words=np.zeros(word_count, np.uint64))

    def _model(self, keep_gradients: bool) -> Any:
        # a step of the optimiser goes through several at once: where these lie equally in their
        # pages it takes the processor twice as long
        places = itertools.count(0, 9 * padding.LINE)

        def flat(wanted: bool, size: int = self.rows.size) -> Array:
            return padding.aligned(size if wanted else 0, self.dtype, next(places), padding.PAGE)

        means, weights = self.net.size, flat(True)
        kept = len(self.procedure.settings.remembered)
        return compiled.Model(
            weights,
            flat(True, int(self.net.maps[0])) if self.direct else flat(True),
            flat(bool(self.procedure.terms)),
            flat(keep_gradients),
            (flat(kept > 0), flat(kept > 1), flat(kept > 2)),
            flat(True, means) if self.drawn else weights,
            *(flat(self.drawn, means) for _ in range(3)),
        )


def _whole(views: Arrays, shapes: Mapping[str, Shape]) -> dict[str, Array]:
    return {name: views[name].reshape(1, *shape) for name, shape in shapes.items()}
