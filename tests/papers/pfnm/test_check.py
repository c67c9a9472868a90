"""`fedrepro check pfnm`: recorded cases that agree, that differ, and that cannot be checked."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import literal_matching as literal
import numpy as np
import pytest

from fedrepro.cli.main import main
from fedrepro.papers.pfnm.authors_code_comparison import run_check

VECTORS = Path(__file__).parents[3].parent / "shared" / "vectors"


def recorded(seed=0, widths=(5, 3, 5, 4), inputs=6, classes=3, passes=3, noise=0.4, cap=10):
    """A case as the authors' code would have left it; widths: a client's, of one layer or each."""
    rng = np.random.default_rng(seed)
    widths = np.array([np.ravel(w) for w in widths])
    clients, depth = widths.shape
    truth = [rng.normal(0, 1.5, shape) for shape in pairwise([inputs, *[8] * depth, classes])]
    counts = rng.integers(1, 30, (clients, classes)).astype(float)
    counts[1, 0] = counts[2, 1] = 0  # classes that a client lacks
    networks = []
    for own in widths:
        held = [np.arange(inputs), *(rng.permutation(8)[:n] for n in own), np.arange(classes)]
        networks.append([])
        for weights, (rows, columns) in zip(truth, pairwise(held), strict=True):
            weight = weights[np.ix_(rows, columns)]
            networks[-1] += [weight + rng.normal(0, noise, weight.shape)]
            networks[-1] += [rng.normal(size=len(columns))]
    visits = np.array([[rng.permutation(clients) for _ in range(passes)] for _ in range(depth)])
    matchings, out = literal.match_deep(
        networks, counts, visits, sigma=0.7, sigma0=10.0, gamma=1.0, cap=cap
    )
    dims = [inputs, *widths.max(0), classes]
    arrays = {"J": clients, "dims": dims, "sigma": 0.7, "sigma0": 10.0, "gamma": 1.0}
    arrays |= {"it": passes, "seed": seed, "freqs": counts}
    arrays |= {f"in_{i}": stacked(blocks) for i, blocks in enumerate(zip(*networks, strict=True))}
    arrays |= {f"out_{i}": block for i, block in enumerate(out)}
    for q, matching in enumerate(matchings):
        assign = stacked([np.array(held, float) for held in matching.assignments])
        arrays[f"layer{q}_assign"] = np.where(np.isnan(assign), -1, assign).astype(int)
        arrays[f"layer{q}_counts"] = matching.counts
        arrays[f"layer{q}_size"] = len(matching.counts)
        arrays[f"layer{q}_perms"] = visits[q]
    arrays["widths"] = widths
    return {name: np.array(value) for name, value in arrays.items()}


def stacked(blocks):
    """Blocks of several clients, padded with NaN to the largest."""
    found = np.full((len(blocks), *np.max([block.shape for block in blocks], axis=0)), np.nan)
    for room, block in zip(found, blocks, strict=True):
        room[tuple(slice(n) for n in block.shape)] = block
    return found


def replay(path, arrays):
    """Exit code and lines of checking these arrays."""
    np.savez(path, **arrays)
    lines = []
    return run_check(path, lines.append), lines


@pytest.fixture
def path(tmp_path):
    return tmp_path / "case.npz"


@pytest.mark.skipif(not VECTORS.is_dir(), reason="shared/vectors is not beside the repository")
@pytest.mark.parametrize(
    "name", ["J10_planted", "J16_count_cap", "J10_ml2", "J6_three_layers_unequal"]
)
def test_recorded_outputs_of_the_authors_code_agree(name):
    lines = []
    assert run_check(VECTORS / f"pfnm_case_{name}.npz", lines.append) == 0, lines


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("depth", [1, 2, 3, 6])
def test_several_hidden_layers_agree_in_every_line(path, seed, depth):
    arrays = recorded(seed, np.random.default_rng(seed).integers(2, 7, (5, depth)))
    code, lines = replay(path, arrays)
    assert code == 0, lines
    assert len(lines) == 3 * depth + 2 * (depth + 1)


def test_padding_is_read_over_and_counts_without_a_cap_differ(path):
    arrays = recorded(1, [(4, 2), (3, 2), (4, 1)])
    room = {"in_2": -1, "in_3": -1, "in_4": 1, "layer0_assign": -1}
    for name, axis in room.items():
        pads = [(0, 0)] * arrays[name].ndim
        pads[axis] = (0, 2)
        beyond = -1 if name == "layer0_assign" else np.nan
        arrays[name] = np.pad(arrays[name], pads, constant_values=beyond)
    assert replay(path, arrays)[0] == 0
    capped, free = (recorded(widths=(6,) * 20, noise=0.8, cap=cap) for cap in (10, None))
    assert replay(path, capped)[0] == 0
    assert replay(path, free)[0] == 1


def moved(place, by):
    """The array with one number that differs."""

    def change(array):
        array[place] += by
        return array

    return change


usual = cache(recorded)


def changed(key, change):
    return usual() | {key: change(usual()[key].copy())}


@pytest.mark.parametrize(
    ("key", "change", "line"),
    [
        ("layer0_assign", moved((0, 0), 1), "layer 0 assignments: largest difference 1.0e+00"),
        ("layer0_assign", moved((1, 4), 1), "assignments"),  # in the padding
        ("out_0", moved((1, 2), 1e-9), "out_0 (weight0): largest difference 1.0e-09"),
        ("out_2", moved((2, 1), -1e-9), "out_2"),
        ("out_3", moved(1, 1e-11), "out_3 (bias1)"),
        ("out_1", lambda a: a[:-1], "out_1 (bias0): shape"),
        ("out_1", lambda a: a * np.nan, "out_1"),
        ("layer0_size", lambda a: a + 1, "size"),
        ("layer0_counts", moved(0, 1), "counts"),
    ],
)
def test_what_was_altered_is_what_differs(path, key, change, line):
    code, lines = replay(path, changed(key, change))
    (different,) = [text for text in lines if text.startswith("DIFFERS")]
    assert code == 1
    assert line in different


@pytest.mark.parametrize(
    ("key", "change", "sentence"),
    [
        *(
            (key, None, f"KeyError: '{key}'")
            for key in sorted({*usual()} - {"seed", "widths", "it"})
        ),
        ("in_0", moved((0, 0, 0), np.nan), "not finite"),
        ("in_1", lambda a: a[1:], "no whole recording"),
        ("freqs", lambda a: a[:, 1:], "no whole recording"),
        ("layer0_assign", lambda a: a[:, :3], "no whole recording"),
        ("layer0_perms", lambda a: a * 0, "each pass must visit all 4 clients once"),
        ("sigma", lambda a: a * 0, "too near to 0 to divide by"),
        ("freqs", lambda a: a.astype(object), "allow_pickle=False"),
    ],
)
def test_a_case_that_cannot_be_checked_is_one_sentence(path, key, change, sentence):
    arrays = changed(key, change) if change else {k: v for k, v in usual().items() if k != key}
    code, lines = replay(path, arrays)
    assert (code, len(lines)) == (2, 1)
    assert lines[0].startswith(f"cannot be checked: {path}: ")
    assert sentence in lines[0]


def test_the_command_gives_the_exit_code(path, capsys):
    np.savez(path, **usual())
    assert main(["check", "pfnm", str(path)]) == 0
    assert "agrees  layer 0 size" in capsys.readouterr().out
    whole = path.read_bytes()
    np.savez(path, **changed("layer0_size", lambda a: a + 1))
    assert main(["check", "pfnm", str(path)]) == 1
    for content in (b"", b"sigma = 1\n", whole[: len(whole) // 2]):
        path.write_bytes(content)
        assert main(["check", "pfnm", str(path)]) == 2
    path.unlink()
    assert main(["check", "pfnm", str(path)]) == 2
