"""A leaderboard from the numbers of its exhibits: what each method reached, and where it stands.

Read from exhibits that are drawn or recorded, and from nothing else, so that a board of those parts
that are there can be made anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import Rng
from fedrepro.numbers.files import ExhibitFiles
from fedrepro.numbers.series import FAILED
from fedrepro.numbers.standings import BesideLine, Standing, against, scores_of, standings
from fedrepro.planning.config import Board

STARTS = ("one start", "different starts")
NOTHING_MORE = "the models alone"  # that a method sees
SEVERAL = "several models"
CLASSES = ("one model", "extra exchanges", "public data", SEVERAL, "reference")
COSTS = ("bytes_up", "rounds", "passes", "parameters", "forward_passes")
SECONDS = ("server_seconds", "client_seconds")
# who computed a row: whoever made the leaderboard; somebody else, with the same bytes where it was
# computed again; somebody else alone
HERE, VERIFIED, REPORTED = "computed here", "verified", "reported"
ALL = "all"  # in the columns of a scenario, where a number is of all of them


@dataclass(frozen=True)
class Scene:
    """A scenario of the board: how clients start, the data's title, the case, how many clients."""

    starts: str
    data: str
    case: str
    clients: int
    exhibit: str

    @property
    def name(self) -> str:
        return f"{self.data}, {self.case}, {self.clients} clients"


@dataclass(frozen=True)
class Reached:
    """A method in one scenario. accuracy: float64 (T,), on test examples, not a number where a run
    failed. costs: of COSTS and SECONDS, means over trials. tried: settings."""

    accuracy: np.ndarray
    setting: str
    tried: int
    costs: Mapping[str, float]


@dataclass(frozen=True)
class Method:
    """What the exhibits say of a method. sees: in words; kind: its class; computed: by whom."""

    label: str
    kind: str
    sees: str
    sends: str
    chosen_by: str
    computed: str = HERE


@dataclass(frozen=True)
class Entered:
    """The exhibits of an entry of somebody else. computed: VERIFIED or REPORTED."""

    computed: str
    parts: Sequence[ExhibitFiles]


@dataclass(frozen=True)
class Ground:
    """All that is there: entries by scenario and label, methods by how clients start and label.

    missing: parts of the board that are not there.
    """

    board: Board
    entries: Mapping[Scene, Mapping[str, Reached]]
    methods: Mapping[tuple[str, str], Method]
    missing: Sequence[str] = ()
    seed: int = 0

    @cached_property
    def gaps(self) -> dict[Scene, float]:
        """By how much the ceiling is above the baseline, mean over trials."""
        return {
            scene: float(np.mean(entries[self.board.ceiling].accuracy - self._base(entries)))
            for scene, entries in self.entries.items()
        }

    @cached_property
    def scenes(self) -> list[Scene]:
        """Those that have a score, in the order of the exhibits."""
        return [scene for scene, gap in self.gaps.items() if gap >= self.board.least_gap]

    def _base(self, reached: Mapping[str, Reached]) -> np.ndarray:
        return reached[self.board.baseline].accuracy

    def scores(self, scene: Scene, label: str) -> np.ndarray:
        """The score of a method in each trial, (T,)."""
        entries = self.entries[scene]
        ceiling = entries[self.board.ceiling].accuracy
        return scores_of(entries[label].accuracy, self._base(entries), ceiling)

    def scored(self, starts: str, label: str) -> list[Scene]:
        """The scenarios with a score in which a method was run."""
        return [s for s in self.scenes if s.starts == starts and label in self.entries[s]]


@dataclass(frozen=True)
class Row:
    """A method of the board, of clients that start so. why: the reason if it has no rank."""

    method: Method
    starts: str
    standing: Standing | None = None
    beside_line: BesideLine | None = None
    why: str = ""
    scenes: Sequence[Scene] = field(default_factory=tuple)
    failed: int = 0
    runs: int = 0


def label_taken(label: str) -> FedreproError:
    return FedreproError(
        f"an entry is called '{label}', as another method of the leaderboard: give it another label"
    )


def ground(
    board: Board,
    parts: Sequence[ExhibitFiles],
    missing: Sequence[str] = (),
    entered: Sequence[Entered] = (),
    seed: int = 0,
) -> Ground:
    """All numbers of the exhibits of a board, and of entries that others sent.

    Errors: FedreproError for a scenario without baseline or ceiling, data that are not those of the
    board, or an entry with the label of another method.
    """
    entries: dict[Scene, dict[str, Reached]] = {}
    methods: dict[tuple[str, str], Method] = {}
    for part in parts:
        _require_data(board, part)
        scenes = dict(_scenes(part))
        entries |= scenes
        for by_label in scenes.values():
            for needed in (board.baseline, board.ceiling, board.line):
                if needed not in by_label:
                    raise FedreproError(
                        f"{part.about['key']} has no '{needed}', which the leaderboard compares "
                        "all methods with; add it to the exhibit"
                    )
        _tell(methods, scenes, part)
    for entry in entered:
        for part in entry.parts:
            _require_data(board, part)
            scenes = {scene: by_label for scene, by_label in _scenes(part) if scene in entries}
            for scene, by_label in scenes.items():
                for label in set(by_label) & set(entries[scene]):
                    raise label_taken(label)
                entries[scene] |= by_label
            _tell(methods, scenes, part, entry.computed)
    return Ground(board, entries, methods, missing, seed)


def _require_data(board: Board, part: ExhibitFiles) -> None:
    """Errors: FedreproError for other data than those of the board."""
    for data in part.about["data"] if part.about["scale"] == "paper" else ():
        known = board.data.get(data["token"], data["sha256"])
        if known != data["sha256"]:
            raise FedreproError(
                f"{part.about['key']} is of other data called {data['token']} than the "
                f"leaderboard: {data['sha256']}, not {known}"
            )


def _tell(
    methods: dict[tuple[str, str], Method],
    scenes: Mapping[Scene, Mapping[str, Reached]],
    part: ExhibitFiles,
    computed: str = HERE,
) -> None:
    """Note what an exhibit says of its methods, where no other has said it."""
    for scene, by_label in scenes.items():
        for description in part.about["methods"]:
            key = scene.starts, description["label"]
            if description["label"] in by_label and key not in methods:
                methods[key] = _method(description, by_label[description["label"]], computed)


def _scenes(part: ExhibitFiles) -> Iterator[tuple[Scene, dict[str, Reached]]]:
    """The scenarios of an exhibit with their entries."""
    about, numbers, choice = part.about, part.numbers, part.table(".choice.csv")
    shared = about["scenario"]["training"]["values"]["shared_init"] == "true"
    title = ", ".join(data["title"] for data in about["data"])
    name = about["key"].partition("/")[2]
    for _, scene_rows in numbers.groupby(["case", "clients"], sort=False):
        case, clients = (scene_rows[key].iloc[0] for key in ("case", "clients"))
        scene = Scene(STARTS[not shared], title, str(case), int(clients), name)
        tried = (
            choice[(choice["case"] == case) & (choice["clients"] == clients)]
            if len(choice)
            else choice
        )
        counts = tried["method"].value_counts().to_dict()
        yield (
            scene,
            {
                str(label): _entry(rows, int(counts.get(label, 1)))
                for label, rows in scene_rows.groupby("method", sort=False)
                if _has_accuracy(rows)
            },
        )


def _has_accuracy(rows: pd.DataFrame) -> bool:
    return bool(((rows["metric"] == "accuracy") & (rows["split"] == "test")).any())


def _entry(rows: pd.DataFrame, tried: int) -> Reached:
    accuracy_row = rows[(rows["metric"] == "accuracy") & (rows["split"] == "test")].iloc[0]
    costs = {
        str(row["metric"]): float(row["mean"])
        for row in rows.to_dict("records")
        if row["metric"] in (*COSTS, *SECONDS)
    }
    if FAILED in set(rows["metric"]):  # in all trials, it has no costs
        costs = {**dict.fromkeys(COSTS, math.nan), **costs}
    accuracy = np.array([float(text) for text in str(accuracy_row["by_trial"]).split()])
    return Reached(accuracy, str(accuracy_row["setting"]), tried, {"passes": 0.0, **costs})


def _method(told: Mapping[str, Any], entry: Reached, computed: str) -> Method:
    return Method(
        told["label"],
        _class(told, entry),
        "; ".join(told["needs"].values()) or NOTHING_MORE,
        told.get("sends") or "",
        told.get("criterion") or "",
        computed,
    )


def _class(told: Mapping[str, Any], entry: Reached) -> str:
    """By what it needs, what comes of it and how often clients and server speak."""
    if told["reference"] or told["kind"] == "control":
        return "reference"
    if any(need.startswith("public") for need in told["needs"]):
        return "public data"
    if entry.costs.get("forward_passes", 1) > 1:
        return SEVERAL
    return "extra exchanges" if entry.costs.get("rounds", 1) > 1 else "one model"


# ------------------------------------------------------------------------------------- standings


def rows_of(ground: Ground) -> list[Row]:
    """Every method, by how clients start and by class, the best first; those without rank last."""
    rows: list[Row] = []
    for starts in STARTS:
        labels = [label for start, label in ground.methods if start == starts]
        here = [label for label in labels if ground.methods[starts, label].computed == HERE]
        lines = _beside_line(ground, starts, here)
        for entry in (label for label in labels if label not in here):  # changes no other row
            found = _beside_line(ground, starts, [*here, entry])
            lines |= {label: line for label, line in found.items() if label == entry}
        for kind in CLASSES:
            class_labels = [label for label in labels if ground.methods[starts, label].kind == kind]
            rows += _class_rows(ground, starts, class_labels, lines, ranked=kind != "reference")
    return rows


def _class_rows(
    ground: Ground,
    starts: str,
    labels: Sequence[str],
    lines: Mapping[str, BesideLine],
    *,
    ranked: bool,
) -> list[Row]:
    scenes = _scenes_of(ground, starts, labels)
    whole: list[Row] = []
    rest: list[Row] = []
    for label in labels:
        scored = [scene for scene in ground.scored(starts, label) if scene in scenes]
        runs = [
            e[label].accuracy
            for s, e in ground.entries.items()
            if s.starts == starts and label in e
        ]
        failed = int(sum((~np.isfinite(run)).sum() for run in runs))
        row = Row(
            ground.methods[starts, label],
            starts,
            beside_line=lines.get(label),
            scenes=scored,
            failed=failed,
            runs=int(sum(map(len, runs))),
        )
        reason = f"{failed} of {row.runs} runs failed" if failed else ""
        if not reason and len(scored) < len(scenes):
            reason = f"run in {len(scored)} of {len(scenes)} scenarios"
        if not scenes:
            reason = reason or "no scenario has a score"
        (rest if reason else whole).append(_with(row, why=reason))
    reported = [row for row in (*whole, *rest) if row.method.computed == REPORTED]
    whole, rest = ([r for r in rows if r.method.computed != REPORTED] for rows in (whole, rest))
    known = [row.method.label for row in whole]
    for row in reported:
        label, told = row.method.label, "reported by others, not verified"
        if not row.why:
            (would,) = (s for s in _standings(ground, scenes, [*known, label]) if s.method == label)
            told += f"; it would have score {would.score:.2f}, group {would.group}, rank "
            told += f"{would.rank_low} to {would.rank_high}"
        rest.append(_with(row, why=f"{told}; {row.why}" if row.why else told))
    by_label = {row.method.label: row for row in whole}
    order = _standings(ground, scenes, known)
    whole = [_with(by_label[standing.method], standing=standing) for standing in order]
    if not ranked:
        whole = [_with(row, why="a bound, which has no rank") for row in whole]
    return [*whole, *sorted(rest, key=lambda row: row.method.label)]


def _scenes_of(ground: Ground, starts: str, labels: Sequence[str]) -> list[Scene]:
    """List the scenarios of a class: those of what was computed here, or else of entries."""
    for kinds in ((HERE,), (VERIFIED,), (REPORTED,)):
        known = [label for label in labels if ground.methods[starts, label].computed in kinds]
        found = [
            scene
            for scene in ground.scenes
            if scene.starts == starts and any(label in ground.entries[scene] for label in known)
        ]
        if found:
            return found
    return []


def _standings(ground: Ground, scenes: Sequence[Scene], labels: Sequence[str]) -> list[Standing]:
    scores = {label: score_table(ground, scenes, label) for label in labels}
    return standings(scores, [scene.name for scene in scenes], Rng(ground.seed))


def _with(row: Row, **changes: Any) -> Row:
    return Row(**{**vars(row), **changes})


def score_table(ground: Ground, scenes: Sequence[Scene], label: str) -> np.ndarray:
    """Scores (S, T). Errors: FedreproError for scenarios with other numbers of trials."""
    rows = [ground.scores(scene, label) for scene in scenes]
    if len({len(row) for row in rows}) > 1:
        raise FedreproError("the exhibits of a leaderboard have unlike numbers of trials")
    return np.stack(rows)


def _beside_line(ground: Ground, starts: str, labels: Sequence[str]) -> dict[str, BesideLine]:
    """The methods that were run in every scenario without failure, beside the one to beat."""
    line = ground.board.line
    where = ground.scored(starts, line)
    if not where:
        return {}
    tables = {
        label: score_table(ground, where, label)
        for label in labels
        if label != line and ground.scored(starts, label) == where
    }
    whole = {label: table for label, table in tables.items() if np.isfinite(table).all()}
    names = [scene.name for scene in where]
    return against(whole, score_table(ground, where, line), names, Rng(ground.seed))
