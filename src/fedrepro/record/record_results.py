"""Keep measured results in the repository, in the folder reports/record."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrepro.core.artifacts import atomic, checksum_of, json_text, read_table, target_of
from fedrepro.core.errors import FedreproError
from fedrepro.core.paper_files import claims_file, exhibits_file
from fedrepro.numbers.exhibit_files import KEPT, ExhibitFiles, drawn_of, open_exhibit, write_claims
from fedrepro.numbers.run_times import exhibit_seconds, memory_and_seconds, of_methods, timings_of

REPORTS = Path("reports")
RECORD = REPORTS / "record"
RUN = ("seconds", "cpu_seconds", "peak_bytes", "machine", "machines")


@dataclass(frozen=True)
class Recorded:
    """The files that `record` wrote, and warnings on unknown source code, run times or machines."""

    files: list[Path] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def drawn_keys(source: Path, scale: str) -> list[str]:
    """List the figures and tables (paper/name) whose metrics are in `<source>/<scale>`."""
    paths = sorted((source / scale).glob("*/*.metrics.parquet"))
    return [f"{path.parent.name}/{path.name.removesuffix('.metrics.parquet')}" for path in paths]


def record(
    scale: str, keys: Sequence[str] = (), source: Path = REPORTS, target: Path = RECORD
) -> Recorded:
    """Copy results from `<source>/<scale>` to `<target>/<scale>`, the folder of kept results.

    `keys` names figures and tables as paper/name; () means all. All files are read and checked
    before any is written, so that nothing is copied if one is damaged. If `source` itself has kept
    results, their run times and machines are copied. At the end the papers' claims are judged, and
    leaderboards written, from all kept results.

    Raises:
        FedreproError: if a file is missing or damaged.
    """
    from fedrepro.numbers.exhibit_tables import csv_text
    from fedrepro.numbers.verdicts.claim_verdicts import verdicts
    from fedrepro.planning.config import load_exhibits
    from fedrepro.record.leaderboards import write_boards

    if not (keys := list(keys) or drawn_keys(source, scale)):
        raise FedreproError(
            f"{source / scale} holds no exhibit; "
            f"make them with: snakemake --cores 2 reports/{scale}/index.html"
        )
    recorded = Recorded()
    read = {key: read_drawn(scale, key, source, recorded.warnings) for key in keys}
    folder = target / scale
    for key, contents in read.items():
        recorded.files.extend(write_kept(folder / key, contents))
    for paper in dict.fromkeys(key.partition("/")[0] for key in keys):
        if (published := claims_file(paper)).exists():
            own = [key for key in drawn_keys(target, scale) if key.startswith(f"{paper}/")]
            text = csv_text(verdicts(published, own, folder))
            recorded.files.extend(write_claims(folder / paper / "claims.csv", text))
        if exhibits_file(paper).exists():
            recorded.files.extend(write_boards(load_exhibits()[paper], scale, folder))
    return recorded


def read_drawn(scale: str, key: str, source: Path, warnings: list[str]) -> dict[str, bytes]:
    """Read and check the files to keep of a figure or table; return {suffix: bytes}.

    `key` is paper/name below `<source>/<scale>`. The last item is the json: with checksums, run
    times, machines, and the text of csv files that have no rows. It appends to `warnings`.

    Raises:
        FedreproError: if a file is missing or damaged.
    """
    files = open_exhibit(source / scale, key, scale)
    every = {suffix: files.read(suffix) for suffix in files.suffixes}  # checked, also if not kept
    read_table(f"{files.base}.metrics.parquet", "metrics")
    contents = {suffix: every[suffix] for suffix in KEPT if suffix in every}
    blank = dict(files.about.get("blank", {}))
    for suffix in (".choice.csv", ".printed.csv"):
        if suffix in contents and contents[suffix].count(b"\n") == 1:
            blank[suffix] = contents.pop(suffix).decode()
    warnings.extend(_doubts(files.about))
    sums = {suffix: checksum_of(data) for suffix, data in contents.items()}
    about = {**files.about, "files": sums, "blank": blank, "run": _run(files, warnings)}
    contents[".json"] = json_text(about).encode()
    return contents


def _doubts(about: Mapping[str, Any]) -> Iterator[str]:
    name = f"{about['key']} at scale {about['scale']}"
    for what, origin in (("drawn", drawn_of(about)), *(("computed", o) for o in about["computed"])):
        if origin["revision"] == "unknown" or origin["revision"].endswith("-dirty"):
            yield (
                f"{name} was {what} at git revision {origin['revision']}, which cannot be checked "
                "out again; commit first and make it anew, so that others can repeat it"
            )
        if "changed_to" in origin:
            yield (
                f"the sources changed while {name} was computed, from {origin['digest'][:12]} to "
                f"{origin['changed_to'][:12]}, so that it may be of both; make it anew"
            )


def _run(files: ExhibitFiles, warnings: list[str]) -> dict[str, Any]:
    """Return {"seconds": {stage: …}, "machines": [{"device": …}]}; append gaps to `warnings`."""
    if files.run:  # of kept results
        return {key: files.run[key] for key in RUN if key in files.run}
    about, key = files.about, files.about["key"]
    timings = timings_of(about, Path(files.base).parents[len(Path(key).parts) + 1])
    missing = [path for path in of_methods(timings) if not path.exists()]
    seconds = exhibit_seconds(timings) if not missing else {}
    whole = memory_and_seconds(timings) if not missing else {}
    if missing:
        warnings.append(f"the run time of {key} is not recorded: {missing[0]} is missing")
    elif "aggregate" in seconds and "train" not in seconds:
        warnings.append(
            f"the training time of {key} is not recorded: timings of its local models are missing"
        )
    known = [origin for origin in about["computed"] if "machine" in origin]
    if len(known) < len(about["computed"]):
        warnings.append(
            f"the machine of {key} is not recorded in full: some of its results are of "
            "before they said where they were computed"
        )
    machines = {json.dumps({"device": origin["device"], **origin["machine"]}) for origin in known}
    return {"seconds": seconds, **whole, "machines": [*map(json.loads, sorted(machines))]}


def write_kept(base: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write all files of one figure or table (bytes by suffix, .json last), or none.

    Returns paths. The old json is removed first and the new one renamed last: an interrupted write
    leaves no json, and so is not recorded.
    """
    paths = [Path(f"{base}{suffix}") for suffix in contents]
    with contextlib.ExitStack() as stack:
        # `atomic` renames when it is left, in reverse order: the json is entered first
        for path, data in reversed(list(zip(paths, contents.values(), strict=True))):
            stack.enter_context(atomic(path)).write_bytes(data)
        target_of(f"{base}.json").unlink(missing_ok=True)
    return paths
