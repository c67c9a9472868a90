"""Compute a leaderboard (scores, ranks, costs, as data frames) from its tables with results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedrepro.core.errors import FedreproError
from fedrepro.numbers import significance_ranking as ranking
from fedrepro.numbers import tables_and_selection as selection
from fedrepro.numbers.exhibit_files import ExhibitFiles
from fedrepro.numbers.trial_statistics import FAILED, over_trials
from fedrepro.planning.config_files import Board

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
PLACE = ("starts", "data", "case", "clients")
Scenes = Sequence["BoardScenario"]
Results = dict[str, "MethodResult"]  # by label
ENDS = ("", "_low", "_high")  # of the names of columns with an estimate


@dataclass(frozen=True)
class BoardScenario:
    """A scenario of a leaderboard: data set, partition (`case`, as "Dirichlet 0.1"), clients.

    starts: "one start" of equal initial weights, or "different starts". exhibit: its table's name.
    """

    starts: str
    data: str
    case: str
    clients: int
    exhibit: str

    @property
    def name(self) -> str:
        return f"{self.data}, {self.case}, {self.clients} clients"


class MethodResult(NamedTuple):
    """The accuracy and costs of a method in one scenario; NaN where a run failed.

    accuracy: on test examples, (T,) by trial. setting: selected parameter values as text. tried:
    how many were compared. costs: {metric: number}. in_each_trial: accuracy, (T,), if each trial
    selects its own. ends: {parameter: (is lowest tried, is highest)} by selection (one, or T).
    """

    accuracy: np.ndarray
    setting: str
    tried: int
    costs: Mapping[str, float]
    in_each_trial: np.ndarray
    ends: Sequence[selection.Ends]


@dataclass(frozen=True)
class Method:
    """A method on a leaderboard, described in words.

    kind: its class, of CLASSES. sees: the information on clients that it needs. sends: what
    clients send besides models. chosen_by: the rule that selects its parameter values. computed:
    "computed here"; for a submitted method "verified" if we computed equal bytes, else "reported".
    """

    label: str
    kind: str
    sees: str
    sends: str
    chosen_by: str
    computed: str


@dataclass(frozen=True)
class BoardData:
    """The results of a leaderboard by scenario and method's label, and descriptions of its methods.

    board: the leaderboard's settings. methods: a description by (`BoardScenario.starts`, label).
    """

    board: Board
    entries: Mapping[BoardScenario, Mapping[str, MethodResult]]
    methods: Mapping[tuple[str, str], Method]

    def _bounds(self, scene: BoardScenario) -> tuple[np.ndarray, np.ndarray]:
        entries = self.entries[scene]
        return entries[self.board.baseline].accuracy, entries[self.board.ceiling].accuracy

    @cached_property
    def scenes(self) -> list[BoardScenario]:
        """List the scored scenarios: pooled training beats FedAvg by at least `board.least_gap`."""
        ends = {scene: self._bounds(scene) for scene in self.entries}
        return [s for s, (low, high) in ends.items() if (high - low).mean() >= self.board.least_gap]

    def scores(self, scene: BoardScenario, label: str, *, each_trial: bool = False) -> np.ndarray:
        """Return scores of method `label`, (T,) by trial: 0 is FedAvg, 1 training on pooled data.

        With `each_trial`, each trial selects parameter values of its own.
        """
        entry = self.entries[scene][label]
        accuracy = entry.in_each_trial if each_trial else entry.accuracy
        return ranking.scores_of(accuracy, *self._bounds(scene))

    def score_table(
        self, scenes: Sequence[BoardScenario], label: str, data: str, *, each_trial: bool = False
    ) -> np.ndarray:
        """Return `scores` of `label` (scenes, trials), or for `data` "all" means (sets, trials)."""
        tables = [self.scores(scene, label, each_trial=each_trial) for scene in scenes]
        if len({len(table) for table in tables}) > 1:
            raise FedreproError("the exhibits of a leaderboard have unlike numbers of trials")
        if data != ALL:
            return np.stack(tables)
        by_data: dict[str, list[np.ndarray]] = {}
        for scene, table in zip(scenes, tables, strict=True):
            by_data.setdefault(scene.data, []).append(table)
        return np.stack([np.mean(own, axis=0) for own in by_data.values()])


@dataclass(frozen=True)
class BoardRow:
    """A row of a leaderboard: a method on one data set, or on all if `data` is "all".

    starts: as in `BoardScenario`. drawn: what intervals take as random, as "scenarios and trials".
    unranked_reason: why it has no rank, or "". scenes: scenarios of its score. runs, failed: how
    many trials, and failed ones, in all scenarios. standing: score and rank, None if unscored.
    """

    method: Method
    starts: str
    data: str
    drawn: str
    unranked_reason: str
    scenes: Scenes
    failed: int
    runs: int
    standing: ranking.Standing | None = None


def board_data(
    board: Board, parts: Sequence[ExhibitFiles], entered: Sequence[tuple[str, ExhibitFiles]] = ()
) -> BoardData:
    """Collect the results of a leaderboard from its tables `parts`, and from submitted methods.

    `entered` has ("verified" if we computed equal bytes, else "reported"; submitted table). Raise
    FedreproError if a table lacks a method to compare with, is of other data or repeats a label.
    """
    entries: dict[BoardScenario, Results] = {}
    methods: dict[tuple[str, str], Method] = {}
    failed = dict(methods)
    for computed, part in [*((HERE, part) for part in parts), *entered]:
        key = part.about["key"]
        seed, due = (one.about.get("seed") for one in (part, parts[0]))
        if seed != due:
            said = f"{key} is of seed {seed}, not {due}"
            raise FedreproError(f"{said} as the leaderboard: compute it with that seed")
        for data in part.about["data"] if part.about["scale"] == "paper" else ():
            known = board.data.get(data["token"], data["sha256"])
            if known != data["sha256"]:
                said = f"{key} is of other data called {data['token']} than the leaderboard"
                raise FedreproError(f"{said}: {data['sha256']}, not {known}")
        for scene, by_label in _scenes(part, board.each_trial):
            there = entries.get(scene, {})
            if computed == HERE:
                for needed in (board.baseline, board.ceiling, board.line):
                    if needed not in by_label:
                        said = f"{key} has no '{needed}', which the leaderboard compares all"
                        raise FedreproError(f"{said} methods with; add it to the exhibit")
            elif double := by_label.keys() & there.keys():
                said = f"an entry is called '{min(double)}', as another method of the leaderboard"
                raise FedreproError(f"{said}: give it another label")
            elif not there:
                continue
            entries[scene] = there | by_label
            for said in part.about["methods"]:
                if (label := said["label"]) in by_label:
                    kind = _class(said, by_label[label].costs)
                    sees = "; ".join(said["needs"].values()) or NOTHING_MORE
                    sends, chosen_by = (said.get(key) or "" for key in ("sends", "criterion"))
                    one = Method(label, kind, sees, sends, chosen_by, computed)
                    if math.isfinite(by_label[label].costs.get("rounds", 0.0)):  # or all failed
                        methods.setdefault((scene.starts, label), one)
                    failed.setdefault((scene.starts, label), one)
    return BoardData(board, entries, failed | methods)


def _scenes(part: ExhibitFiles, each_trial: bool) -> Iterator[tuple[BoardScenario, Results]]:
    """Yield (scenario, {label: result}) of a table; `each_trial`: settings selected per trial."""
    about, tried = part.about, part.table(".choice.csv")
    accuracies = selection.of_settings(part.metrics) if len(tried) else []
    shared = about["scenario"]["training"]["values"]["shared_init"] == "true"
    title = ", ".join(data["title"] for data in about["data"])
    name = about["key"].partition("/")[2]
    for place, rows in part.numbers.groupby(["case", "clients"], sort=False):
        case, clients = str(place[0]), int(str(place[1]))
        results = {}
        here = tried[(tried["case"] == case) & (tried["clients"] == clients)]
        for label, own in rows.groupby("method", sort=False):
            if ((own["metric"] == "accuracy") & (own["split"] == "test")).any():
                of_method = here[here["method"] == label]
                results[str(label)] = _entry(own, of_method, accuracies, each_trial)
        yield BoardScenario(STARTS[not shared], title, case, clients, name), results


def _entry(
    rows: pd.DataFrame,
    tried: pd.DataFrame,
    measured: Sequence[selection.Accuracies],
    each_trial: bool,
) -> MethodResult:
    reached = rows[(rows["metric"] == "accuracy") & (rows["split"] == "test")].iloc[0]
    known = rows[rows["metric"].isin((*COSTS, *SECONDS))]
    failed = FAILED in set(rows["metric"])  # in all trials, it has no costs
    costs = dict.fromkeys(COSTS, math.nan) if failed else {"passes": 0.0, "bytes_down": 0.0}
    for _, row in known.iterrows():  # of the trials that did not fail
        values = np.array(str(row["by_trial"]).split(), float)
        found = values[np.isfinite(values)].mean() if np.isfinite(values).any() else math.nan
        costs[row["metric"]] = float(found if math.isnan(row["mean"]) else row["mean"])
    accuracy = np.array(str(reached["by_trial"]).split(), float)
    best, in_each = selection.in_each_trial(tried, measured) if len(tried) > 1 else ([], accuracy)
    chosen = np.flatnonzero(tried["chosen"] == "true").tolist()
    ends = selection.ends_of(tried, best if each_trial else chosen)
    shown = in_each if each_trial else accuracy
    return MethodResult(shown, str(reached["setting"]), max(1, len(tried)), costs, in_each, ends)


def _class(description: Mapping[str, Any], costs: Mapping[str, float]) -> str:
    """Return a method's class, of CLASSES, by its `description` in an exhibit's json and costs."""
    if description["reference"] or description["kind"] == "control":
        return "reference"
    if any(need.startswith("public") for need in description["needs"]):
        return "public data"
    if costs.get("forward_passes", 1) > 1:
        return SEVERAL
    return "extra exchanges" if costs.get("rounds", 1) > 1 else "one model"


def board_rows(ground: BoardData) -> list[BoardRow]:
    """Return a row per method and data set (or all), ranked among methods of one class in `ground`.

    Methods whose clients start from equal weights are ranked apart from those of different starts.
    """
    rows: list[BoardRow] = []
    for starts in STARTS:
        methods = [method for (start, _), method in ground.methods.items() if start == starts]
        scenes = [scene for scene in ground.entries if scene.starts == starts]
        titles = [*dict.fromkeys(scene.data for scene in scenes)]
        for data in [*titles, ALL] if len(titles) > 1 else titles:
            there = [scene for scene in scenes if data in (ALL, scene.data)]
            for kind in CLASSES:
                own = {method.label: method for method in methods if method.kind == kind}
                rows += _class_rows(ground, starts, data, there, own)
    return rows


def _class_rows(
    ground: BoardData, starts: str, data: str, there: Scenes, methods: Mapping[str, Method]
) -> list[BoardRow]:
    """Return rows of `methods`, of one class, ranked in scenarios `there` of `data` (or ALL)."""
    entries, line = ground.entries, ground.board.line

    def of(kind: str) -> list[BoardScenario]:
        known = {label for label, method in methods.items() if method.computed == kind}
        return [s for s in there if s in ground.scenes and known & entries[s].keys()]

    # the scenarios of what was computed here, or else of entries
    scenes = of(HERE) or of(VERIFIED) or of(REPORTED)
    units = len({scene.data for scene in scenes}) if data == ALL else len(scenes)
    several = units >= ranking.FEWEST
    bounds = any(method.kind == "reference" for method in methods.values())
    ranked = several and not bounds
    drawn = ("data sets" if data == ALL else "scenarios") + " and trials" if several else "trials"
    rows: dict[str, BoardRow] = {}
    for label, method in methods.items():
        own = [scene for scene in there if label in entries[scene]]
        if not own:
            continue
        scored = [scene for scene in scenes if scene in own]
        runs = np.concatenate([entries[scene][label].accuracy for scene in own])
        failed = int((~np.isfinite(runs)).sum())
        reasons = ["reported by others, not verified"] if method.computed == REPORTED else []
        if failed:
            reasons.append(f"{failed} of {len(runs)} runs failed")
        elif len(scored) < len(scenes):
            reasons.append(f"run in {len(scored)} of {len(scenes)} scenarios")
        elif not scenes:
            reasons.append("no scenario has a score")
        reason = "; ".join(reasons)
        rows[label] = BoardRow(method, starts, data, drawn, reason, scored, failed, len(runs))
    whole = sorted(label for label, row in rows.items() if not row.unranked_reason)
    # all pairs of these and the best client are tested
    scores = {name: ground.score_table(scenes, name, data) for name in (*whole, line) if whole}
    usual: dict[str, np.ndarray] = {}
    if ranked and whole:
        names = [*whole, line]
        means = [[ground.scores(s, name).mean() for s in scenes] for name in names]
        other = [ground.score_table(scenes, name, data, each_trial=True) for name in names]
        usual = ranking.usual_tests(np.array(means))
        usual[EACH_TRIAL] = ranking.chances_of(other) <= ranking.LEVEL
    rated = {label: scores[label] for label in whole}
    found = ranking.standings(rated, scores.get(line), units=several, ranked=ranked, usual=usual)
    why = "a bound, which has no rank" if bounds else ""
    placed = [replace(rows.pop(s.method), standing=s, unranked_reason=why) for s in found]
    return [*placed, *sorted(rows.values(), key=lambda row: row.method.label)]


def leaderboard(ground: BoardData, rows: Sequence[BoardRow]) -> pd.DataFrame:
    """Return a data frame, a row for each of `rows`: score, ranks, tests, and costs by `ground`."""
    return _whose(pd.DataFrame([_row(ground, row) for row in rows]))


def _whose(table: pd.DataFrame) -> pd.DataFrame:
    return table if set(table["computed"]) - {HERE} else table.drop(columns="computed")


def _row(ground: BoardData, row: BoardRow) -> dict[str, Any]:
    label, standing, line = row.method.label, row.standing, ground.board.line.replace(" ", "_")
    scenes = [s for s in ground.entries if s.starts == row.starts and row.data in (ALL, s.data)]
    costs = [_costs_there(ground, s, label) for s in scenes if label in ground.entries[s]]
    entries = [ground.entries[s][label] for s in scenes if label in ground.entries[s]]
    tests = {f"group_{t.lower().replace(' ', '_')}": t for t in (*ranking.USUAL, EACH_TRIAL)}
    against = standing if label != ground.board.line else None
    each_trial = ahead = None
    if standing:
        each_trial = ground.score_table(row.scenes, label, row.data, each_trial=True).mean()
        gaps = [ground.scores(s, label) - ground.scores(s, ground.board.line) for s in row.scenes]
        ahead = sum(gap.mean() > 0 for gap in gaps) if against else None
    place = {"starts": row.starts, "data": row.data, "class": row.method.kind}
    reached: dict[str, float | None] = {}
    for s, there in ground.entries.items():
        known = s in scenes and label in there
        name = s.name if s.starts == STARTS[0] else f"{s.name}, {s.starts}"
        reached[name] = float(there[label].accuracy.mean()) if known else None
    return {
        **place,
        "group": standing and standing.group,
        "method": label,
        "computed": row.method.computed,
        **_ends("score", standing and standing.score),
        "score_each_trial": each_trial,
        **{key: getattr(standing, key, None) for key in ("rank_low", "rank_high")},
        "not_told_apart": "; ".join(standing.not_significantly_different) if standing else "",
        **_ends(f"above_{line}", against and against.above),
        **_ends(f"above_{line}_trials", against and against.above_trials, ENDS[1:]),
        "scenarios_above": ahead,
        f"beside_{line}_chance": standing and standing.chance,
        f"beside_{line}": standing.verdict if standing else "",
        "drawn_again": row.drawn,
        **{name: standing and standing.usual.get(test) for name, test in tests.items()},
        "scenarios": len(row.scenes),
        "runs": row.runs,
        "failed": row.failed,
        "without_rank": row.unranked_reason,
        **{key: float(np.mean([own[key] for own in costs])) for key in costs[0]},
        "settings_tried": max(entry.tried for entry in entries),
        "ends_of_grid": selection.ends_in_words([ends for entry in entries for ends in entry.ends]),
        "sees": row.method.sees,
        "clients_also_send": row.method.sends,
        "chosen_by": row.method.chosen_by,
        **reached,
    }


def _ends(name: str, found: object, ends: Sequence[str] = ENDS) -> dict[str, float | None]:
    return {f"{name}{end}": getattr(found, end[1:] or "value", None) for end in ends}


def _costs_there(ground: BoardData, scene: BoardScenario, label: str) -> dict[str, float]:
    """Return {cost: number} of a method in `scene`; `…_with_choice` includes selection."""
    entries = ground.entries[scene]
    costs, plain = entries[label].costs, entries[ground.board.baseline].costs
    up, down = (costs[key] / plain["bytes_up"] for key in ("bytes_up", "bytes_down"))
    exchanges, tried, networks = costs["rounds"], entries[label].tried, costs["forward_passes"]
    chosen = exchanges, up, down
    if label == ground.board.line:
        chosen = 2.0, 1.0, float(scene.clients)
    elif tried > 1:
        asked = tried if exchanges > 1 else 1
        candidates = costs["parameters"] / plain["parameters"] * (1 if networks > 1 else tried)
        chosen = asked * exchanges + 1, asked * up, asked * down + candidates
    return {
        "bytes_up": up,
        "megabytes_up_a_client": costs["bytes_up"] / scene.clients / 1e6,
        "bytes_down": down,
        "exchanges": exchanges,
        "exchanges_with_choice": chosen[0],
        "bytes_up_with_choice": chosen[1],
        "bytes_down_with_choice": chosen[2],
        "passes": costs["passes"],
        "networks": networks,
        "parameters": costs["parameters"],
    }


def scenarios(ground: BoardData, rows: Sequence[BoardRow]) -> pd.DataFrame:
    """Return metrics of the methods in `rows`, a row per scenario (or "all"), method and metric."""
    records: list[dict[str, Any]] = []
    computed = {(row.starts, row.method.label): row.method.computed for row in rows}

    def add(metric: str, values: np.ndarray, **place: Any) -> None:
        split = "test" if metric == "accuracy" else ""
        records.append({**place, "metric": metric, "split": split, **over_trials(values.tolist())})

    for scene, entries in ground.entries.items():
        place = {key: getattr(scene, key) for key in PLACE}
        for label, entry in entries.items():
            if (scene.starts, label) not in computed:
                continue
            own = ground.board.each_trial and entry.tried > 1  # a setting in each trial
            base = {**place, "method": label, "setting": "" if own else entry.setting}
            add("accuracy", entry.accuracy, **base)
            if scene in ground.scenes:
                add("score", ground.scores(scene, label), **base)
            costs = _costs_there(ground, scene, label)
            records += [base | {"metric": name, "mean": costs[name]} for name in COSTS_TOLD]
    for row in (row for row in rows if row.standing):
        place = {"starts": row.starts, "data": row.data, "case": ALL, "clients": None}
        base = {**place, "method": row.method.label, "setting": ""}
        scores = ground.score_table(row.scenes, row.method.label, row.data)
        add("score", scores.mean(axis=0), **base)
        for metric in ("rank_low", "rank_high", "group"):
            if (value := getattr(row.standing, metric)) is not None:
                add(metric, np.array([float(value)]), **base)
    columns = [*PLACE, "method", "metric", "split", "mean", "sd", "trials", "by_trial", "setting"]
    table = pd.DataFrame(records, columns=columns)
    whose = [computed[place] for place in zip(table["starts"], table["method"], strict=True)]
    return _whose(table.assign(computed=whose))


def seconds(ground: BoardData, rows: Sequence[BoardRow]) -> pd.DataFrame:
    """Return a data frame of mean seconds over scenarios, for server and clients of each method."""
    records = []
    for starts, label in dict.fromkeys((row.starts, row.method.label) for row in rows):
        entries = [e[label] for s, e in ground.entries.items() if s.starts == starts and label in e]
        for metric in SECONDS:
            known = [entry.costs[metric] for entry in entries if metric in entry.costs]
            if known:
                records.append((starts, label, metric, float(np.mean(known)), len(known)))
    return pd.DataFrame(records, columns=["starts", "method", "metric", "mean", "scenarios"])
