"""The typed configuration: config/config.yaml, and definitions of papers' figures and tables.

An exhibit is a figure or table, with a key such as pfnm/figure-2a. A scale is the size of its
experiments: tiny, quick or paper. Tables of config/README.md are generated from the classes here.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from fedrepro.core import paper_files
from fedrepro.core.checksummed_files import require_file
from fedrepro.core.errors import BEGIN, FedreproError, shown, type_and_message, unknown
from fedrepro.core.paper_files import OWN_EXHIBITS, exhibits_file, exhibits_of, papers_with
from fedrepro.core.params import LARGEST
from fedrepro.core.registry import DRAWING, component_called
from fedrepro.core.yaml_text import parse_yaml, yaml_text
from fedrepro.planning.drawing_base import TABLE, Strict
from fedrepro.planning.exhibit_config import SCALES as SCALES
from fedrepro.planning.exhibit_config import ExhibitSettings, Scale, key, merge

T = TypeVar("T", bound=BaseModel)
ExhibitKey = Annotated[str, Field(pattern="^[a-z0-9]+/[a-z0-9-]+$")]
# a number would be the name of a leaderboard
ExhibitName = Annotated[str, Field(pattern="^[a-z0-9-]*[a-z-][a-z0-9-]*$")]
Version = Annotated[str, Field(pattern="^[1-9][0-9]*$")]  # of a leaderboard


class Granularity(Strict):
    """How many clients and trials one process computes; results do not depend on these numbers."""

    clients_per_job: Literal["all"] | Annotated[int, Field(ge=1, le=LARGEST)] = key(
        "all", "clients trained by one job"
    )
    trials_per_job: Literal["auto"] | Annotated[int, Field(ge=1, le=LARGEST)] = key(
        "auto",
        "trials that one job computes and one file holds; auto: 1 at paper scale, 5 at quick, 2 "
        "at tiny. A job computes whole blocks: with 10, an exhibit of 12 trials computes 20",
    )


class Config(Strict):
    """The content of config/config.yaml: seed, device, which figures to compute, and how."""

    scale: Scale = key("quick", "size of the experiments that the default target draws")
    exhibits: Literal["headline", "all"] | ExhibitKey | list[str] = key(
        "headline",
        "which exhibits the report holds: headline (one or two per paper), all, one such as "
        "pfnm/figure-2a, or a list of such",
    )
    papers: Literal["all", "own"] = key(
        "all", "files of exhibits to read: all, or own, those in config/exhibits (saves seconds)"
    )
    seed: int = key(0, "seed of every random draw", ge=0, lt=2**63)
    mirror: str = key(
        "",
        "folder with copies of the data sets, tried before a download, after FEDREPRO_MIRROR",
        pattern="^[^\\x00]*$",
    )
    device: Literal["cpu", "cuda"] = key("cpu", "where training and matching run")
    granularity: Granularity = key(Granularity, "how much one job does")
    checkpoint_seconds: float = key(
        20.0, "seconds between checkpoints of methods that run in rounds", ge=0, allow_inf_nan=False
    )
    components: list[str] = key(
        list,
        "Python files with methods or other components of one's own, such as [mine.py], which are "
        "run; see docs/adding-a-method.md",
    )
    also: dict[str, list[dict[str, Any]]] = key(
        dict,
        "methods to add to exhibits that they fit: all of a paper, or of the leaderboards (arena), "
        "such as {arena: [{name: median}]}",
    )

    def mirror_folder(self) -> str:
        return os.environ.get("FEDREPRO_MIRROR") or self.mirror


class At(Strict):
    """The settings below `at:` of a figure: a dict of those that differ at each scale, or None."""

    tiny: dict[str, Any] | None = None
    quick: dict[str, Any] | None = None
    paper: dict[str, Any] | None = None


class Board(Strict):
    """A version of a leaderboard, such as 1: all tables of its file with names like 1-mnist.

    Data, models, training, trials and rules of selection are fixed, so that results compare.
    """

    title: str = key(..., "what is compared, in a line")
    baseline: str = key(..., "label of the method that scores 0")
    ceiling: str = key(..., "label of the method that scores 1")
    line: str = key(..., "label of the method that is drawn as a line to beat")
    least_gap: float = key(
        0.01, "least gap of accuracy between ceiling and baseline for a score", gt=0, lt=1
    )
    each_trial: bool = key(False, "whether parameter values are chosen in each trial, not once")
    supersedes: str = key("", "older version that this one replaces, once this one has numbers")
    ground: str = key("", "digest of its scenarios, trials and rules of choice at scale paper")
    data: dict[str, str] = key(
        dict, "SHA-256 of the prepared arrays by data set (name and parameters), at scale paper"
    )


class ExhibitFile(Strict):
    """Definitions of all figures and tables of a paper or of leaderboards: exhibits.yaml or .py."""

    paper: str = key(..., "short name of the paper", pattern="^[a-z0-9]+$")
    title: str = key(..., "its title")
    source: str = key(..., "authors, venue, year")
    boards: dict[Version, Board] = key(dict, "leaderboards by version, if the file is of no paper")
    defaults: dict[str, Any] = key(dict, "settings that all exhibits of the file start from")
    also: list[dict[str, Any]] = key(list, "methods added to every exhibit that they fit")
    exhibits: dict[ExhibitName, dict[str, Any]] = key(
        ..., "exhibits by name; `at:` holds what differs at a scale"
    )

    @cached_property
    def place(self) -> Path:
        return exhibits_file(self.paper)

    def as_yaml(self) -> str:
        return yaml_text(self.model_dump(exclude_unset=True))

    def names(self, scale: str) -> list[str]:
        """Return the names of exhibits at `scale` (tiny, …), as figure-2a; some may be invalid."""
        found = []
        for name in self.exhibits:
            own: Any = self.written(name, scale).get("scales")
            listed = isinstance(own, list | tuple) and all(one in SCALES for one in own)
            if not listed or scale in own:
                found.append(name)
        return found

    def parts(self, version: str, scale: str) -> list[str]:
        """Return keys (arena/1-mnist) of tables of leaderboard `version` (1) at `scale` (quick)."""
        return [f"{self.paper}/{n}" for n in self.names(scale) if n.startswith(f"{version}-")]

    def settings(self, name: str, scale: str) -> ExhibitSettings:
        """Return settings of exhibit `name` at `scale` (tiny, …); raise FedreproError if invalid.

        Its own keys replace those of `defaults`; in both, keys below `at:` for the scale override.
        """
        merged, where = self._merged(name, scale), self.where(name, scale)
        match merged:
            case {"drawing": {"name": str(kind), **options}}:
                made: Any = component_called(DRAWING, kind, where).fn
                merged[DRAWING] = validated(made, options, f"{where}, drawing {kind}")
            case {"drawing": other}:
                said = f"{where}: drawing must be a name, or {{name: ...}} with its options as"
                raise FedreproError(f"{said} keys, not {shown(other)}")
        return validated(ExhibitSettings, merged, where)

    def where(self, name: str, scale: str) -> str:
        """Return how errors name exhibit `name` at `scale`: file's path, the name and the scale."""
        return f"{self.place}, {name} at scale {scale}"

    def written(self, name: str, scale: str) -> dict[str, Any]:
        """Return what `settings` checks, a dict with defaults merged in; {} if `at:` is invalid."""
        with contextlib.suppress(FedreproError):  # `settings` reports it
            return self._merged(name, scale)
        return {}

    def _merged(self, name: str, scale: str) -> dict[str, Any]:
        merged: dict[str, Any] = {"scales": list(SCALES)}
        for title, layer in (("defaults", self.defaults), (name, self.exhibits[name])):
            merged = merge(merged, _named({k: v for k, v in layer.items() if k != "at"}))
            at = validated(At, layer.get("at") or {}, f"{self.place}, at of {title}")
            merged = merge(merged, _named(getattr(at, scale) or {}))
        return merged | (
            {"methods": [*(merged.get("methods") or ()), *self.also]} if self.also else {}
        )


def _named(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the settings `layer`, with `drawing: NAME` as `drawing: {name: NAME}`."""
    drawing = layer.get(DRAWING)
    return {**layer, DRAWING: {"name": drawing}} if isinstance(drawing, str) else dict(layer)


class Papers(dict[str, ExhibitFile]):
    """A dict {paper: its ExhibitFile}; access to an invalid file raises its error in `unread`."""

    def __init__(self, read: Mapping[str, ExhibitFile], unread: Mapping[str, FedreproError]):
        super().__init__(read)
        self.unread = dict(unread)

    def __missing__(self, paper: str) -> ExhibitFile:
        raise self.unread.get(paper, KeyError(paper))


def load_config(path: Path = Path("config/config.yaml")) -> Config:
    """Read and validate config/config.yaml of the working folder, or the file `path`."""
    return validated(Config, load_yaml(path), str(path))


def load_exhibits(folder: Path | None = None, *, of: Collection[str] = ()) -> Papers:
    """Read the definitions of figures and tables by paper; errors of invalid files are in `unread`.

    Files in the working folder's config/exhibits replace the package's. With `folder`, only its
    YAML files are read; with `of`, keys such as pfnm/figure-2a, only the files of their papers
    (all files if a paper is unknown).
    """
    paths = {path.stem: path for path in sorted((folder or OWN_EXHIBITS).glob("*.yaml"))}
    if folder is None:
        papers = {*papers_with(paper_files.EXHIBITS, OWN_EXHIBITS, ".yaml")}
        few = {key.partition("/")[0] for key in of}
        paths = {p: exhibits_file(p) for p in sorted(few if few and few <= papers else papers)}
    if not paths:
        raise FedreproError(f"no exhibit files in {folder or OWN_EXHIBITS}; {BEGIN}")
    read: dict[str, ExhibitFile] = {}
    unread: dict[str, FedreproError] = {}
    for paper, path in paths.items():
        try:
            values = exhibits_of(paper) if path.suffix == ".py" else load_yaml(path)
            file = validated(ExhibitFile, values, str(path))
            if file.paper != paper:
                raise FedreproError(f"{path}: paper must be '{paper}', not '{file.paper}'")
            read[paper] = file
        except FedreproError as error:
            unread[paper] = error
        except Exception as error:  # of Python, which hides this paper alone
            unread[paper] = FedreproError(f"{path} cannot be read ({type_and_message(error)})")
    return Papers(read, unread)


def table_names(files: Mapping[str, ExhibitFile]) -> dict[str, list[str]]:
    """Return {"quick/pfnm": names of the tables of that paper at that scale}, without figures."""
    found: dict[str, list[str]] = {}
    for scale, file in itertools.product(SCALES, files.values()):
        for name in file.exhibits:
            drawing = file.written(name, scale).get(DRAWING)
            if isinstance(drawing, Mapping) and drawing.get("name") == TABLE:
                found.setdefault(f"{scale}/{file.paper}", []).append(name)
    return found


def load_yaml(path: Path) -> dict[str, Any]:
    require_file(path)
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FedreproError(f"{path} is missing; {BEGIN}") from None
    except OSError as error:
        raise FedreproError(f"{path} cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise FedreproError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(content, dict):
        raise FedreproError(f"{path} must hold keys and values")
    return content


def validated(model: type[T], values: Any, where: str) -> T:
    """Return dict `values` as an object of pydantic class `model`; FedreproErrors cite `where`."""
    data = dict(values) if isinstance(values, Mapping) else values
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = error.errors()
    first, at = problems[0], _place(data, problems[0]["loc"])
    if first["type"] == "extra_forbidden":
        raise unknown("key", str(first["loc"][-1]), model.model_fields, where)
    if first["type"] == "missing":
        missing = ".".join(str(part) for part in first["loc"])
        raise FedreproError(f"{where}: the key '{missing}' is missing")
    what = f"'{at}'" if at else "it"
    # where several types are allowed each has a problem of its own, at the same place
    messages = [problem["msg"] for problem in problems if _place(data, problem["loc"]) == at]
    text = "; or ".join(dict.fromkeys(messages)).lower()
    raise FedreproError(f"{where}: {what} is {shown(first['input'])}; {text}")


def _place(values: Any, loc: tuple[int | str, ...]) -> str:
    parts = []
    for part in loc:
        known = isinstance(values, Mapping) and part in values
        if known or (isinstance(values, list) and isinstance(part, int)):
            values = values[part]
            parts.append(str(part))
    return ".".join(parts)
