"""The provenance of results: sources, parameters, versions and machine, but no time of day.

Sources are the code as this process loaded it, or as its parent process did before a fork.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

import fedrepro
from fedrepro.core import kernel_pinning, source_digests
from fedrepro.core.errors import FedreproError
from fedrepro.core.method_kinds import MODULE
from fedrepro.core.registry import components, parse_token
from fedrepro.core.spec import Component, Spec

PACKAGES = ("numpy", "scipy", "pyarrow", "torch", "scikit-learn")
# keys that differ between origins; `changed_to` is there only if sources changed meanwhile
ORIGIN = ("revision", "digest", "changed_to", "versions", "arithmetic", "device", "machine")
# suffix of the arithmetic where a model multiplies by PyTorch, which uses MKL
OWN_PRODUCTS = " but for the products of a torch.nn.Module"


@functools.cache
def loaded_source() -> dict[str, str]:
    """Return the git `revision` and a `digest` of the package's files, as at the first call.

    The revision has -dirty behind it if a file of the package was changed, or is `unknown`.
    """

    def git(*arguments: str) -> bytes:  # in the folder of the package; writes nothing
        return subprocess.check_output(
            ["git", "--no-optional-locks", *arguments],
            cwd=source_digests.PACKAGE,
            stderr=subprocess.DEVNULL,
            timeout=10,
        )

    try:
        # where a package is installed, a repository may lie around it that does not track it
        git("ls-files", "--error-unmatch", "__init__.py")
        revision = git("rev-parse", "HEAD")[:12].decode()
        revision += "-dirty" if git("status", "--porcelain", ".") else ""
    except (OSError, subprocess.SubprocessError):
        revision = "unknown"
    return {"revision": revision, "digest": source_digests.digest(source_digests.on_disk())}


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of fedrepro, Python and the packages that compute, by name."""
    by_name = {name: metadata.version(name) for name in PACKAGES}
    return {"fedrepro": fedrepro.__version__, "python": platform.python_version(), **by_name}


def same_bytes(about: Mapping[str, Any]) -> str:
    """Return "yes" if computing a figure or table again gives equal bytes, else the reason why not.

    `about` is the content of its json file. Bytes are equal if it was computed on a CPU, by kernels
    that `core/kernel_pinning.py` fixed, with the present versions of methods, data sets and so on.
    """
    for made in about["computed"]:
        if made.get("device", "cpu") != "cpu":
            return f"on {made['device']}"
        if made.get("arithmetic") != kernel_pinning.PORTABLE:
            return "libraries not pinned"
    made_of = about["components"]
    if "feature" not in made_of:  # an old json, of the features' first versions
        found = re.findall(r"features~([^+;.]+)", " ".join(made_of.get("dataset", ())))
        made_of = {**made_of, "feature": [f"{name};v1;" for name in found]}
    for kind, resolved in made_of.items():
        known = components(kind)
        for name, version, values in (text.split(";", 2) for text in resolved):
            if name not in known or f"v{known[name].version}" != version:
                return f"{name} changed since {version}"
            token, _, read = values.partition(";")
            with suppress(FedreproError):  # what it reads may be gone
                if not read or read in parse_token(kind, f"{name}+{token}".rstrip("+")).resolved:
                    continue
            return f"what {name} reads changed"
    return "yes"


def origin(device: str = "cpu") -> dict[str, Any]:
    """Return how this process computes, a dict with keys ORIGIN.

    Keys are `revision` and `digest` of the source code, `versions` of packages, `arithmetic` (which
    kernels compute), `device` and `machine`; if sources changed meanwhile, their hash `changed_to`.
    """
    if device.startswith("cuda"):  # its product has a name, and no number
        import torch

        device = f"cuda ({torch.cuda.get_device_name(device)})"
    now, source = source_digests.digest(source_digests.on_disk()), loaded_source()
    return {
        **source,
        **({} if now == source["digest"] else {"changed_to": now}),
        "versions": versions(),
        "arithmetic": kernel_pinning.active_mode(),
        "device": device,
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

    Keys are those of this process's origin (code, versions, device, machine), `seed`, all `parts`,
    and descriptions of `specs`, the file's components (method, …). `inputs` are the provenances of
    files from which it was computed; `behind` lists their origins that differ from this process's.
    """
    own = origin(device)
    modules = any(spec.component.meta.get(MODULE) for spec in specs)
    if modules and own["arithmetic"] == kernel_pinning.PORTABLE:
        own["arithmetic"] += OWN_PRODUCTS
    record: dict[str, Any] = {**own, "seed": seed, **parts}
    for spec in specs:
        record.setdefault("resolved", {}).setdefault(spec.kind, []).append(spec.resolved)
        files = record.setdefault("component_files", {})
        files[f"{spec.kind} {spec.name}"] = file_of(spec.component)
    behind = [other for other in origins(inputs) if other != own]
    return record | ({"behind": behind} if behind else {})


def file_of(component: Component) -> str:
    """Return "<version> <hash>" of a component: its version and the hash of its Python file."""
    return f"{component.version} {component.digest}"


def origins(sources: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """List the different origins (code, versions, device, machine) of results, sorted.

    `sources` are their provenances; origins of results from which they were computed count too.
    """
    entries = [
        {key: entry[key] for key in ORIGIN if key in entry}
        for source in sources
        for entry in (source, *source.get("behind", ()))
    ]
    return [json.loads(t) for t in sorted({json.dumps(e, sort_keys=True) for e in entries if e})]


def resources_used() -> dict[str, float]:
    """Return this process's "cpu_seconds", and "peak_bytes" of memory, mapped files included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in KiB but on a Mac
    unit = 1 if sys.platform == "darwin" else 1024
    return {"cpu_seconds": time.process_time(), "peak_bytes": unit * peak}


@functools.cache
def machine() -> dict[str, Any]:
    """Return system, processor, cores and Python version of this machine; not its host name."""
    cpu = platform.processor() or platform.machine()
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((x.split(":")[1].strip() for x in file if "model name" in x), cpu)
    about = {"system": platform.system(), "cpu": cpu, "cores": os.cpu_count()}
    return about | {"python": platform.python_version()}
