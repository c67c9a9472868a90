"""Compare our matching with recorded outputs of the PFNM authors' code.

A recording is an .npz with the clients' networks, hyper-parameters, the order of visits and the
results. Assignments, sizes and counts must be equal, weights and biases agree to 1e-12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from fedrepro.methods.matching.network_arrays_and_tracing import class_shares, networks_of
from fedrepro.methods.matching.pfnm_sequential_matching import Rule, Variances, match_networks

TOLERANCE = 1e-12
Pair = tuple[np.ndarray, np.ndarray]  # our output and the authors'


def run_check(path: Path, echo: Callable[[str], object]) -> int:
    """Compare our matching with the authors' in the file `path`; `echo` a line for each array.

    Returns 0 if all agrees, 1 if not, 2 if the file cannot be checked.
    """
    try:
        arrays = dict(np.load(path, allow_pickle=False).items())
        compared = {what: _compared(*both) for what, both in _outputs(arrays)}
    except Exception as error:  # numpy has many for what is damaged or does not fit together
        echo(f"cannot be checked: {path}: no whole recording ({type(error).__name__}: {error})")
        return 2
    for what, (agrees, words) in compared.items():
        echo(f"{'agrees' if agrees else 'DIFFERS'}  {what}: {words}")
    return 0 if all(agrees for agrees, _ in compared.values()) else 1


def _compared(ours: np.ndarray, theirs: np.ndarray) -> tuple[bool, str]:
    if ours.shape != theirs.shape:
        return False, f"shape {ours.shape}, recorded {theirs.shape}"
    most = float(np.abs(ours - theirs).max(initial=0.0))
    return most <= TOLERANCE, f"largest difference {most:.1e}"


def _outputs(arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, Pair]]:
    """Match the recorded clients' networks again; yield each output by name, ours and theirs."""
    clients, layers = int(arrays["J"]), len(arrays["dims"]) - 2
    # of each client's hidden layers; what is beyond is padding
    widths = arrays.get("widths", np.tile(arrays["dims"][1:-1], (clients, 1)))
    tensors = {
        f"{kind}{layer}": arrays[f"in_{2 * layer + at}"]
        for layer in range(layers + 1)
        for at, kind in enumerate(("weight", "bias"))
    }
    sigma2, sigma02, gamma0 = (float(arrays[name]) for name in ("sigma", "sigma0", "gamma"))
    network, matchings = match_networks(
        networks_of(tensors, widths.tolist()),
        class_shares(arrays["freqs"]),
        Variances(sigma2, sigma02, bias=0.1),
        Rule(gamma0=gamma0, popularity=1.0, count_cap=10, width_cap=700),
        [arrays[f"layer{layer}_perms"] for layer in range(layers)],
    )
    for layer, matching in enumerate(matchings):
        assigned, counts = (arrays[f"layer{layer}_{name}"] for name in ("assign", "counts"))
        ours = np.full_like(assigned, -1)  # the padding of narrow clients
        for client, atoms in enumerate(matching.assignments):
            ours[client, : len(atoms)] = atoms
        yield f"layer {layer} assignments", (ours, assigned)
        yield f"layer {layer} size", (np.array(len(matching.counts)), arrays[f"layer{layer}_size"])
        yield f"layer {layer} counts", (matching.counts, counts)
    for block, values in enumerate(network):
        name = f"out_{block} ({'bias' if block % 2 else 'weight'}{block // 2})"
        yield name, (values, arrays[f"out_{block}"])
