"""The provenance of results: sources, parameters, versions and machine, but no time of day.

The provenance is written into each result file. Sources are the code that the process loaded; a
process that was forked from a preloaded one has the code that the preloaded one loaded.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple

import fedrepro
from fedrepro.core import cpu_kernels, source_digests
from fedrepro.core.method_kinds import MODULE
from fedrepro.core.registry import components

if TYPE_CHECKING:
    from fedrepro.core.spec import Component, Spec

PACKAGES = ("numpy", "scipy", "pyarrow", "torch", "scikit-learn")
# keys that differ between origins; `changed_to` is there only if sources changed meanwhile
ORIGIN = ("revision", "digest", "changed_to", "versions", "arithmetic", "device", "machine")
# suffix of the arithmetic where a model multiplies by PyTorch, which uses MKL
OWN_PRODUCTS = " but for the products of a torch.nn.Module"
# set by git for its hooks, about a repository that need not be the package's
FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")


class Sources(NamedTuple):
    """The source code that a process runs: a hash of the package's files, and the git revision.

    revision: 12 digits, with -dirty if a file of the package was changed or added; `unknown` if no
    repository tracks the package.
    """

    digest: str
    revision: str


@functools.cache
def loaded() -> Sources:
    """Return the hash and git revision of the source code at this function's first call."""

    def git(*arguments: str) -> str:  # in the folder of the package; writes nothing
        return subprocess.run(
            ["git", "--no-optional-locks", *arguments],
            cwd=source_digests.PACKAGE,
            env={key: value for key, value in os.environ.items() if key not in FOREIGN},
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=True,
            timeout=10,
        ).stdout

    try:
        # where a package is installed, a repository may lie around it that does not track it
        git("ls-files", "--error-unmatch", "__init__.py")
        revision = git("rev-parse", "HEAD")[:12]
        revision += "-dirty" if git("status", "--porcelain", ".") else ""
    except (OSError, subprocess.SubprocessError):
        revision = "unknown"
    return Sources(source_digests.digest(source_digests.on_disk()), revision)


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of fedrepro, Python and the packages that compute, by name."""
    by_name = {"fedrepro": fedrepro.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            by_name[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            by_name[name] = "absent"
    return by_name


def on_a_gpu(run: Mapping[str, Any]) -> bool:
    """Return whether a GPU computed any part of `run`, the entry `run` of a figure's json file."""
    return any(machine["device"] != "cpu" for machine in run.get("machines", ()))


def same_bytes(about: Mapping[str, Any]) -> str:
    """Return "yes" if computing a figure or table again gives equal bytes, else the reason why not.

    "yes" requires that all ran on a CPU with selected kernels (`cpu_kernels.pin`), and that no
    component has a newer version. `about` is the content of the figure's or table's json.
    """
    for made in about["computed"]:
        if made.get("device", "cpu") != "cpu":
            return f"on {made['device']}"
        if made.get("arithmetic") != cpu_kernels.PORTABLE:
            return "libraries not pinned"
    for kind, resolved in about["components"].items():
        known = components(kind)
        for text in resolved:
            name, version, _ = text.split(";", 2)
            if name not in known or f"v{known[name].version}" != version:
                return f"{name} changed since {version}"
    return "yes"


def device_in_words(device: str) -> str:
    """Return 'cpu', or 'cuda' with the GPU's product name for a device such as 'cuda:0'."""
    if not device.startswith("cuda"):
        return device
    import torch

    return f"cuda ({torch.cuda.get_device_name(device)})"


def origin(device: str = "cpu") -> dict[str, Any]:
    """Return the code, versions, device and machine that this process computes with (keys ORIGIN).

    Key `arithmetic` is how CPU kernels are selected; key `changed_to`, the hash of the sources, is
    there if these changed on disk since this process began.
    """
    now, (digest, revision) = source_digests.digest(source_digests.on_disk()), loaded()
    return {
        "revision": revision,
        "digest": digest,
        **({} if now == digest else {"changed_to": now}),
        "versions": versions(),
        "arithmetic": cpu_kernels.active_mode(),
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
    """Return what a new result file records about how it was computed: code, seed, inputs.

    Args:
        seed: the seed of random draws.
        specs: the components (data set, method, …) that the file was computed with.
        device: the device that computed it.
        inputs: the provenances of the files that it was computed from.
        parts: further keys and values to record.

    Returns:
        The keys of `origin` and more; key `behind` lists the origins of inputs if they differ.
    """
    own_origin = origin(device)
    if own_origin["arithmetic"] == cpu_kernels.PORTABLE and any(
        s.component.meta.get(MODULE) for s in specs
    ):
        own_origin["arithmetic"] += OWN_PRODUCTS
    record: dict[str, Any] = {**own_origin, "seed": seed, **parts}
    for spec in specs:
        record.setdefault("resolved", {}).setdefault(spec.kind, []).append(spec.resolved)
        files = record.setdefault("component_files", {})
        files[f"{spec.kind} {spec.name}"] = file_of(spec.component)
    behind = [other for other in origins(inputs) if other != own_origin]
    return record | ({"behind": behind} if behind else {})


def file_of(component: Component) -> str:
    """Return a text of a component's version and its loaded file's hash, to notice changed code."""
    return f"{component.version} {component.digest}"


def origins(sources: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the different origins (code, versions, machine) of files and of their inputs, sorted.

    `sources` are the provenances of the files; an origin is a dict with the keys ORIGIN.
    """
    entries = [
        {key: entry[key] for key in ORIGIN if key in entry}
        for source in sources
        for entry in (source, *source.get("behind", ()))
    ]
    texts = {json.dumps(entry, sort_keys=True) for entry in entries if entry}
    return [json.loads(text) for text in sorted(texts)]


def resources_used() -> dict[str, float]:
    """Return this process's processor time `cpu_seconds` and peak memory `peak_bytes`.

    Memory includes mapped data sets, and libraries that were loaded before the process was forked.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    peak = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"cpu_seconds": time.process_time(), "peak_bytes": peak}


def say_what_it_took() -> None:
    """Print this process's processor time and peak memory, for the end of a log."""
    usage = resources_used()
    print(
        f"took {usage['cpu_seconds']:.2f} s of processor time and, at its peak, "
        f"{usage['peak_bytes'] / 2**20:.0f} MiB of memory",
        file=sys.stderr,
    )


@functools.cache
def machine() -> dict[str, Any]:
    """Return system, processor, cores and Python version of this machine; not its host name."""
    cpu = platform.processor() or platform.machine()
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((x.split(":")[1].strip() for x in file if "model name" in x), cpu)
    return {
        "system": platform.system(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
    }
