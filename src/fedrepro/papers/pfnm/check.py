"""Replaying recorded outputs of the PFNM authors' matching code.

A recorded case is an .npz with the clients' networks, the settings, the order in which clients
were visited, and what came out. It is matched again with those orders; assignments, sizes and
counts must be equal, weights and biases agree to 1e-12.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from fedrepro.core.errors import FedreproError
from fedrepro.methods.matching.sequential_matching import Matching, Rule, Variances, match_networks
from fedrepro.methods.matching.unit_arrays import UnitArrays, class_shares

TOLERANCE = 1e-12

# What numpy raises for files that are not, or no longer, what they should be.
UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True)
class CaseFinding:
    """One thing compared: what, whether it agrees, and a few words."""

    what: str
    agrees: bool
    words: str


@dataclass(frozen=True)
class CheckReport:
    findings: tuple[CaseFinding, ...]

    @property
    def agrees(self) -> bool:
        return all(finding.agrees for finding in self.findings)


@dataclass(frozen=True)
class RecordedCase:
    """A recorded case, validated. widths: int64 (J, hidden layers)."""

    networks: list[UnitArrays]
    widths: np.ndarray
    variances: Variances
    gamma0: float
    label_counts: np.ndarray
    orders: list[np.ndarray]
    assignments: list[np.ndarray]
    counts: list[np.ndarray]
    sizes: list[int]
    out: list[np.ndarray]


def check_pfnm(path: Path) -> CheckReport:
    """Replay a recorded case and compare. Raises FedreproError if the file cannot be checked."""
    case = _validated(_Arrays(path))
    network, matchings = match_networks(
        case.networks,
        class_shares(case.label_counts),
        case.variances,
        Rule(gamma0=case.gamma0, popularity=1.0, count_cap=10, width_cap=700),
        case.orders,
    )
    return CheckReport((*_matching_findings(case, matchings), *_network_findings(case, network)))


def run_check(path: Path, echo: Callable[[str], object]) -> int:
    """Check a recorded case and say what agrees, a line each: 0 all, 1 not all, 2 not checked."""
    try:
        report = check_pfnm(path)
    except FedreproError as error:
        echo(f"cannot be checked: {error}")
        return 2
    for finding in report.findings:
        echo(f"{'agrees' if finding.agrees else 'DIFFERS'}  {finding.what}: {finding.words}")
    return 0 if report.agrees else 1


def _matching_findings(
    case: RecordedCase, matchings: tuple[Matching, ...]
) -> Iterator[CaseFinding]:
    for layer, matching in enumerate(matchings):
        ours = np.full_like(case.assignments[layer], -1)  # the padding of narrow clients
        for client, atoms in enumerate(matching.assignments):
            ours[client, : len(atoms)] = atoms
        same = ours == case.assignments[layer]
        message = f"{same.sum()} of {same.size} units"
        yield CaseFinding(f"layer {layer} assignments", bool(same.all()), message)
        size, recorded = len(matching.counts), case.sizes[layer]
        yield CaseFinding(f"layer {layer} size", size == recorded, f"{size}, recorded {recorded}")
        counts = case.counts[layer]
        equal = np.array_equal(counts, matching.counts)
        message = f"{counts.sum()} units recorded, {matching.counts.sum()} in {size} atoms here"
        yield CaseFinding(f"layer {layer} counts", equal, message)


def _network_findings(case: RecordedCase, network: UnitArrays) -> Iterator[CaseFinding]:
    for block, (ours, theirs) in enumerate(zip(network, case.out, strict=True)):
        name = f"out_{block} ({'bias' if block % 2 else 'weight'}{block // 2})"
        if ours.shape != theirs.shape:
            yield CaseFinding(name, False, f"shape {ours.shape}, recorded {theirs.shape}")
            continue
        most = float(np.abs(ours - theirs).max(initial=0.0))
        yield CaseFinding(name, most <= TOLERANCE, f"largest difference {most:.1e}")


class _Arrays:
    """The arrays of an .npz by name, each read once it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise FedreproError(f"{path} does not exist; name a file that is there")
        try:
            loaded = np.load(path, allow_pickle=False)
            self.arrays = {name: loaded[name] for name in loaded.files}
        except UNREADABLE as error:
            raise self.error(f"not a complete .npz file of plain arrays ({error})") from None
        except AttributeError:  # a single array has no `files`
            raise self.error("a single array, not an .npz file") from None

    def error(self, sentence: str) -> FedreproError:
        return FedreproError(f"{self.path}: {sentence}")

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def real(self, name: str, shape: tuple[int | None, ...], padded: bool = False) -> np.ndarray:
        """Float64, finite unless padded. None in `shape` stands for any length."""
        if name not in self.arrays:
            raise self.error(f"'{name}' is missing")
        array = self.arrays[name]
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "iuf":
            raise self.error(f"'{name}' is not an array of numbers")
        fits = len(shape) == array.ndim and all(
            n in (None, m) for n, m in zip(shape, array.shape, strict=True)
        )
        if not fits:
            raise self.error(f"'{name}' has the shape {array.shape}, not {_shown(shape)}")
        if not padded and not np.isfinite(array).all():
            raise self.error(f"'{name}' has values that are not finite")
        return array.astype(np.float64)

    def whole(self, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
        """Int64, refusing fractions."""
        array = self.real(name, shape)
        if (array != np.round(array)).any() or (np.abs(array) > 2**53).any():
            raise self.error(f"'{name}' has values that are not whole numbers")
        return array.astype(np.int64)

    def positive(self, name: str) -> float:
        value = float(self.real(name, ()))
        if value <= 0:
            raise self.error(f"'{name}' must be above 0, not {value:g}")
        return value


def _shown(shape: tuple[int | None, ...]) -> str:
    return "(" + ", ".join("any" if n is None else str(n) for n in shape) + ")"


def _validated(arrays: _Arrays) -> RecordedCase:
    clients, dims = int(arrays.whole("J", ())), arrays.whole("dims", (None,))
    if clients < 1 or len(dims) < 2 or (dims < 1).any():
        raise arrays.error("'J' and 'dims' must describe at least one client and one layer")
    layers, classes = len(dims) - 2, int(dims[-1])
    if layers < 1:
        raise arrays.error("'dims' has no hidden layer, so there is nothing to match")
    label_counts = arrays.real("freqs", (clients, classes))
    widths = _widths(arrays, clients, dims)
    passes = int(arrays.whole("it", ()))
    if (label_counts < 0).any():
        raise arrays.error("'freqs' has counts below 0")
    tops = range(layers)
    return RecordedCase(
        _networks(arrays, widths, dims),
        widths,
        Variances(arrays.positive("sigma"), arrays.positive("sigma0"), bias=0.1),
        arrays.positive("gamma"),
        label_counts,
        [arrays.whole(f"layer{q}_perms", (passes, clients)) for q in tops],
        [_assignments(arrays, q, widths[:, layers - 1 - q]) for q in tops],
        [arrays.whole(f"layer{q}_counts", (None,)) for q in tops],
        [int(arrays.whole(f"layer{q}_size", ())) for q in tops],
        _out(arrays, dims),
    )


def _widths(arrays: _Arrays, clients: int, dims: np.ndarray) -> np.ndarray:
    """Hidden widths by client and layer: the key `widths`, or those of `dims` for everyone."""
    if "widths" not in arrays:
        return np.tile(dims[1:-1], (clients, 1))
    widths = arrays.whole("widths", (clients, len(dims) - 2))
    if (widths < 1).any():
        raise arrays.error("'widths' must be at least 1")
    return widths


def _assignments(arrays: _Arrays, layer: int, widths: np.ndarray) -> np.ndarray:
    """Atoms by client and unit, int64 (J, at least the widest client), -1 beyond its width."""
    name = f"layer{layer}_assign"
    assigned = arrays.whole(name, (len(widths), None))
    if assigned.shape[1] < widths.max():
        raise arrays.error(f"'{name}' has room for {assigned.shape[1]} of {widths.max()} units")
    return assigned


def _networks(arrays: _Arrays, widths: np.ndarray, dims: np.ndarray) -> list[UnitArrays]:
    """Cut the padding up to the widest client off the clients' networks."""
    clients, padded = len(widths), "widths" in arrays
    inputs, *hidden, classes = (int(n) for n in dims)
    room = [inputs, *((None,) * len(hidden) if padded else hidden), classes]
    blocks = []
    for layer, (fan_in, fan_out) in enumerate(pairwise(room)):
        blocks.append(arrays.real(f"in_{2 * layer}", (clients, fan_in, fan_out), padded))
        blocks.append(arrays.real(f"in_{2 * layer + 1}", (clients, fan_out), padded))
    return [
        _network(arrays, [block[j] for block in blocks], (inputs, *client_widths, classes), j)
        for j, client_widths in enumerate(widths.tolist())
    ]


def _network(
    arrays: _Arrays, blocks: list[np.ndarray], sizes: tuple[int, ...], client: int
) -> UnitArrays:
    """One client's blocks cut to its layer sizes."""
    network = []
    for i, block in enumerate(blocks):
        shape = sizes[(i + 1) // 2 : i // 2 + 2]
        values = block[tuple(slice(n) for n in shape)]
        if values.shape != shape:
            raise arrays.error(f"'in_{i}' has no room for client {client}, whose widths are larger")
        if not np.isfinite(values).all():
            raise arrays.error(f"'in_{i}' of client {client} has values not finite")
        network.append(values)
    return tuple(network)


def _out(arrays: _Arrays, dims: np.ndarray) -> list[np.ndarray]:
    room = [int(dims[0]), *(None for _ in dims[1:-1]), int(dims[-1])]
    return [
        arrays.real(f"out_{2 * layer + bias}", ends[bias:])
        for layer, ends in enumerate(pairwise(room))
        for bias in (0, 1)
    ]
