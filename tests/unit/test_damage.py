"""A flipped bit, a cut or a swapped file is found wherever it is: the counts of tests/damage.py."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from damage import Kind, examine, kinds, make_run
from fedrepro.core.artifacts import damaged, forget, read_table, write_bytes
from fedrepro.core.errors import FedreproError

FLIPS, CUTS = 6, 3  # of each kind; tests/damage.py tries more


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run at scale tiny, in a working folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("run"))
        yield make_run()
    forget()


@pytest.mark.long
def test_no_damage_to_any_kind_of_file_goes_unseen_or_ends_in_a_traceback(run):
    seen = {}
    for kind in kinds(run):
        flipped, cut, bad = examine(kind, FLIPS, CUTS, seed=0)
        assert bad == []
        assert flipped.total() == FLIPS
        seen[kind.name] = flipped + cut
    assert len(seen) > 30
    # a checksum over all bytes leaves no place where a flip would mean nothing
    assert all(set(tally) == {"found"} for tally in seen.values())


def test_damage_that_nobody_looks_for_is_counted_as_silent(tmp_path):
    path = tmp_path / "plain"
    write_bytes(path, bytes(1000))
    flipped, _, bad = examine(Kind("plain", path, path.read_bytes, ()), 10, 2, seed=0)
    assert flipped == Counter(silent=10)
    assert bad

    def odd() -> bytes:
        data = path.read_bytes()
        if data != bytes(1000):
            raise KeyError("odd")
        return data

    assert examine(Kind("odd", path, odd, ()), 10, 2, seed=0)[0] == Counter(trace=10)

    def refused() -> bytes:
        data = path.read_bytes()
        if data != bytes(1000):
            raise damaged(path, "odd")
        return data

    assert examine(Kind("refused", path, refused, ()), 10, 2, seed=0)[0] == Counter(found=10)


def test_a_file_that_changes_after_it_was_compared_is_compared_again(run):
    path = Path(run.metrics_files(run.exhibit("pfnm/figure-2a"))[0])
    good = path.read_bytes()
    read_table(path, "metrics")
    path.write_bytes(good[:700] + b"?" + good[701:])
    try:
        with pytest.raises(FedreproError, match="its checksum is not that of its bytes"):
            read_table(path, "metrics")
    finally:
        path.write_bytes(good)
