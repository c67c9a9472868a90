"""Compare our matching with recorded outputs of the PFNM authors' code.

A recording is an .npz with the clients' networks, hyper-parameters, the order of visits and the
results. Assignments, sizes and counts must be equal, weights and biases agree to 1e-12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.methods.matching.network_arrays import class_shares, networks_of
from fedrepro.methods.matching.sequential_matching import Rule, Variances, match_networks

TOLERANCE = 1e-12
Finding = tuple[str, bool, str]  # an output, whether ours agrees with the authors', in what


def run_check(path: Path, echo: Callable[[str], object]) -> int:
    """Compare our matching with the authors' in the file `path`; `echo` a line for each array.

    Returns 0 if all agrees, 1 if not, 2 if the file cannot be checked.
    """
    try:
        findings = check_pfnm(path)
    except FedreproError as error:
        echo(f"cannot be checked: {path}: {error}")
        return 2
    for what, agrees, words in findings:
        echo(f"{'agrees' if agrees else 'DIFFERS'}  {what}: {words}")
    return 0 if all(agrees for _, agrees, _ in findings) else 1


def check_pfnm(path: Path) -> list[Finding]:
    """Match the clients' networks in a recorded file again, and compare with the authors' results.

    Returns findings on the assignments, size and counts of each layer, and on each tensor. Raises
    FedreproError if the file cannot be checked.
    """
    if not path.is_file():
        raise FedreproError("no such file; name one that is there")
    try:
        arrays = dict(np.load(path, allow_pickle=False).items())
    except Exception:  # numpy has many for what is damaged or of another kind
        raise FedreproError("not a complete .npz file of plain arrays") from None
    try:
        return [*_findings(arrays)]
    except KeyError as error:
        raise FedreproError(f"{error} is missing") from None
    except (ValueError, IndexError, TypeError) as error:
        raise FedreproError(f"its arrays do not fit together ({error})") from None


def _findings(arrays: Mapping[str, np.ndarray]) -> Iterator[Finding]:
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
        same = ours == assigned
        size, recorded = len(matching.counts), int(arrays[f"layer{layer}_size"])
        in_atoms = f"{counts.sum()} units recorded, {matching.counts.sum()} in {size} atoms here"
        yield f"layer {layer} assignments", bool(same.all()), f"{same.sum()} of {same.size} units"
        yield f"layer {layer} size", size == recorded, f"{size}, recorded {recorded}"
        yield f"layer {layer} counts", np.array_equal(counts, matching.counts), in_atoms
    for block, values in enumerate(network):
        theirs = arrays[f"out_{block}"]
        agrees, words = False, f"shape {values.shape}, recorded {theirs.shape}"
        if values.shape == theirs.shape:
            most = float(np.abs(values - theirs).max(initial=0.0))
            agrees, words = most <= TOLERANCE, f"largest difference {most:.1e}"
        yield f"out_{block} ({'bias' if block % 2 else 'weight'}{block // 2})", agrees, words
