"""A leaderboard from the numbers of its exhibits: one table of methods, one of single scenarios.

Read from exhibits that are drawn or recorded, and from nothing else, so that a board of those parts
that are there can be made anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import Rng
from fedrepro.numbers.files import ExhibitFiles
from fedrepro.numbers.standings import BesideLine, Standing, against, scores_of, standings
from fedrepro.planning.config import Board

STARTS = ("one start", "different starts")
CLASSES = ("one model", "extra exchanges", "public data", "several models", "reference")
COSTS = ("bytes_up", "rounds", "passes", "parameters", "forward_passes")
SECONDS = ("server_seconds", "client_seconds")
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
    """What the exhibits say of a method. sees: in words; kind: its class."""

    label: str
    kind: str
    sees: str
    sends: str
    chosen_by: str


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
            scene: float(np.mean(found[self.board.ceiling].accuracy - self._base(found)))
            for scene, found in self.entries.items()
        }

    @cached_property
    def scenes(self) -> list[Scene]:
        """Those that have a score, in the order of the exhibits."""
        return [scene for scene, gap in self.gaps.items() if gap >= self.board.least_gap]

    def _base(self, found: Mapping[str, Reached]) -> np.ndarray:
        return found[self.board.baseline].accuracy

    def scores(self, scene: Scene, label: str) -> np.ndarray:
        """The score of a method in each trial, (T,)."""
        found = self.entries[scene]
        top = found[self.board.ceiling].accuracy
        return scores_of(found[label].accuracy, self._base(found), top)

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


def ground(
    board: Board, parts: Sequence[ExhibitFiles], missing: Sequence[str] = (), seed: int = 0
) -> Ground:
    """All numbers of the exhibits of a board.

    Errors: FedreproError for a scenario without baseline or ceiling, or data that are not those of
    the board.
    """
    entries: dict[Scene, dict[str, Reached]] = {}
    methods: dict[tuple[str, str], Method] = {}
    for part in parts:
        for data in part.about["data"] if part.about["scale"] == "paper" else ():
            known = board.data.get(data["token"], data["sha256"])
            if known != data["sha256"]:
                raise FedreproError(
                    f"{part.about['key']} is of other data called {data['token']} than the "
                    f"leaderboard: {data['sha256']}, not {known}"
                )
        found = dict(_scenes(part))
        entries |= found
        for scene, own in found.items():
            for needed in (board.baseline, board.ceiling, board.line):
                if needed not in own:
                    raise FedreproError(
                        f"{part.about['key']} has no '{needed}', which the leaderboard compares "
                        "all methods with; add it to the exhibit"
                    )
            for told in part.about["methods"]:
                key = scene.starts, told["label"]
                if told["label"] in own and key not in methods:
                    methods[key] = _method(told, own[told["label"]])
    return Ground(board, entries, methods, missing, seed)


def _scenes(part: ExhibitFiles) -> Iterator[tuple[Scene, dict[str, Reached]]]:
    """The scenarios of an exhibit with their entries."""
    about, numbers, choice = part.about, part.numbers, part.table(".choice.csv")
    shared = about["scenario"]["training"]["values"]["shared_init"] == "true"
    title = ", ".join(data["title"] for data in about["data"])
    name = about["key"].partition("/")[2]
    for _, own in numbers.groupby(["case", "clients"], sort=False):
        case, clients = (own[key].iloc[0] for key in ("case", "clients"))
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
                for label, rows in own.groupby("method", sort=False)
                if _has_accuracy(rows)
            },
        )


def _has_accuracy(rows: pd.DataFrame) -> bool:
    return bool(((rows["metric"] == "accuracy") & (rows["split"] == "test")).any())


def _entry(rows: pd.DataFrame, tried: int) -> Reached:
    one = rows[(rows["metric"] == "accuracy") & (rows["split"] == "test")].iloc[0]
    costs = {
        str(row["metric"]): float(row["mean"])
        for row in rows.to_dict("records")
        if row["metric"] in (*COSTS, *SECONDS)
    }
    accuracy = np.array([float(text) for text in str(one["by_trial"]).split()])
    return Reached(accuracy, str(one["setting"]), tried, {"passes": 0.0, **costs})


def _method(told: Mapping[str, Any], entry: Reached) -> Method:
    return Method(
        told["label"],
        _class(told, entry),
        "; ".join(told["needs"].values()) or "the models alone",
        told.get("sends") or "",
        told.get("criterion") or "",
    )


def _class(told: Mapping[str, Any], entry: Reached) -> str:
    """By what it needs, what comes of it and how often clients and server speak."""
    if told["reference"] or told["kind"] == "control":
        return "reference"
    if any(need.startswith("public") for need in told["needs"]):
        return "public data"
    if entry.costs.get("forward_passes", 1) > 1:
        return "several models"
    return "extra exchanges" if entry.costs.get("rounds", 1) > 1 else "one model"


# ------------------------------------------------------------------------------------- standings


def rows_of(ground: Ground) -> list[Row]:
    """Every method, by how clients start and by class, the best first; those without rank last."""
    found: list[Row] = []
    for starts in STARTS:
        labels = [label for where, label in ground.methods if where == starts]
        lines = _beside_line(ground, starts, labels)
        for kind in CLASSES:
            own = [label for label in labels if ground.methods[starts, label].kind == kind]
            found += _class_rows(ground, starts, own, lines, ranked=kind != "reference")
    return found


def _class_rows(
    ground: Ground,
    starts: str,
    labels: Sequence[str],
    lines: Mapping[str, BesideLine],
    *,
    ranked: bool,
) -> list[Row]:
    where = [s for s in ground.scenes if any(label in ground.entries[s] for label in labels)]
    where = [scene for scene in where if scene.starts == starts]
    whole: list[Row] = []
    rest: list[Row] = []
    for label in labels:
        own = ground.scored(starts, label)
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
            scenes=own,
            failed=failed,
            runs=int(sum(map(len, runs))),
        )
        reason = f"{failed} of {row.runs} runs failed" if failed else ""
        if not reason and len(own) < len(where):
            reason = f"run in {len(own)} of {len(where)} scenarios"
        if not where:
            reason = reason or "no scenario has a score"
        (rest if reason else whole).append(_with(row, why=reason))
    if where and whole:
        scores = {row.method.label: _table(ground, where, row.method.label) for row in whole}
        by_label = {row.method.label: row for row in whole}
        order = standings(scores, [scene.name for scene in where], Rng(ground.seed))
        whole = [_with(by_label[one.method], standing=one) for one in order]
    if not ranked:
        whole = [_with(row, why="a bound, which has no rank") for row in whole]
    return [*whole, *sorted(rest, key=lambda row: row.method.label)]


def _with(row: Row, **changes: Any) -> Row:
    return Row(**{**vars(row), **changes})


def _table(ground: Ground, scenes: Sequence[Scene], label: str) -> np.ndarray:
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
        label: _table(ground, where, label)
        for label in labels
        if label != line and ground.scored(starts, label) == where
    }
    whole = {label: table for label, table in tables.items() if np.isfinite(table).all()}
    names = [scene.name for scene in where]
    return against(whole, _table(ground, where, line), names, Rng(ground.seed))


# ---------------------------------------------------------------------------------------- tables


def leaderboard(ground: Ground, rows: Sequence[Row]) -> pd.DataFrame:
    """A row a method: class, group, score and rank with intervals, costs, single accuracies."""
    scenes = list(ground.entries)
    return pd.DataFrame([_row(ground, row, scenes) for row in rows])


def _row(ground: Ground, row: Row, scenes: Sequence[Scene]) -> dict[str, Any]:
    label, standing, line = row.method.label, row.standing, row.beside_line
    ranked = standing is not None and not row.why
    own = [
        ground.entries[s][label]
        for s in scenes
        if s.starts == row.starts and label in ground.entries[s]
    ]
    return {
        "starts": row.starts,
        "class": row.method.kind,
        "group": standing.group if standing and ranked else None,
        "method": label,
        "score": standing.score if standing else None,
        "score_low": standing.low if standing else None,
        "score_high": standing.high if standing else None,
        "rank_low": standing.rank_low if standing and ranked else None,
        "rank_high": standing.rank_high if standing and ranked else None,
        "not_told_apart": "; ".join(standing.beside) if standing and ranked else "",
        f"beside_{_key(ground.board.line)}": line.verdict if line else "",
        "scenarios": len(row.scenes),
        "runs": row.runs,
        "failed": row.failed,
        "without_rank": row.why,
        **_costs(ground, row, scenes),
        "settings_tried": max(entry.tried for entry in own),
        "sees": row.method.sees,
        "clients_also_send": row.method.sends,
        "chosen_by": row.method.chosen_by,
        **{
            f"{s.data}, {s.case}, {s.clients} clients"
            + ("" if s.starts == STARTS[0] else f", {s.starts}"): float(
                np.mean(ground.entries[s][label].accuracy)
            )
            if s.starts == row.starts and label in ground.entries[s]
            else None
            for s in scenes
        },
    }


def _key(label: str) -> str:
    return label.replace(" ", "_")


def _costs(ground: Ground, row: Row, scenes: Sequence[Scene]) -> dict[str, float | None]:
    """Means over scenarios: bytes as multiples of what sending the models takes, the rest as is."""
    label, board = row.method.label, ground.board
    own = [
        (ground.entries[s], s)
        for s in scenes
        if s.starts == row.starts and label in ground.entries[s]
    ]
    found: dict[str, list[float]] = {}
    for entries, scene in own:
        costs, plain = entries[label].costs, entries[board.baseline].costs
        found.setdefault("bytes_up", []).append(costs["bytes_up"] / plain["bytes_up"])
        each = costs["bytes_up"] / scene.clients / 1e6
        found.setdefault("megabytes_up_a_client", []).append(each)
        found.setdefault("exchanges", []).append(costs["rounds"])
        found.setdefault("passes", []).append(costs["passes"])
        found.setdefault("networks", []).append(costs["forward_passes"])
        found.setdefault("parameters", []).append(costs["parameters"])
    return {key: float(np.mean(values)) for key, values in found.items()}


def scenarios(ground: Ground, rows: Sequence[Row]) -> pd.DataFrame:
    """A row per scenario, method and number, in the form of an exhibit's csv; and of all scenarios.

    Numbers: accuracy on test examples, score, and of all scenarios together score, rank_low,
    rank_high and group.
    """
    found = []
    for scene, entries in ground.entries.items():
        place = {key: getattr(scene, key) for key in ("starts", "data", "case", "clients")}
        for label, entry in entries.items():
            base = {**place, "method": label, "setting": entry.setting}
            found.append(base | _series("accuracy", "test", entry.accuracy))
            if scene in ground.scenes:
                found.append(base | _series("score", "", ground.scores(scene, label)))
    for row in rows:
        place = {"starts": row.starts, "data": ALL, "case": ALL, "clients": None}
        base = {**place, "method": row.method.label, "setting": ""}
        if row.standing is None:
            continue
        table = _table(ground, row.scenes, row.method.label)
        found.append(base | _series("score", "", table.mean(axis=0)))
        for metric in ("rank_low", "rank_high", "group") if not row.why else ():
            value = np.array([float(getattr(row.standing, metric))])
            found.append(base | _series(metric, "", value))
    columns = (*("starts", "data", "case", "clients", "method", "metric", "split"),)
    return pd.DataFrame(found, columns=[*columns, "mean", "sd", "trials", "by_trial", "setting"])


def _series(metric: str, split: str, values: np.ndarray) -> dict[str, Any]:
    return {
        "metric": metric,
        "split": split,
        "mean": float(values.mean()),
        "sd": float(values.std(ddof=1)) if len(values) > 1 else None,
        "trials": len(values),
        "by_trial": " ".join(f"{value:.10g}" for value in values),
    }


def seconds(ground: Ground, rows: Sequence[Row]) -> pd.DataFrame:
    """Measured seconds of each method in a trial, means over scenarios: they do not repeat."""
    found = []
    for row in rows:
        label = row.method.label
        own = [
            e[label].costs
            for s, e in ground.entries.items()
            if s.starts == row.starts and label in e
        ]
        for metric in SECONDS:
            known = [costs[metric] for costs in own if metric in costs]
            if known:
                found.append(
                    {
                        "starts": row.starts,
                        "method": label,
                        "metric": metric,
                        "mean": float(np.mean(known)),
                        "scenarios": len(known),
                    }
                )
    return pd.DataFrame(found, columns=["starts", "method", "metric", "mean", "scenarios"])
