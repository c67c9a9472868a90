"""Methods that others submit to a leaderboard: write and verify a folder with its results."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field

from fedrepro.core import checksummed_files as stored
from fedrepro.core import user_component_files as component_files
from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.paper_files import OWN_EXHIBITS
from fedrepro.core.provenance import file_of, origin, origins
from fedrepro.core.registry import components
from fedrepro.numbers.exhibit_files import TIMES, ExhibitFiles, command, open_exhibit, write_files
from fedrepro.planning import config_files as configs
from fedrepro.planning.drawing_base import Strict
from fedrepro.planning.exhibit_config import Scale
from fedrepro.planning.plan import Plan
from fedrepro.planning.scenarios_runs_and_jobs import TIMINGS
from fedrepro.record import record_entries_and_leaderboards as records
from fedrepro.stages.figures_claims_and_pages import draw_exhibit
from fedrepro.stages.snakemake_in_folder import compute, inside_folder, start

# keys of a table that are about other methods than the submitted one
OTHERS = frozenset({"methods", "without", "trials_of", "also"})
# keys of an entry besides method parameters; data, partition and model are not among them
SAID = frozenset({"name", "label", "settings", "choose", "measure_every"})
SUFFIXES = (".csv", ".choice.csv", TIMES)  # files computed from metrics alone
# keys of the json that do not follow from metrics: who drew the table, how long it took
KEPT = ("drawn", "run", "files", "blank")


class Submission(Strict):
    """The content of entry.json, which describes a method that is submitted to a leaderboard.

    exhibits: the leaderboard's tables with results of the method. says: its name, label and
    parameters. file: name of the file with the method's code, in this folder; empty if a package
    has the method. origin: code versions and machines of its runs. by: the author.
    """

    kind: Literal["entry"]
    schema_: Literal[stored.SCHEMA_VERSION] = Field(alias="schema")  # type: ignore[valid-type]
    exhibits: Annotated[list[configs.ExhibitKey], Field(min_length=1)]
    scale: Scale
    seed: int
    trials_per_job: int
    says: dict[str, Any]
    file: Annotated[str, Field(pattern=r"^([A-Za-z0-9_][\w.+-]*\.py)?$")]
    origin: list[dict[str, Any]]
    by: str

    @property
    def paper(self) -> str:
        return self.exhibits[0].partition("/")[0]

    def config(self, **more: Any) -> configs.Config:
        """Return a configuration with the author's seed and trials per job, and the keys `more`."""
        cut = {"trials_per_job": self.trials_per_job}
        return configs.Config.model_validate({"seed": self.seed, "granularity": cut, **more})


@dataclass(frozen=True)
class Verdict:
    """A result of `verify`: number of metrics files, paths computed again, words on differences."""

    runs: int
    computed: list[str]
    differing: list[str]


def exhibit_file_of(file: configs.ExhibitFile, says: Mapping[str, Any]) -> configs.ExhibitFile:
    """Return the configuration `file` of a leaderboard's tables with one method in place of all.

    `says` has the method's name, label and parameters; other keys, as partition, are an error.
    """
    known = components("method")
    if says.get("name") not in known:
        raise unknown("method", str(says.get("name")), known, "the entry")
    allowed = SAID | set(known[says["name"]].params)
    if odd := sorted(set(says) - allowed):
        said = f"an entry of a leaderboard cannot set '{odd[0]}', by which it would stand on"
        fix = f"it may say {', '.join(sorted(allowed))}"
        raise FedreproError(f"{said} another ground than the others: {fix}")
    exhibits = {name: _bare(layer) for name, layer in file.exhibits.items()}
    defaults = _bare(file.defaults) | {"methods": [dict(says)]}
    return file.model_copy(update={"exhibits": exhibits, "defaults": defaults, "also": []})


def _bare(layer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _bare(value) if isinstance(value, Mapping) else value
        for key, value in layer.items()
        if key not in OTHERS
    }


def metrics_files_of(plan: Plan, keys: Sequence[str]) -> list[str]:
    """List the paths of metrics that figures and tables (`keys`: paper/name) need, once each."""
    return [*dict.fromkeys(p for key in keys for p in plan.metrics_files(plan.exhibit(key)))]


def submit(key: str, scale: str, by: str) -> tuple[Path, list[str]]:
    """Write a folder with a method and its finished results, to be submitted to a leaderboard.

    `key` is the leaderboard (arena/1) or one of its tables, `scale` is tiny, quick or paper, `by`
    the author. The method is read from config/config.yaml, under `also`. Returns the folder's path,
    in reports/record, and warnings on source code and run times. Raises FedreproError if the method
    is unknown, its file changed since its runs, or a table is not computed completely.
    """
    config, (paper, _, name) = configs.load_config(), key.partition("/")
    whole = Plan(config, configs.load_exhibits(), scale)
    if paper not in whole.files or name.partition("-")[0] not in whole.files[paper].boards:
        known = [f"{paper}/{board}" for paper, file in whole.files.items() for board in file.boards]
        raise unknown("leaderboard", key, known)
    file = whole.files[paper]
    keys = file.parts(name, scale) if name in file.boards else [whole.exhibit(key).key]
    if len(file.also) != 1:
        why = f"`also` in config/config.yaml has {len(file.also)} methods for {paper}"
        fix = f"write also: {{{paper}: [{{name: mine}}]}} there"
        raise FedreproError(f"{why}, and an entry is of one: {fix}")
    (says,) = file.also
    plan = Plan(config.model_copy(update={"also": {}}), {paper: exhibit_file_of(file, says)}, scale)
    for part in keys:
        missing = [path for path in metrics_files_of(plan, [part]) if not os.path.exists(path)]
        if missing:
            why = f"{part} is not computed whole with '{says['name']}' at scale {scale}"
            fix = f"make them with: {command(scale, part)}"
            raise FedreproError(f"{why}: {len(missing)} files of runs are missing; {fix}")
    said: list[str] = []
    item, paths = components("method")[says["name"]], metrics_files_of(plan, keys)
    sources = [stored.read_source(path) for path in paths]
    then = {source.get("component_files", {}).get(f"method {item.name}") for source in sources}
    if then != {file_of(item)}:
        why = f"{Path(item.file).name} changed since its runs"
        raise FedreproError(f"{why}: compute them again, or restore it")
    own = item.file in component_files.loaded_files
    out = records.entries_folder(records.RECORD / scale, paper, name.partition("-")[0]) / item.name
    if out.exists():
        raise FedreproError(f"{out} is there already: remove it")
    with stored.temporary_folder() as work:
        folder, drawn = work / "entry", work / records.REPORTS
        for metrics in map(Path, paths):
            (folder / metrics).parent.mkdir(parents=True, exist_ok=True)
            for written in (metrics, metrics.with_name(TIMINGS)):
                shutil.copyfile(written, folder / written)
        if own:
            shutil.copyfile(item.file, folder / f"{item.name}.py")
        (work / "results").symlink_to(os.path.abspath("results"))  # with the seconds of runs
        for part in keys:
            (drawn / scale / part).parent.mkdir(parents=True, exist_ok=True)
            (folder / part).parent.mkdir(exist_ok=True)
            draw_exhibit(part, plan, drawn / scale / part)
            write_files(str(folder / part), *records.read_drawn(scale, part, drawn, said))
        entry = {"kind": "entry", "schema": stored.SCHEMA_VERSION, "exhibits": keys, "scale": scale}
        entry |= {"seed": config.seed, "trials_per_job": plan.trials_per_job, "says": dict(says)}
        entry |= {"file": f"{item.name}.py" if own else "", "origin": origins(sources), "by": by}
        configs.validated(Submission, entry, f"the entry of '{item.name}'")
        stored.write_json(folder / records.ENTRY, entry)
        out.parent.mkdir(parents=True, exist_ok=True)
        with stored.temporary_folder(out.parent) as copied:
            shutil.copytree(folder, copied / out.name)
            (copied / out.name).rename(out)
    return out, said


def read_entry(folder: Path) -> Submission:
    """Read and validate the entry.json of a folder with a submitted method."""
    path = folder / records.ENTRY
    if not path.is_file():
        said = f"{folder} has no {path.name}"
        raise FedreproError(f"{said}: name a folder that `fedrepro submit` wrote")
    try:
        held = stored.read_json(path)
    except FedreproError as error:
        said = f"{path} was changed or damaged after `fedrepro submit` wrote it"
        raise FedreproError(f"{said}: get the folder from its author again") from error
    return configs.validated(Submission, held, str(path))


def verify(folder: Path, count: int | None, seed: int, cores: int | None = None) -> Verdict:
    """Verify a submitted method: draw its tables and compute some of its metrics again; compare.

    `folder` is the submission. `count` of its files of metrics, chosen at random by `seed`, are
    computed again, or all if it is None, on `cores` cores. Returns their paths, and differences.
    """
    entry = read_entry(folder)  # first, since a link that leads to itself cannot be resolved
    folder = folder.resolve()
    with stored.temporary_folder() as work, _planned(entry, folder, work / "run") as plan:
        paths = metrics_files_of(plan, entry.exhibits)
        if lacking := [path for path in paths if not (folder / path).exists()]:
            said = f"{folder} lacks {lacking[0]}, which its exhibits have with the settings and the"
            fix = "submit it again from the folder that computed it"
            raise FedreproError(f"{said} seed that it says: {fix}")
        differing, drawn, failed = list[str](), paths, "it was not computed"
        for key in entry.exhibits:
            (work / key).parent.mkdir(exist_ok=True)
            try:
                with contextlib.chdir(folder):
                    draw_exhibit(key, plan, work / key)
            except FedreproError as error:
                said = f"{key} cannot be drawn from the entry's metrics; if these or its method"
                fix = f"were changed, get the folder from its author again ({error})"
                raise FedreproError(f"{said} {fix}") from error
            odd = _differing_files(*(open_exhibit(at, key, entry.scale) for at in (work, folder)))
            differing += [f"{key}{end} does not follow from the entry's metrics" for end in odd]
        if count is not None:
            drawn = random.Random(seed).sample(paths, min(count, len(paths)))
        try:
            with inside_folder(work / "run"):
                if drawn:
                    compute(drawn, cores, own=True)
        except FedreproError as error:
            failed = str(error)
        for path in drawn:
            if not (work / "run" / path).exists():
                differing.append(f"{path}: {failed}")
                continue
            tables = []
            for place in (work / "run", folder):
                with contextlib.chdir(place):
                    tables.append(stored.read_table(path, "metrics"))
            if why := _difference(*tables):
                failures = stored.read_source(work / "run" / path).get("failed", ())
                differing.append(f"{path}: {'; '.join(failures) or why}")
    return Verdict(len(paths), drawn, differing)


@contextlib.contextmanager
def _planned(entry: Submission, folder: Path, work: Path) -> Iterator[Plan]:
    """Make a folder `work` to compute the `entry` in `folder` again; yield the plan of its runs."""
    files = [str(work / entry.file)] if entry.file else []
    configured = Path("config/config.yaml").exists()
    mirror = (configs.load_config() if configured else configs.Config()).mirror_folder()
    exhibits = configs.load_exhibits(of=entry.exhibits)
    start(work)
    if (data := Path("config/datasets.csv")).exists():
        shutil.copyfile(data, work / data)
    if (resources := Path("resources").absolute()).is_dir():
        (work / "resources").symlink_to(resources)
    if entry.file:
        shutil.copyfile(folder / entry.file, work / entry.file)
    settings = entry.config(components=files, mirror=mirror and os.path.abspath(mirror))
    (work / "config/config.yaml").write_text(settings.model_dump_json(), encoding="utf-8")
    with component_files.restored_files():
        component_files.set_files(files)
        if entry.paper not in {*exhibits, *exhibits.unread}:
            raise unknown("leaderboard", entry.paper, exhibits, str(folder))
        file = exhibit_file_of(exhibits[entry.paper], entry.says)
        # without boards: the digest of one covers the rules of all its methods
        text = file.model_copy(update={"boards": {}}).as_yaml()
        (work / OWN_EXHIBITS).mkdir(exist_ok=True)
        (work / OWN_EXHIBITS / f"{entry.paper}.yaml").write_text(text, encoding="utf-8")
        yield Plan(settings, {entry.paper: file}, entry.scale)


def _differing_files(ours: ExhibitFiles, theirs: ExhibitFiles) -> list[str]:
    """List suffixes of a table's files that differ between `ours`, drawn here, and `theirs`."""
    odd = [s for s in SUFFIXES if s in ours.suffixes and ours.read(s) != theirs.read(s)]
    if not ours.metrics.equals(theirs.metrics):
        odd.append(".metrics.parquet")
    said = [{k: v for k, v in files.about.items() if k not in KEPT} for files in (ours, theirs)]
    return odd if said[0] == said[1] else [*odd, ".json"]


def _difference(ours: pa.Table, theirs: pa.Table) -> str:
    mine, measured = ours.to_pylist(), ("phase", "split")
    asked = {tuple(row[name] for name in measured) for row in mine}
    others = [row for row in theirs.to_pylist() if tuple(row[n] for n in measured) in asked]
    if ours.schema.names != theirs.schema.names or len(mine) != len(others):
        return f"it has {len(others)} rows, and here {len(mine)}"
    keys = ("trial", "setting", "client", "round", "split", "metric")
    for own, other in zip(mine, others, strict=True):
        if repr(own) != repr(other):
            place = ", ".join(f"{key} {other[key]}" for key in keys if other[key] is not None)
            return f"{place}: {other['value']!r} in the entry, {own['value']!r} here"
    return "" if ours.schema.equals(theirs.schema) else "its columns are of other types here"


def enter(folder: Path, verdict: Verdict, seed: int) -> list[Path]:
    """Write the leaderboard that a submitted method belongs to, with this method among its rows.

    `folder` is the submission, such as reports/record/quick/arena/1.entries/mine (FedreproError if
    it is elsewhere). The `verdict` is written into it if metrics, chosen at random by `seed`, were
    computed again. Returns the paths of the leaderboard's files.
    """
    folder, entry = folder.resolve(), read_entry(folder)
    version, reports = folder.parent.name.removesuffix(".entries"), folder.parent.parent.parent
    place = records.entries_folder(reports, entry.paper, version)
    if folder.parent != place or reports.name != entry.scale:
        due = records.entries_folder(records.RECORD / entry.scale, entry.paper, "1")
        raise FedreproError(f"{folder} lies at no leaderboard: move it to a folder as {due}")
    (folder / records.VERDICT).unlink(missing_ok=True)
    if verdict.computed:
        said = {"seed": seed, "computed": verdict.computed, "files": records.digests_of(folder)}
        stored.write_json(folder / records.VERDICT, said | {"origin": origin()})
    try:
        file = configs.load_exhibits(of=entry.exhibits)[entry.paper]
        return records.write_board(file, version, entry.scale, reports)
    except BaseException:
        (folder / records.VERDICT).unlink(missing_ok=True)
        raise
