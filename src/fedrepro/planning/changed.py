"""Components whose file changed while their version stayed: what is there was computed before.

Snakemake reruns what a version touches, and nothing for a changed file. So the next run says it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

from fedrepro.core.arithmetic import PORTABLE
from fedrepro.core.provenance import file_of
from fedrepro.core.registry import components
from fedrepro.planning.plan import Plan

# provenance stands in a parquet file's footer as plain text; loading pyarrow would take longer
# than all else here
STAMP = re.compile(rb'"component_files": (\{[^{}]*\})')
ARITHMETIC = re.compile(rb'"arithmetic": "([^"]*)"')
FOOTER = 1 << 16


def changed_components(plan: Plan) -> list[str]:
    """A sentence for each component that changed since results of a plan were computed with it,
    and one if libraries that were not pinned computed some of them.

    The first file of every run that is there tells. Results of before these digests were kept
    tell nothing.
    """
    now: dict[str, str] = {}
    stale: dict[str, int] = {}
    other = 0
    for run, trials in plan.trials.items():
        stamp = _stamp(plan.run_files(run, trials)[0])
        for name, kept in component_files(stamp):
            now[name] = now.get(name) or _now(name)
            # another version runs again by itself
            same_version = kept.split()[0] == now[name].split()[0]
            stale[name] = stale.get(name, 0) + (same_version and kept != now[name])
        other += run.scenario is not None and arithmetic_of(stamp) != PORTABLE
    sentences = [_sentence(name, runs, now[name]) for name, runs in sorted(stale.items()) if runs]
    return [*sentences, _of_other(other, plan.scale)] if other else sentences


def _stamp(path: str) -> bytes:
    """The end of a table, where its provenance stands; empty if it is not there."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - FOOTER))
            return file.read()
    except OSError:
        return b""


def component_files(stamp: bytes) -> Iterator[tuple[str, str]]:
    """(kind and name, version and digest) of the components that computed a table, if it says."""
    match = STAMP.search(stamp)
    if match:
        yield from json.loads(match[1]).items()


def arithmetic_of(stamp: bytes) -> str:
    """How the libraries of a table were pinned; empty if it does not say, portable for no table."""
    match = ARITHMETIC.search(stamp)
    if match:
        return match[1].decode()
    return "" if stamp else PORTABLE


def _now(name: str) -> str:
    """Return what a component would leave now; a name that is gone leaves nothing to compare."""
    kind, _, key = name.partition(" ")
    item = components(kind).get(key)
    return file_of(item) if item else "gone"


def _sentence(name: str, runs: int, now: str) -> str:
    kind, _, key = name.partition(" ")
    file = os.path.relpath(components(kind)[key].file)
    return (
        f"{kind} '{key}' changed in {file} since {runs} of the runs in results were computed, and "
        f"has version {now.split()[0]} still, so they stay: raise its version if results change, "
        'or work on it under version="dev"'
    )


def _of_other(runs: int, scale: str) -> str:
    return (
        f"{runs} of the runs at scale {scale} in results were computed by libraries that were not "
        "pinned, and stay: their last digits may differ from what other machines compute; to "
        "compute them again, remove them"
    )
