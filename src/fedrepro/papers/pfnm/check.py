"""Compare our matching with recorded outputs of the PFNM authors' code.

A recording is an .npz with the clients' networks, hyper-parameters, the order of visits and the
results. Assignments, sizes and counts must be equal, weights and biases agree to 1e-12.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.methods.matching.network_arrays import UnitArrays, class_shares, networks_of
from fedrepro.methods.matching.sequential_matching import Rule, Variances, match_networks

TOLERANCE = 1e-12
Finding = tuple[str, bool, str]  # an output, whether ours agrees with the authors', in what
Shape = tuple[int | None, ...]  # None for any length


def run_check(path: Path, echo: Callable[[str], object]) -> int:
    """Compare our matching with the authors' in the file `path`; `echo` a line for each array.

    Returns 0 if all agrees, 1 if not, 2 if the file cannot be checked.
    """
    try:
        findings = check_pfnm(path)
    except FedreproError as error:
        echo(f"cannot be checked: {error}")
        return 2
    for what, agrees, words in findings:
        echo(f"{'agrees' if agrees else 'DIFFERS'}  {what}: {words}")
    return 0 if all(agrees for _, agrees, _ in findings) else 1


def check_pfnm(path: Path) -> list[Finding]:
    """Match the clients' networks in a recorded file again, and compare with the authors' results.

    Returns findings on the assignments, size and counts of each layer, and on each tensor.

    Raises:
        FedreproError: the file cannot be checked.
    """
    arrays = _Arrays(path)
    clients, dims = int(arrays.whole("J", ())), arrays.whole("dims", (None,))
    if clients < 1 or len(dims) < 3 or (dims < 1).any():
        raise arrays.error("'J' and 'dims' must describe at least one client and one hidden layer")
    layers, classes = len(dims) - 2, int(dims[-1])
    label_counts = arrays.real("freqs", (clients, classes))
    if (label_counts < 0).any():
        raise arrays.error("'freqs' has counts below 0")
    widths = np.tile(dims[1:-1], (clients, 1))
    if "widths" in arrays:
        widths = arrays.whole("widths", (clients, layers))
        if (widths < 1).any():
            raise arrays.error("'widths' must be at least 1")
    passes = int(arrays.whole("it", ()))
    network, matchings = match_networks(
        _networks(arrays, widths, dims),
        class_shares(label_counts),
        Variances(arrays.positive("sigma"), arrays.positive("sigma0"), bias=0.1),
        Rule(gamma0=arrays.positive("gamma"), popularity=1.0, count_cap=10, width_cap=700),
        [arrays.whole(f"layer{layer}_perms", (passes, clients)) for layer in range(layers)],
    )
    findings: list[Finding] = []
    for layer, matching in enumerate(matchings):
        name = f"layer{layer}_assign"
        assigned, widest = arrays.whole(name, (clients, None)), widths[:, layers - 1 - layer].max()
        if assigned.shape[1] < widest:
            raise arrays.error(f"'{name}' has room for {assigned.shape[1]} of {widest} units")
        ours = np.full_like(assigned, -1)  # the padding of narrow clients
        for client, atoms in enumerate(matching.assignments):
            ours[client, : len(atoms)] = atoms
        same = ours == assigned
        size, recorded = len(matching.counts), int(arrays.whole(f"layer{layer}_size", ()))
        counts = arrays.whole(f"layer{layer}_counts", (None,))
        in_atoms = f"{counts.sum()} units recorded, {matching.counts.sum()} in {size} atoms here"
        findings += [
            (f"layer {layer} assignments", bool(same.all()), f"{same.sum()} of {same.size} units"),
            (f"layer {layer} size", size == recorded, f"{size}, recorded {recorded}"),
            (f"layer {layer} counts", np.array_equal(counts, matching.counts), in_atoms),
        ]
    room = [int(dims[0]), *(None for _ in range(layers)), classes]
    for block, values in enumerate(network):
        theirs = arrays.real(f"out_{block}", tuple(room[(block + 1) // 2 : block // 2 + 2]))
        agrees, words = False, f"shape {values.shape}, recorded {theirs.shape}"
        if values.shape == theirs.shape:
            most = float(np.abs(values - theirs).max(initial=0.0))
            agrees, words = most <= TOLERANCE, f"largest difference {most:.1e}"
        kind = "bias" if block % 2 else "weight"
        findings.append((f"out_{block} ({kind}{block // 2})", agrees, words))
    return findings


class _Arrays(dict[str, np.ndarray]):
    """The arrays of a recorded .npz file by name; reading an array checks its type and shape."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise FedreproError(f"{path} does not exist; name a file that is there")
        try:
            super().__init__(np.load(path, allow_pickle=False).items())
        except Exception:  # numpy has many for what is damaged or of another kind
            raise self.error("not a complete .npz file of plain arrays") from None

    def error(self, sentence: str) -> FedreproError:
        return FedreproError(f"{self.path}: {sentence}")

    def real(self, name: str, shape: Shape, padded: bool = False) -> np.ndarray:
        """Return array `name` as float64, or raise FedreproError if it is missing or does not fit.

        `shape` has None where any size fits. Values have to be finite, unless it is `padded`.
        """
        if name not in self:
            raise self.error(f"'{name}' is missing")
        array = self[name]
        if array.dtype.kind not in "iuf":
            raise self.error(f"'{name}' is not an array of numbers")
        pairs = zip(shape, array.shape, strict=False)
        if array.ndim != len(shape) or any(n not in (None, m) for n, m in pairs):
            expected = ", ".join("any" if n is None else str(n) for n in shape)
            raise self.error(f"'{name}' has the shape {array.shape}, not ({expected})")
        if not padded and not np.isfinite(array).all():
            raise self.error(f"'{name}' has values that are not finite")
        return array.astype(np.float64)

    def whole(self, name: str, shape: Shape) -> np.ndarray:
        array = self.real(name, shape)
        if (array != np.round(array)).any() or (np.abs(array) > 2**53).any():
            raise self.error(f"'{name}' has values that are not whole numbers")
        return array.astype(np.int64)

    def positive(self, name: str) -> float:
        value = float(self.real(name, ()))
        if value <= 0:
            raise self.error(f"'{name}' must be above 0, not {value:g}")
        return value


def _networks(arrays: _Arrays, widths: np.ndarray, dims: np.ndarray) -> list[UnitArrays]:
    """Return clients' networks, cut to their `widths` (J, hidden layers); `dims` are the widest."""
    clients, padded = len(widths), "widths" in arrays
    inputs, *hidden, classes = (int(n) for n in dims)
    room = [inputs, *((None,) * len(hidden) if padded else hidden), classes]
    tensors = {}
    for layer, (fan_in, fan_out) in enumerate(pairwise(room)):
        weight, bias = (clients, fan_in, fan_out), (clients, fan_out)
        tensors[f"weight{layer}"] = arrays.real(f"in_{2 * layer}", weight, padded)
        tensors[f"bias{layer}"] = arrays.real(f"in_{2 * layer + 1}", bias, padded)
    networks = networks_of(tensors, widths.tolist())
    for client, (own, network) in enumerate(zip(widths.tolist(), networks, strict=True)):
        sizes = (inputs, *own, classes)
        for i, values in enumerate(network):
            if values.shape != sizes[(i + 1) // 2 : i // 2 + 2]:
                raise arrays.error(f"'in_{i}' has no room for client {client} of these widths")
            if not np.isfinite(values).all():
                raise arrays.error(f"'in_{i}' of client {client} has values not finite")
    return networks
