"""`fedrepro check pfnm`: recorded cases that agree, that differ, and that cannot be checked."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import literal_matching as literal
import numpy as np
import pytest

from fedrepro.cli.main import main
from fedrepro.papers.pfnm.check import check_pfnm, run_check

VECTORS = Path(__file__).parents[3].parent / "shared" / "vectors"


def recorded(
    seed=0, widths=(5, 3, 5, 4), inputs=6, classes=3, padded=True, passes=3, noise=0.4, cap=10
):
    """A case as the authors' code would have left it, made by the literal matching.

    widths: of each client, a number or one for each hidden layer.
    """
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
    if padded:
        arrays["widths"] = widths
    return {name: np.array(value) for name, value in arrays.items()}


def stacked(blocks):
    """Blocks of several clients, padded with NaN to the largest."""
    shape = np.max([block.shape for block in blocks], axis=0)
    found = np.full((len(blocks), *shape), np.nan)
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
    findings = check_pfnm(VECTORS / f"pfnm_case_{name}.npz")
    assert [finding for finding in findings if not finding[1]] == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("depth", [1, 2, 3, 6])
def test_several_hidden_layers_agree_in_every_line(path, seed, depth):
    arrays = recorded(seed, np.random.default_rng(seed).integers(2, 7, (5, depth)))
    code, lines = replay(path, arrays)
    assert code == 0, lines
    assert len(lines) == 3 * depth + 2 * (depth + 1)
    arrays[f"out_{2 * depth - 1}"][0] += 1e-9
    code, lines = replay(path, arrays)
    assert code == 1
    assert [line for line in lines if line.startswith("DIFFERS")] == [
        f"DIFFERS  out_{2 * depth - 1} (bias{depth - 1}): largest difference 1.0e-09"
    ]


def test_padding_is_read_over_and_other_settings_and_counts_without_a_cap_differ(path):
    arrays = recorded(1, [(4, 2), (3, 2), (4, 1)])
    room = {"in_2": -1, "in_3": -1, "in_4": 1, "layer0_assign": -1}
    for name, axis in room.items():
        pads = [(0, 0)] * arrays[name].ndim
        pads[axis] = (0, 2)
        beyond = -1 if name == "layer0_assign" else np.nan
        arrays[name] = np.pad(arrays[name], pads, constant_values=beyond)
    assert replay(path, arrays)[0] == 0
    # and a case of equal widths needs none
    assert replay(path, recorded(widths=(4, 4, 4), padded=False))[0] == 0
    for key, value in (("sigma", 0.2), ("sigma0", 3.0)):
        assert replay(path, usual() | {key: np.array(value)})[0] == 1
    assert replay(path, changed("out_0", moved((0, 0), 5e-13)))[0] == 0
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


ALTERED = {
    "one assignment": ("layer0_assign", moved((0, 0), 1), "assignments"),
    "padding": ("layer0_assign", moved((1, 4), 1), "assignments"),
    "one weight": ("out_0", moved((1, 2), 1e-9), "out_0"),
    "one outgoing weight": ("out_2", moved((2, 1), -1e-9), "out_2"),
    "one hidden bias": ("out_1", moved(0, 1e-9), "out_1"),
    "one output bias": ("out_3", moved(1, 1e-11), "out_3"),
    "size": ("layer0_size", lambda a: a + 1, "size"),
    "one count": ("layer0_counts", moved(0, 1), "counts"),
    "one atom less": ("out_1", lambda a: a[:-1], "out_1"),
}


@pytest.mark.parametrize("name", ALTERED)
def test_what_was_altered_is_what_differs(path, name):
    key, change, line = ALTERED[name]
    code, lines = replay(path, changed(key, change))
    (different,) = [text for text in lines if text.startswith("DIFFERS")]
    assert code == 1
    assert line in different


KEYS = sorted(set(usual()) - {"seed", "widths"})


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_key_is_named(path, key):
    code, lines = replay(path, {name: value for name, value in usual().items() if name != key})
    assert (code, len(lines)) == (2, 1)
    assert f"'{key}' is missing" in lines[0]


def with_nan(array):
    return moved(0, np.nan)(array.astype(float).ravel()).reshape(array.shape)


BROKEN = {
    "inputs not finite": ("in_0", with_nan),
    "output bias not finite": ("in_3", with_nan),
    "result not finite": ("out_2", with_nan),
    "counts not finite": ("freqs", with_nan),
    "negative counts": ("freqs", lambda a: -a),
    "a client too few": ("in_1", lambda a: a[1:]),
    "a class too few": ("freqs", lambda a: a[:, 1:]),
    "an input too few": ("out_0", lambda a: a[1:]),
    "a pass too few": ("layer0_perms", lambda a: a[1:]),
    "not an order": ("layer0_perms", lambda a: a * 0),
    "no variance": ("sigma", lambda a: a * 0),
    "negative mass": ("gamma", lambda a: -a),
    "a variance for each client": ("sigma0", lambda a: np.full(4, a)),
    "fractions": ("layer0_assign", lambda a: a + 0.5),
    "words": ("layer0_counts", lambda a: np.array(["many"] * len(a))),
    "no clients": ("J", lambda a: a * 0),
    "far too many clients": ("J", lambda a: np.array(10**12)),
    "no width": ("widths", lambda a: a * 0),
    "no room for the width": ("widths", lambda a: a + (np.arange(len(a)) == 0)[:, None]),
    "no layers": ("dims", lambda a: a[:1]),
    "no hidden layers": ("dims", lambda a: a[[0, 2]]),
    "more layers than there are": ("dims", lambda a: a[[0, 1, 1, 2]]),
    "no room for the units": ("layer0_assign", lambda a: a[:, :3]),
    "pickled objects": ("freqs", lambda a: a.astype(object)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_case_is_refused_in_one_sentence(path, name):
    code, lines = replay(path, changed(*BROKEN[name]))
    assert (code, len(lines)) == (2, 1)
    assert lines[0].startswith(f"cannot be checked: {path}:") or "matching: each pass" in lines[0]


def test_files_that_are_no_recorded_case_are_refused_and_the_command_gives_the_exit_code(
    tmp_path, path, capsys
):
    np.savez(path, **usual())
    whole, middle = path.read_bytes(), path.stat().st_size // 2
    damaged = whole[:middle] + bytes(64) + whole[middle + 64 :]
    files = {"empty": b"", "text": b"sigma = 1\n", "part": whole[:middle], "damaged": damaged}
    for name, content in files.items():
        (tmp_path / f"{name}.npz").write_bytes(content)
    np.save(tmp_path / "alone.npy", np.ones(3))
    bad = [*tmp_path.iterdir(), tmp_path, tmp_path / "nothing.npz"]
    for one in set(bad) - {path}:
        lines = []
        assert run_check(one, lines.append) == 2, one
        assert len(lines) == 1
        assert str(one) in lines[0]
    np.savez(path, **usual())
    assert main(["check", "pfnm", str(path)]) == 0
    assert "agrees  layer 0 size" in capsys.readouterr().out
    np.savez(path, **changed("layer0_size", lambda a: a + 1))
    assert main(["check", "pfnm", str(path)]) == 1
    path.write_text("nothing")
    assert main(["check", "pfnm", str(path)]) == 2
