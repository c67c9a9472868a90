"""Compute a leaderboard from those of its tables that are there: scores, ranks and tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.core.errors import FedreproError
from fedrepro.numbers.exhibit_files import ExhibitFiles
from fedrepro.numbers.setting_selection import (
    Accuracies,
    Ends,
    chosen_of,
    ends_of,
    in_each_trial,
    of_settings,
)
from fedrepro.numbers.significance_ranking import (
    FEWEST,
    LEVEL,
    Standing,
    chances_of,
    scores_of,
    standings,
    usual_tests,
)
from fedrepro.numbers.trial_statistics import FAILED
from fedrepro.planning.config import Board

STARTS = ("one start", "different starts")
NOTHING_MORE = "the models alone"  # that a method sees
SEVERAL = "several models"
CLASSES = ("one model", "extra exchanges", "public data", SEVERAL, "reference")
COSTS = ("bytes_up", "bytes_down", "rounds", "passes", "parameters", "forward_passes")
SECONDS = ("server_seconds", "client_seconds")
# who computed a row: whoever made the leaderboard, somebody else with the same bytes, or alone
HERE, VERIFIED, REPORTED = "computed here", "verified", "reported"
ALL = "all"  # in the columns of a scenario, where a number is of all of them
EACH_TRIAL = "settings chosen in each trial"
# of a scenario: bytes as a multiple of what sending the models takes there
COSTS_TOLD = ("bytes_up", "exchanges", "networks")
ENDS = ("", "_low", "_high")  # of the names of columns with an estimate


@dataclass(frozen=True)
class BoardScenario:
    """A scenario of a leaderboard: a data set, a partition (`case`) and a number of clients.

    starts: "one start" if clients trained from equal initial weights, else "different starts".
    """

    starts: str
    data: str
    case: str
    clients: int
    exhibit: str

    @property
    def name(self) -> str:
        return f"{self.data}, {self.case}, {self.clients} clients"


@dataclass(frozen=True)
class MethodResult:
    """The accuracy and costs of a method in one scenario; NaN where a run failed.

    accuracy: on test examples, (T,) over trials. in_each_trial: the same with parameter values
    selected in every trial. tried: from how many `setting` was selected. ends: whether selected
    values are at an end of their grid.
    """

    accuracy: np.ndarray
    setting: str
    tried: int
    costs: Mapping[str, float]
    in_each_trial: np.ndarray
    ends: Sequence[Ends]


@dataclass(frozen=True)
class Method:
    """A leaderboard's method as texts: label, class (`kind`), information and messages it needs.

    chosen_by: the rule that selects its parameter values. computed: "computed here", or if it was
    submitted "verified" (recomputed here with equal bytes) or "reported".
    """

    label: str
    kind: str
    sees: str
    sends: str
    chosen_by: str
    computed: str = HERE


@dataclass(frozen=True)
class BoardData:
    """Results of a leaderboard, by scenario and label; `methods` is by (first weights, label)."""

    board: Board
    entries: Mapping[BoardScenario, Mapping[str, MethodResult]]
    methods: Mapping[tuple[str, str], Method]

    def _bounds(self, scene: BoardScenario) -> tuple[np.ndarray, np.ndarray]:
        entries = self.entries[scene]
        return entries[self.board.baseline].accuracy, entries[self.board.ceiling].accuracy

    @cached_property
    def scenes(self) -> list[BoardScenario]:
        """List the scenarios where pooled training beats FedAvg by at least `board.least_gap`."""
        ends = {scene: self._bounds(scene) for scene in self.entries}
        return [s for s, (low, high) in ends.items() if (high - low).mean() >= self.board.least_gap]

    def scores(self, scene: BoardScenario, label: str, *, each_trial: bool = False) -> np.ndarray:
        """Return the method's score per trial, (T,): 0 is FedAvg's accuracy, 1 pooled training's.

        With `each_trial`, each trial selects parameter values of its own.
        """
        entry = self.entries[scene][label]
        accuracy = entry.in_each_trial if each_trial else entry.accuracy
        return scores_of(accuracy, *self._bounds(scene))


@dataclass(frozen=True)
class BoardRow:
    """A row of a leaderboard: a method on one data set or all, by equal or different first weights.

    drawn: the repetitions that intervals account for, such as "trials" or "scenarios and trials".
    each_trial: the score with parameter values selected in each trial. ahead: in how many scenarios
    it is above the best client. unranked_reason: empty if ranked. scenes: scenarios of the score.
    """

    method: Method
    starts: str
    data: str
    drawn: str = ""
    standing: Standing | None = None
    each_trial: float | None = None
    ahead: int | None = None
    unranked_reason: str = ""
    scenes: Sequence[BoardScenario] = ()
    failed: int = 0
    runs: int = 0


def board_data(
    board: Board, parts: Sequence[ExhibitFiles], entered: Sequence[tuple[str, ExhibitFiles]] = ()
) -> BoardData:
    """Collect the results of a leaderboard from its tables, and from submitted methods.

    `entered` has submitted tables, each with VERIFIED (recomputed here with equal bytes) or
    REPORTED. A table without FedAvg, the pooled model or the best client, of other data than the
    leaderboard's, or with another method's label is a FedreproError.
    """
    entries: dict[BoardScenario, dict[str, MethodResult]] = {}
    methods: dict[tuple[str, str], Method] = {}
    for computed, part in [*((HERE, part) for part in parts), *entered]:
        key = part.about["key"]
        for data in part.about["data"] if part.about["scale"] == "paper" else ():
            known = board.data.get(data["token"], data["sha256"])
            if known != data["sha256"]:
                raise FedreproError(
                    f"{key} is of other data called {data['token']} than the leaderboard: "
                    f"{data['sha256']}, not {known}"
                )
        for scene, by_label in _scenes(part, board.each_trial):
            there = entries.get(scene, {})
            if computed == HERE:
                for needed in (board.baseline, board.ceiling, board.line):
                    if needed not in by_label:
                        raise FedreproError(
                            f"{key} has no '{needed}', which the leaderboard compares all methods "
                            "with; add it to the exhibit"
                        )
            elif double := by_label.keys() & there.keys():
                raise FedreproError(
                    f"an entry is called '{min(double)}', as another method of the leaderboard: "
                    "give it another label"
                )
            elif not there:
                continue
            entries[scene] = there | by_label
            for description in part.about["methods"]:
                label = description["label"]
                if label in by_label and (scene.starts, label) not in methods:
                    methods[scene.starts, label] = Method(
                        label,
                        _class(description, by_label[label]),
                        "; ".join(description["needs"].values()) or NOTHING_MORE,
                        description.get("sends") or "",
                        description.get("criterion") or "",
                        computed,
                    )
    return BoardData(board, entries, methods)


def _scenes(
    part: ExhibitFiles, each_trial: bool
) -> Iterator[tuple[BoardScenario, dict[str, MethodResult]]]:
    """Yield (scenario, {label: result}) of a table; if `each_trial`, trials select the settings."""
    about, choice = part.about, part.table(".choice.csv")
    accuracies = of_settings(part.metrics) if len(choice) else []
    shared = about["scenario"]["training"]["values"]["shared_init"] == "true"
    title = ", ".join(data["title"] for data in about["data"])
    name = about["key"].partition("/")[2]
    for (case, clients), rows in part.numbers.groupby(["case", "clients"], sort=False):
        tried = choice
        if len(choice):
            tried = choice[(choice["case"] == case) & (choice["clients"] == clients)]
        results = {}
        for label, own in rows.groupby("method", sort=False):
            if ((own["metric"] == "accuracy") & (own["split"] == "test")).any():
                tried_of = tried[tried["method"] == label] if len(tried) else tried
                results[str(label)] = _entry(own, tried_of, accuracies, each_trial)
        clients = int(rows["clients"].iloc[0])
        yield BoardScenario(STARTS[not shared], title, str(case), clients, name), results


def _entry(
    rows: pd.DataFrame, tried: pd.DataFrame, measured: Sequence[Accuracies], each_trial: bool
) -> MethodResult:
    reached = rows[(rows["metric"] == "accuracy") & (rows["split"] == "test")].iloc[0]
    known = rows[rows["metric"].isin((*COSTS, *SECONDS))]
    failed = FAILED in set(rows["metric"])  # in all trials, it has no costs
    costs = dict.fromkeys(COSTS, math.nan) if failed else {"passes": 0.0, "bytes_down": 0.0}
    costs |= dict(zip(known["metric"], known["mean"].astype(float), strict=True))
    accuracy = np.array(str(reached["by_trial"]).split(), float)
    best, in_each = in_each_trial(tried, measured) if len(tried) > 1 else ([], accuracy)
    return MethodResult(
        in_each if each_trial else accuracy,
        str(reached["setting"]),
        max(1, len(tried)),
        costs,
        in_each,
        ends_of(tried, best if each_trial else chosen_of(tried)),
    )


def _class(description: Mapping[str, Any], entry: MethodResult) -> str:
    """Return a method's class, such as "one model", "public data" or "reference" (a bound).

    `description` is the method's entry in an exhibit's json, with its needs; `entry` has its costs.
    """
    if description["reference"] or description["kind"] == "control":
        return "reference"
    if any(need.startswith("public") for need in description["needs"]):
        return "public data"
    if entry.costs.get("forward_passes", 1) > 1:
        return SEVERAL
    return "extra exchanges" if entry.costs.get("rounds", 1) > 1 else "one model"


def board_rows(ground: BoardData) -> list[BoardRow]:
    """Compute a leaderboard's rows: by first weights, data set, class of method, and group."""
    rows: list[BoardRow] = []
    for starts in STARTS:
        labels = [label for start, label in ground.methods if start == starts]
        scenes = [scene for scene in ground.entries if scene.starts == starts]
        titles = [*dict.fromkeys(scene.data for scene in scenes)]
        for data in [*titles, ALL] if len(titles) > 1 else titles:
            there = [scene for scene in scenes if data in (ALL, scene.data)]
            for kind in CLASSES:
                own = [label for label in labels if ground.methods[starts, label].kind == kind]
                rows += _class_rows(ground, starts, data, there, own)
    return rows


def _class_rows(
    ground: BoardData, starts: str, data: str, there: Sequence[BoardScenario], labels: Sequence[str]
) -> list[BoardRow]:
    """Rank `labels`, methods of one class, on the scenarios `there` of `data` (or "all").

    `starts` is "one start" if clients had equal first weights, else "different starts".
    """
    methods = {label: ground.methods[starts, label] for label in labels}

    def of(kind: str) -> list[BoardScenario]:
        known = [m.label for m in methods.values() if m.computed == kind]
        with_score = [scene for scene in there if scene in ground.scenes]
        return [s for s in with_score if any(label in ground.entries[s] for label in known)]

    # the scenarios of what was computed here, or else of entries
    scenes = of(HERE) or of(VERIFIED) or of(REPORTED)
    units = len({scene.data for scene in scenes}) if data == ALL else len(scenes)
    ranked = all(method.kind != "reference" for method in methods.values())
    compared = ranked and units >= FEWEST
    drawn = "data sets" if data == ALL else "scenarios"
    drawn = f"{drawn} and trials" if units >= FEWEST else "trials"
    rows: dict[str, BoardRow] = {}
    for label, method in methods.items():
        own = [scene for scene in there if label in ground.entries[scene]]
        if not own:
            continue
        scored = [scene for scene in scenes if scene in own]
        runs = np.concatenate([ground.entries[scene][label].accuracy for scene in own])
        failed, reason = int((~np.isfinite(runs)).sum()), ""
        if failed:
            reason = f"{failed} of {len(runs)} runs failed"
        elif len(scored) < len(scenes):
            reason = f"run in {len(scored)} of {len(scenes)} scenarios"
        elif not scenes:
            reason = "no scenario has a score"
        place = method, starts, data, drawn
        rows[label] = BoardRow(*place, None, None, None, reason, scored, failed, len(runs))
    reported = [label for label in rows if methods[label].computed == REPORTED]
    whole = [one for one, row in rows.items() if not (row.unranked_reason or one in reported)]
    for label in reported:
        row, remark = rows[label], "reported by others, not verified"
        if not row.unranked_reason:
            found = _standings(ground, row, scenes, [*whole, label])
            (would,) = (one for one in found if one.method == label)
            remark += f"; it would have score {would.score.value:.2f}"
            if compared:
                remark += f", group {would.group}, rank {would.rank_low} to {would.rank_high}, "
                remark += f"and be {would.verdict} against {ground.board.line}"
        remark = "; ".join(filter(None, (remark, row.unranked_reason)))
        rows[label] = replace(row, unranked_reason=remark)
    placed = []
    for standing in _standings(ground, rows[whole[0]], scenes, whole) if whole else ():
        row, label = rows.pop(standing.method), standing.method
        pairs = [[ground.scores(s, m).mean() for m in (label, ground.board.line)] for s in scenes]
        each_trial = score_table(ground, row, scenes, label, each_trial=True)
        placed.append(
            replace(
                row,
                standing=standing,
                each_trial=float(each_trial.mean()),
                ahead=sum(own > line for own, line in pairs),
                unranked_reason="" if ranked else "a bound, which has no rank",
            )
        )
    return [*placed, *sorted(rows.values(), key=lambda row: row.method.label)]


def _standings(
    ground: BoardData, row: BoardRow, scenes: Sequence[BoardScenario], labels: Sequence[str]
) -> list[Standing]:
    """Rank the methods `labels` of a class by tests of all pairs of them and the best client.

    `row`, any row of the class, says which data set; the scores are of the scenarios `scenes`.
    """
    units = row.drawn != "trials"
    compared = units and row.method.kind != "reference"
    names = [*sorted(labels), ground.board.line]
    tables = {name: score_table(ground, row, scenes, name) for name in names}
    usual: dict[str, np.ndarray] = {}
    if compared:
        means = [[ground.scores(s, name).mean() for s in scenes] for name in names]
        usual = usual_tests(np.array(means))
        other = [score_table(ground, row, scenes, name, each_trial=True) for name in names]
        usual[EACH_TRIAL] = chances_of(other) <= LEVEL
    line = tables[ground.board.line]
    scores = {label: tables[label] for label in labels}
    return standings(scores, line, units=units, ranked=compared, usual=usual)


def score_table(
    ground: BoardData,
    row: BoardRow,
    scenes: Sequence[BoardScenario],
    label: str,
    each_trial: bool = False,
) -> np.ndarray:
    """Return a method's scores, float64 (U, T): 0 is FedAvg, 1 the model of all data in one place.

    U are scenarios, or data sets if `row` is of all data; T are trials. With `each_trial`, each
    trial selects parameter values of its own.
    """
    tables = [ground.scores(scene, label, each_trial=each_trial) for scene in scenes]
    if len({len(table) for table in tables}) > 1:
        raise FedreproError("the exhibits of a leaderboard have unlike numbers of trials")
    if row.data != ALL:
        return np.stack(tables)
    by_data: dict[str, list[np.ndarray]] = {}
    for scene, table in zip(scenes, tables, strict=True):
        by_data.setdefault(scene.data, []).append(table)
    return np.stack([np.mean(own, axis=0) for own in by_data.values()])
