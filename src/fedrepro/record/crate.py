"""A Provenance Run Crate: the record as one zip that says of each file how it was made.

RO-Crate 1.1 with the profiles Process, Workflow and Provenance Run Crate 0.5
(https://www.researchobject.org/workflow-run-crate/). An exhibit is a run of the workflow: its
command, the data and their digest, the sources that computed it and their digest, the stages with
their processor time, and its files with their SHA-256. Times of day are not in it, for no file of
the record has one; the date of the crate is that of the day on which it is written.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from fedrepro import __version__
from fedrepro.core.artifacts import atomic, require_target
from fedrepro.core.errors import FedreproError
from fedrepro.core.packs import (
    IN_REPOSITORY,
    claims_file,
    exhibits_files,
    packs,
    published_file,
)
from fedrepro.numbers.files import RUN, ExhibitFiles, open_recorded, read_claims, sha256_of
from fedrepro.record.keep import CLAIMS, RECORD, exhibits_in

VERSION = "1.1"  # that the profiles build on
PROFILES = (
    *(f"https://w3id.org/ro/wfrun/{name}/0.5" for name in ("process", "workflow", "provenance")),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0",
)
CONTEXT = "https://w3id.org/ro/terms/workflow-run/context"
PARAMETER = "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"
WORKFLOW = "workflow/Snakefile"
CONFIGURED = ("Snakefile", "workflow/**/*", "config/**/*", "envs/*", "LICENSE", "CITATION.cff")
FORMATS = {
    ".csv": "text/csv", ".json": "application/json", ".svg": "image/svg+xml", ".png": "image/png",
    ".html": "text/html", ".md": "text/markdown", ".tex": "application/x-tex",
    ".parquet": "application/vnd.apache.parquet", ".yaml": "application/yaml",
}  # fmt: skip
STAGES = {
    "train": "trains the local models of clients",
    "aggregate": "combines local models and measures what comes out",
    "federate": "trains a global model in rounds with a server",
    "peer": "trains models on the nodes of a graph",
    "simulate": "runs a simulation without data",
    "exhibit": "makes a figure or a table from measured numbers",
}
DRAW = "exhibit"
NEEDED = "a crate needs the package rocrate; install it with: pip install rocrate"


def write_crate(scale: str, keys: Sequence[str], out: Path, record: Path = RECORD) -> int:
    """Write recorded exhibits, all of them if none is named, to the zip `out`; returns how many.

    Every file is read and compared with its digest first. Errors: FedreproError for a file that is
    missing or altered, or where the package rocrate is not installed.
    """
    try:
        from rocrate.rocrate import ROCrate
    except ImportError as error:
        raise FedreproError(NEEDED) from error
    require_target(out, [".zip"])
    keys = list(keys) or exhibits_in(record, scale)
    if not keys:
        raise FedreproError(f"there is no exhibit in {record / scale} to put into a crate")
    crate = ROCrate(version=VERSION)
    crate.metadata.extra_contexts.append(CONTEXT)
    entities = _Entities(crate)
    _root(crate, scale, keys)
    recorded = {key: open_recorded(record / scale, key, scale) for key in keys}
    used = {stage for files in recorded.values() for stage in files.run.get("seconds", {})}
    _workflow(entities, used | {DRAW})
    for key, files in recorded.items():
        _run(entities, files, RECORD / scale / key)
    for paper in dict.fromkeys(key.partition("/")[0] for key in keys):
        path = record / scale / paper / CLAIMS
        if path.exists():
            read_claims(path)
            about = f"The claims of {paper} with their verdicts"
            entities.file(path, about, RECORD / path.relative_to(record))
    with atomic(out) as temporary:
        crate.write_zip(temporary)
    return len(keys)


class _Entities:
    """Adds what a crate describes, each once."""

    def __init__(self, crate: Any) -> None:
        self.crate = crate

    def add(self, name: str, /, **properties: Any) -> Any:
        """An entity that is no file; what is there already is returned as it is."""
        from rocrate.model.contextentity import ContextEntity

        existing = self.crate.get(name)
        kind = properties.pop("type")
        fields = {"@type": kind, **{key: value for key, value in properties.items() if value}}
        return existing or self.crate.add(ContextEntity(self.crate, name, properties=fields))

    def file(self, path: Path, about: str, place: Path | None = None) -> Any:
        """A file at its own place in the crate, or at `place`."""
        name = (place or path).as_posix()
        data = path.read_bytes()
        properties = {
            "name": path.name,
            "description": about,
            "sha256": sha256_of(data),
            "contentSize": str(len(data)),
            "encodingFormat": FORMATS.get(path.suffix, "text/plain"),
        }
        return self.crate.get(name) or self.crate.add_file(path, name, properties=properties)


def _root(crate: Any, scale: str, keys: Sequence[str]) -> None:
    papers = ", ".join(dict.fromkeys(key.partition("/")[0] for key in keys))
    crate.name = f"fedrepro: {len(keys)} exhibits at scale {scale}"
    crate.description = (
        f"Figures and tables of papers on federated learning, computed again ({papers}), with what "
        "they were made from and how."
    )
    crate.license = "https://spdx.org/licenses/MIT"
    crate.datePublished = datetime.now(UTC).date()


def _workflow(entities: _Entities, used: Set[str]) -> None:
    """The workflow with the steps that were `used`, and what it is configured by."""
    crate = entities.crate
    configured = [path for pattern in CONFIGURED for path in sorted(Path().glob(pattern))]
    for path in (*configured, *_of_papers()):
        if path.is_file() and path.as_posix() != WORKFLOW:
            place = _place(path)
            entities.file(path, "Of the workflow or of what it is told", place)
    version = metadata.version("snakemake")
    data = Path(WORKFLOW).read_bytes()
    main = crate.add_workflow(
        WORKFLOW, WORKFLOW, main=True, lang="snakemake", lang_version=version,
        properties={"@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
                    "name": "fedrepro", "sha256": sha256_of(data), "version": __version__,
                    "description": "From data to figures and tables, by path."},
    )  # fmt: skip
    profiles = [
        entities.add(url, type="CreativeWork", name=url.split("/")[-2], version=url.split("/")[-1])
        for url in PROFILES
    ]
    crate.root_dataset["conformsTo"] = profiles
    inputs = {"configuration": "File", "data": "Dataset", "sources": "SoftwareSourceCode"}
    main["input"] = [_parameter(entities, name, kind) for name, kind in inputs.items()]
    main["output"] = [_parameter(entities, "exhibit", "File")]
    entities.add(
        "#snakemake", type="SoftwareApplication", name="Snakemake", softwareVersion=version,
        url="https://snakemake.github.io",
    )  # fmt: skip
    steps, tools = [], []
    for position, stage in enumerate((name for name in STAGES if name in used), start=1):
        tool = entities.add(
            f"#stage-{stage}", type="SoftwareApplication", name=f"fedrepro stage {stage}",
            description=f"It {STAGES[stage]}.", softwareVersion=__version__,
        )  # fmt: skip
        step = entities.add(
            f"#step-{stage}", type="HowToStep", position=str(position), workExample=tool
        )
        tools.append(tool)
        steps.append(step)
    main["hasPart"], main["step"] = tools, steps


def _of_papers() -> list[Path]:
    """What the folders of papers tell the workflow: exhibits, printed values and claims."""
    found = [
        path
        for paper in packs()
        for path in (*exhibits_files(paper), published_file(paper), claims_file(paper))
    ]
    return [path for path in found if path.is_file()]


def _place(path: Path) -> Path:
    """Where a file lies in the crate: as in the working folder, or as in the repository."""
    for folder in packs().values():
        if path.absolute().is_relative_to(folder):
            return IN_REPOSITORY / path.absolute().relative_to(folder.parent)
    return path


def _parameter(entities: _Entities, name: str, kind: str) -> Any:
    return entities.add(
        f"#parameter-{name}", type="FormalParameter", name=name, additionalType=kind,
        conformsTo={"@id": PARAMETER}, valueRequired="True",
    )  # fmt: skip


def _run(entities: _Entities, files: ExhibitFiles, place: Path) -> None:
    """An exhibit as a run of the workflow, with an action for each of its stages.

    place: of its files in the crate, without a suffix.
    """
    about, key, crate = files.about, files.about["key"], entities.crate
    results = {}
    for suffix in files.suffixes:
        files.read(suffix)  # compared with its digest
        path = Path(f"{files.base}{suffix}")
        results[suffix] = entities.file(path, f"{about['title']}: {key}", Path(f"{place}{suffix}"))
        results[suffix]["exampleOfWork"] = {"@id": "#parameter-exhibit"}
    description = f"Times, memory and digests of {key}"
    entities.file(Path(f"{files.base}{RUN}"), description, Path(f"{place}{RUN}"))
    declared = exhibits_files(about["paper"]["name"])
    objects = [_data(entities, data) for data in about["data"]]
    objects += [_sources(entities, origin) for origin in about["computed"]]
    places = [_place(path).as_posix() for path in declared]
    objects += [file for place in places if (file := crate.get(place))]
    run = entities.add(
        f"#run-{key}", type="CreateAction", name=about["command"], instrument=crate.mainEntity,
        description=f"{about['title']}: {about['trials']} trials, seed {about['seed']}",
        object=objects, result=list(results.values()),
        actionStatus="http://schema.org/CompletedActionStatus",
    )  # fmt: skip
    numbers = results[".metrics.parquet"]
    controls = [
        _stage(entities, files, stage, objects, [numbers]) for stage in files.run.get("seconds", {})
    ]
    drawn = [result for suffix, result in results.items() if result is not numbers]
    controls.append(_stage(entities, files, DRAW, [numbers], drawn))
    entities.add(
        f"#engine-{key}", type="OrganizeAction", name=f"Snakemake makes {key}",
        instrument=crate.get("#snakemake"), object=controls, result=run,
    )  # fmt: skip
    crate.root_dataset.append_to("mentions", run)


def _stage(
    entities: _Entities, files: ExhibitFiles, stage: str, objects: list[Any], results: list[Any]
) -> Any:
    """What a stage did for an exhibit, and that the engine ran it."""
    key, run = files.about["key"], files.run
    seconds = run.get("cpu_seconds", {}).get(stage)
    machines = ", ".join(
        f"{machine['device']} of {machine['cpu']} with {machine['cores']} cores"
        for machine in run.get("machines", ())
    )
    parts = [f"{seconds:.1f} s of processor time" if seconds else "", f"on {machines}"]
    drawn = stage == DRAW
    action = entities.add(
        f"#{stage}-{key}", type="CreateAction", name=f"{stage} for {key}",
        description="" if drawn or not machines else " ".join(filter(None, parts)),
        instrument=entities.crate.get(f"#stage-{stage}"), object=objects, result=results,
    )  # fmt: skip
    return entities.add(
        f"#control-{stage}-{key}", type="ControlAction", name=f"Snakemake runs {stage} for {key}",
        instrument=entities.crate.get(f"#step-{stage}"), object=action,
    )  # fmt: skip


def _data(entities: _Entities, data: Mapping[str, Any]) -> Any:
    """A data set as it was prepared, with the publisher's files that it is made from."""
    parts = []
    with Path("config/datasets.csv").open(encoding="utf-8") as table:
        for row in csv.DictReader(table):
            if row["name"] == data["name"] and row["urls"]:
                kind, _, digest = row["checksum"].partition(":")
                part = entities.add(
                    f"#file-{row['name']}-{row['file']}", type="DataDownload", name=row["file"],
                    contentUrl=row["urls"].split()[0], contentSize=row["bytes"],
                    **{kind: digest},
                )  # fmt: skip
                parts.append(part)
    return entities.add(
        f"#data-{data['token']}-{data['sha256'][:12]}", type="Dataset", name=data["title"],
        description=data["about"], license=data["licence"], citation=data["citation"],
        sha256=data["sha256"], distribution=parts, exampleOfWork={"@id": "#parameter-data"},
    )  # fmt: skip


def _sources(entities: _Entities, made: Mapping[str, Any]) -> Any:
    """The sources that computed, by revision and by digest over those that compute."""
    return entities.add(
        f"#sources-{made.get('digest', made['revision'])}", type="SoftwareSourceCode",
        name="fedrepro", version=made["revision"], identifier=made.get("digest", ""),
        description="The sources that computed. The identifier is a digest of 128 bits over them.",
        softwareRequirements=[f"{name} {text}" for name, text in made["versions"].items()],
        programmingLanguage="Python", exampleOfWork={"@id": "#parameter-sources"},
    )  # fmt: skip
