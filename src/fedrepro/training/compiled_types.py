"""Records of arrays and numbers that the compiled steps work on.

A model is a flat array: kernels or recurrent layers first (`networks/compiled_convolutions.py`,
`unrolled.py`), then the weight (n, m) and the bias (m,) of each affine map, rows filled up with
zeros to `row_of(m)`. Activations (P, m) and their errors lie likewise. All arrays of numbers are of
one dtype, float32 or float64, except the inputs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fedrepro.core.portable_ops.compiled_math import Array
from fedrepro.networks.compiled_convolutions import Convolutions, Images
from fedrepro.networks.compiled_lstm import Recurrent, Times
from fedrepro.training.compiled_matching import Laid, Maps

SGD, ADAM, AMSGRAD = range(3)


class Nothing(NamedTuple):
    """The body of a network of affine maps alone, and its buffers."""

    size: int = 0


class Data(NamedTuple):
    """inputs (N, D), uint8 or floating, times 1 / scale; targets: labels (N,) or shares (N, K)."""

    inputs: Array
    targets: Array
    scale: Any
    inverse: Any


class StepOrder(NamedTuple):
    """The minibatches: rows[ends[s] : ends[s + 1]] at step s, drawn from in pieces of `piece` rows.

    keys: uint64 (epochs, 2), of random words; places: int64 (steps, 2), epoch and step in it.
    crops: int64 as rows, how each image is moved (`augment.py`), or empty.
    """

    rows: Array
    ends: Array
    piece: int
    keys: Array
    places: Array
    crops: Array


class Net(NamedTuple):
    """A network: its body, and above it affine maps of sizes (L + 1,).

    maps (L,): where these begin in the model; activations (L,): in their buffers, of `rows`
    predictions; biased: whether maps have biases. pairs (J, 2), pair_maps, pair_shares (J,): of
    representation matching, between affine maps; given: the maps f_j from images. tensors (T, 3):
    of drawn weights, where each begins, its rows and columns; table: of normal numbers. size: of
    the network's numbers, or of its means. by: the address of the product.
    """

    body: Convolutions | Recurrent | Nothing
    sizes: Array
    maps: Array
    activations: Array
    rows: int
    biased: bool
    pairs: Array
    pair_maps: Array
    pair_shares: Array
    given: Maps | Nothing
    kept: Any
    entropies: Array
    tensors: Array
    table: Array
    size: int
    by: int


class StepNumbers(NamedTuple):
    """The numbers of an optimiser, in the dtype of the model.

    pull and shift: of w - start and of start in the gradient; share: of a divergence in the loss of
    a minibatch.
    """

    kind: int
    direct: bool
    lr: Any
    l2: Any
    momentum: Any
    beta1: float
    beta2: float
    eps: Any
    pull: Any
    shift: Any
    share: Any


class Model(NamedTuple):
    """A model that trains: weights (S,), gradient and what was received.

    moments: of the optimiser, (S,) each or empty, which begin at a line of the cache as all others
    do. used: the weights of a step, which for a variational network are drawn: there `weights` are
    means and then spreads, each (S / 2,), and so are deviations and what the prior says.
    """

    weights: Array
    gradient: Array
    received: Array
    summed: Array
    moments: tuple[Array, Array, Array]
    used: Array
    deviation: Array
    prior: Array
    prior_deviation: Array


class Scratch(NamedTuple):
    """Buffers of a step, for the affine maps, for the body, and for matching its images.

    x: inputs of the maps (P, n); activations, errors; theirs: activations of the received network;
    turned, below: errors whose axes are exchanged.
    """

    body: Images | Times | Nothing
    given: Laid | Nothing
    x: Array
    activations: Array
    errors: Array
    theirs: Array
    back: Array
    turned: Array
    below: Array
    shift: Array
    negative: Array
    zeros: Array
    words: Array
