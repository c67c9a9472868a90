"""Where a result comes from: sources, parameters, versions, device, machine; never the time of day.

It is stated once, in the file itself, when that is written; whoever asks later reads it there.
Sources are those that the process loaded: a job that was forked from a preloaded process inherits
what that process knew when it began to load them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import fedrepro
from fedrepro.core import arithmetic, outside, sources
from fedrepro.core.kinds import MODULE

if TYPE_CHECKING:
    from fedrepro.core.spec import Component, Spec

T = TypeVar("T")

PACKAGES = ("numpy", "scipy", "pyarrow", "torch", "scikit-learn")
# what tells one origin from another; `changed_to` is there only if sources changed meanwhile
ORIGIN = ("revision", "digest", "changed_to", "versions", "arithmetic", "device", "machine")
# behind the arithmetic of a model that multiplies as PyTorch does, which is by MKL
OWN_PRODUCTS = " but for the products of a torch.nn.Module"
# what git sets for its hooks, about a repository that need not be the package's
FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")


@dataclass(frozen=True)
class Sources:
    """Files of the package: the digest of their contents, and the git revision that has them.

    revision: of the repository that tracks the package, with -dirty if any of these files differs
    there; `unknown` if none tracks it.
    """

    digest: str
    revision: str


@dataclass(frozen=True)
class Loaded:
    """What a process loaded: all of the package, what of it computes, and each file's digest."""

    whole: Sources
    computing: Sources
    each: Mapping[str, str] = field(default_factory=dict)


@functools.cache
def loaded() -> Loaded:
    """The sources of this process, to be asked for before it loads them; kept from then on."""
    files = sources.on_disk()
    commit, blobs = _head()
    return Loaded(
        _sources(files, commit, blobs),
        _sources(computing(files), commit, computing(blobs)),
        {name: sources.digest_of(content) for name, content in files.items()},
    )


def computing(files: Mapping[str, T]) -> dict[str, T]:
    """Those of the package's files that compute."""
    return {name: what for name, what in files.items() if sources.computes(name)}


def _sources(files: Mapping[str, bytes], commit: str, blobs: Mapping[str, str]) -> Sources:
    return Sources(sources.digest(files), _revision(files, commit, blobs))


def _revision(files: Mapping[str, bytes], commit: str, blobs: Mapping[str, str]) -> str:
    if not blobs:
        return "unknown"
    kind = "sha1" if len(commit) == 40 else "sha256"
    file_blobs = {name: _blob(content, kind) for name, content in files.items()}
    return commit[:12] + ("" if file_blobs == blobs else "-dirty")


def _blob(content: bytes, kind: str) -> str:
    """The name that git gives to this content."""
    return hashlib.new(kind, b"blob %d\0" % len(content) + content).hexdigest()


def _head() -> tuple[str, dict[str, str]]:
    """The last commit of the repository around the package, and its blobs of the package's files.

    Empty if there is no repository, or one that does not track them: where a package is installed,
    any repository may lie around it.
    """
    try:
        commit = _git("rev-parse", "HEAD").strip()
        listed = _git("ls-tree", "-r", "-z", commit)
    except (OSError, subprocess.SubprocessError):
        return "", {}
    lines = (line.partition("\t") for line in listed.split("\0") if line)
    blobs = {name: about.split()[2] for about, _, name in lines if name.endswith(sources.SUFFIXES)}
    return commit, blobs


def _git(*arguments: str) -> str:
    """What git prints, asked in the folder of the package: paths are relative to it."""
    environment = {key: value for key, value in os.environ.items() if key not in FOREIGN}
    return subprocess.run(
        ["git", *arguments],
        cwd=sources.PACKAGE,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=True,
        timeout=10,
    ).stdout


def revision() -> str:
    """The git revision of the sources that compute, as this process loaded them; see `Sources`."""
    return loaded().computing.revision


@functools.cache
def versions() -> dict[str, str]:
    """Versions of fedrepro, Python and the packages that compute."""
    by_name = {"fedrepro": fedrepro.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            by_name[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            by_name[name] = "absent"
    return by_name


def on_a_gpu(run: Mapping[str, Any]) -> bool:
    """Whether some of what a recorded run was computed from was computed on a GPU."""
    return any(machine["device"] != "cpu" for machine in run.get("machines", ()))


def device_in_words(device: str) -> str:
    """cpu, or a GPU by its name, whichever number it has."""
    if not device.startswith("cuda"):
        return device
    import torch

    return f"cuda ({torch.cuda.get_device_name(device)})"


def origin(device: str = "cpu") -> dict[str, Any]:
    """The keys of ORIGIN, as they are now.

    Sources that changed on disk since this process began may have been loaded in part, since
    modules are loaded when they are needed: `changed_to` is their digest then.
    """
    loaded_sources = loaded().computing
    now = sources.digest(computing(sources.on_disk()))
    return {
        "revision": loaded_sources.revision,
        "digest": loaded_sources.digest,
        **({} if now == loaded_sources.digest else {"changed_to": now}),
        "versions": versions(),
        "arithmetic": arithmetic.taken(),
        "device": device_in_words(device),
        "machine": machine(),
    }


def provenance(
    seed: int | None = None,
    *,
    specs: Sequence[Spec] = (),
    device: str = "cpu",
    inputs: Iterable[Mapping[str, Any]] = (),
    **parts: Any,
) -> dict[str, Any]:
    """What goes into the metadata of every file that is computed, when it is written.

    specs: the components that it was computed with, kept with their version and all parameters,
    and with version and digest of their files.
    inputs: provenance of the files that it was computed from; `behind` has what of their origin
    differs from this file's own.
    """
    own_origin = origin(device)
    if own_origin["arithmetic"] == arithmetic.PORTABLE and any(
        s.component.meta.get(MODULE) for s in specs
    ):
        own_origin["arithmetic"] += OWN_PRODUCTS
    record: dict[str, Any] = {**own_origin, "seed": seed, **parts}
    for spec in specs:
        record.setdefault("resolved", {}).setdefault(spec.kind, []).append(spec.resolved)
        record.setdefault("component_files", {})[f"{spec.kind} {spec.name}"] = file_of(
            spec.component
        )
    behind = [other for other in origins(inputs) if other != own_origin]
    return record | ({"behind": behind} if behind else {})


def file_of(component: Component) -> str:
    """Version of a component and digest of its file, as this process loaded it."""
    inside = os.path.relpath(component.file, sources.PACKAGE) if component.file else ""
    loaded_outside = outside.loaded_digests.get(component.file)
    digest = loaded().each.get(inside) or loaded_outside or sources.digest_of_file(component.file)
    return f"{component.version} {digest}"


def origins(sources: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The different origins of some files and of what they were computed from, in a fixed order.

    Files of before there were digests have fewer keys.
    """
    entries = [
        {key: entry[key] for key in ORIGIN if key in entry}
        for source in sources
        for entry in (source, *source.get("behind", ()))
    ]
    texts = {json.dumps(entry, sort_keys=True) for entry in entries if entry}
    return [json.loads(text) for text in sorted(texts)]


def provenance_of(path: Path | str) -> dict[str, Any]:
    """The provenance of a table, without its content. Errors: FedreproError if it is damaged."""
    from fedrepro.core.artifacts import read_source

    return read_source(path)


def spent() -> dict[str, float]:
    """What this process took: seconds of processor time, and bytes of memory at its peak.

    Processor time does not depend on what else the machine does. Memory counts mapped data sets
    and, in a job that was forked from a preloaded process, the libraries that it found there.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {"cpu_seconds": time.process_time(), "peak_bytes": peak}


def say_what_it_took() -> None:
    """The last line of a job's log, by the job itself: from outside, one that a preloaded process
    runs cannot be measured."""
    usage = spent()
    print(
        f"took {usage['cpu_seconds']:.2f} s of processor time and, at its peak, "
        f"{usage['peak_bytes'] / 2**20:.0f} MiB of memory",
        file=sys.stderr,
    )


@functools.cache
def machine() -> dict[str, Any]:
    """The machine in words; no host name, and nothing that changes from job to job."""
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            cpu = next((x.split(":")[1].strip() for x in file if "model name" in x), cpu)
    except OSError:
        pass
    return {
        "system": platform.system(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
    }
