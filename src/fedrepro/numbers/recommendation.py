"""Recommend methods: the best in those scenarios of a leaderboard that are most like one's clients.

Distance counts doublings of the number of clients, and of Dirichlet's alpha, which is 10 for iid.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.api import NEEDS
from fedrepro.core.errors import FedreproError, unknown
from fedrepro.numbers.leaderboard import (
    ALL,
    CLASSES,
    COSTS_TOLD,
    NOTHING_MORE,
    REPORTED,
    SEVERAL,
    STARTS,
)
from fedrepro.numbers.significance_ranking import standings
from fedrepro.planning.exhibit_config import SCALES
from fedrepro.planning.figure_interface import is_number

IID, LABELS = "iid", "labels"
IID_ALPHA = 10.0
UNLIKE = 3.0  # doublings between Dirichlet shares and a few labels a client
ALPHA = re.compile(r"Dirichlet ([0-9.]+)")
PLACE = ["data", "case", "clients"]
LINES = ("best client", "FedAvg", "pooled training")  # what the others are read against
# what a method may see where clients send nothing but models and how many examples they have
SAYS = ("sees", "clients_also_send")
WITH_MODELS = {"", NOTHING_MORE, *(NEEDS[n] for n in ("example_counts", "start", "public_inputs"))}


@dataclass(frozen=True)
class Situation:
    """The federation that somebody wants a method for.

    skew: alpha of a Dirichlet partition, "iid", or "labels" for a few labels per client. public:
    whether the server has images of another data set. one_start: whether all clients began from the
    same weights. only_models: whether they send nothing but models, and numbers of examples.
    """

    clients: int
    skew: str
    exchanges: int = 1
    public: bool = False
    one_start: bool = True
    only_models: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "skew", self.skew.lower())
        words = self.skew in (IID, LABELS)
        if not (words or (is_number(self.skew) and 0 < float(self.skew) < math.inf)):
            raise FedreproError(
                f"--skew is '{self.skew}': give an alpha of Dirichlet's distribution above 0, "
                f"such as 0.1, or {IID}, or {LABELS} for a few labels a client"
            )
        if self.clients < 1 or self.exchanges < 1:
            raise FedreproError("--clients and --exchanges are whole numbers from 1")


@dataclass(frozen=True)
class RecommendedMethod:
    """A method with its mean score and 95 % interval in the scenarios nearest to a federation.

    accuracy: in each scenario, NaN where it was not run. costs: columns of the leaderboard by name.
    """

    kind: str
    method: str
    score: float
    low: float
    high: float
    accuracy: Sequence[float]
    costs: Mapping[str, object]


@dataclass(frozen=True)
class Recommendation:
    """The methods recommended for somebody's clients, from the most similar leaderboard scenarios.

    doublings: the `distance` of these scenarios from the federation, in powers of two. choices:
    methods of each class that no test separates from its best. lines: the baselines LINES. more:
    methods that score higher by more exchanges. partly: {method that was not run in all scenarios:
    in how many}. beats_best_client: methods with one model that score above the best client by more
    than chance, over trials. board: the leaderboard's key.
    """

    scenarios: Sequence[str]
    doublings: float
    choices: Sequence[RecommendedMethod]
    lines: Sequence[RecommendedMethod]
    more: Sequence[RecommendedMethod]
    partly: Mapping[str, int]
    beats_best_client: frozenset[str]
    board: str

    @property
    def best_client_leads(self) -> bool:
        """Return whether the best client's own model scores above all recommended single models."""
        line = next((entry.score for entry in self.lines if entry.method == LINES[0]), -math.inf)
        return bool(self.single_models) and line > max(one.score for one in self.single_models)

    @property
    def single_models(self) -> list[RecommendedMethod]:
        """Return the recommended methods that make one model."""
        return [choice for choice in self.choices if choice.kind != SEVERAL]


def newest_board(folder: Path, paper: str = "arena") -> str:
    """Return the key of a paper's newest leaderboard in `folder` that has all its tables.

    A leaderboard is newer than the one that it supersedes. "arena/1" if none is there.
    """
    paths = [path for path in (folder / paper).glob("*.json") if path.stem.isdecimal()]
    abouts = {f"{paper}/{p.stem}": json.loads(p.read_text(encoding="utf-8")) for p in paths}
    found = f"{paper}/1"
    for _ in abouts:
        found = later_board(found, abouts) or found
    return found


def later_board(key: str, abouts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the key of the complete leaderboard that supersedes leaderboard `key`, or "".

    `abouts` are the contents of the json files of a paper's leaderboards, by key.
    """
    version = key.partition("/")[2]
    later = (k for k, about in abouts.items() if about["board"].get("supersedes") == version)
    return next((k for k in later if not abouts[k]["missing"]), "")


def recommend(wanted: Situation, folder: Path, board: str = "") -> Recommendation:
    """Recommend methods from a leaderboard in a folder of reports, such as reports/record/paper.

    `wanted` describes the clients, `board` names the leaderboard; by default the newest. Raise
    FedreproError if it is missing, or lacks scenarios with this start of clients.
    """
    if folder.name not in SCALES:
        raise unknown("scale", folder.name, SCALES)
    board = board or newest_board(folder)
    paths = folder / f"{board}.csv", folder / f"{board}.scenarios.csv"
    if not all(path.is_file() for path in paths):
        raise FedreproError(
            f"{board} is not in {folder}: name a folder that has it by --reports and "
            f"--scale, such as --reports reports --scale quick after a `make`"
        )
    table, scenarios = map(pd.read_csv, paths)
    starts = STARTS[0] if wanted.one_start else STARTS[1]
    table = table[table["starts"] == starts]
    table = table[table["data"] == table["data"].tail(1).squeeze()]  # all data sets together
    if "computed" in table:  # what others report, and nobody computed again, is not recommended
        table = table[table["computed"] != REPORTED]
    single = scenarios[(scenarios["starts"] == starts) & (scenarios["case"] != ALL)]
    scored = single[single["metric"] == "score"]
    if scored.empty:
        raise FedreproError(f"{board} has no scenario with a score of clients of {starts}")
    places = scored[PLACE].drop_duplicates()
    pairs = zip(places["case"], places["clients"].astype(int), strict=True)
    distances = np.array([distance(wanted, *pair) for pair in pairs])
    near = places[distances <= distances.min() + 1e-9]
    there = single.merge(near.reset_index(), on=PLACE)
    accuracy = there[there["metric"] == "accuracy"]
    accuracy = accuracy.pivot_table(values="mean", index="method", columns="index")
    accuracy = accuracy.reindex(columns=near.index)
    # methods with what they cost in these scenarios, in the place of means over all of them;
    # exchanges are the most that one of them takes
    cost_rows = there[there["metric"].isin(COSTS_TOLD)]
    costs = cost_rows.pivot_table(values="mean", index="method", columns="metric")
    if "exchanges" in costs:
        exchanges = cost_rows[cost_rows["metric"] == "exchanges"]
        costs["exchanges"] = exchanges.groupby("method")["mean"].max()
    table = table.set_index("method")
    table = costs.reindex(table.index).combine_first(table)
    left_out = ("reference", *([] if wanted.public else ["public data"]))
    classes = [name for name in CLASSES if name not in left_out]
    open_to = table[table["class"].isin(classes)]
    if wanted.only_models:
        open_to = open_to[[_models_suffice(row) for row in open_to.to_dict("records")]]
    names = [f"{row.data}, {row.case}, {row.clients:g} clients" for row in near.itertuples()]

    def taken(rows: pd.DataFrame, groups: int | None = None) -> list[RecommendedMethod]:
        scores = _scores(there[there["method"].isin(rows.index)], near)
        return [
            RecommendedMethod(
                str(rows.loc[standing.method, "class"]),
                *(standing.method, standing.score.value, standing.score.low, standing.score.high),
                accuracy.loc[[standing.method]].to_numpy()[0].tolist(),
                {str(key): value for key, value in rows.loc[standing.method].to_dict().items()},
            )
            for standing in standings(scores, units=False)
            if groups in (None, standing.group)
        ]

    few = open_to[open_to["exchanges"] <= wanted.exchanges]
    choices = [one for kind in classes for one in taken(few[few["class"] == kind], 1)]
    best = max((choice.score for choice in choices), default=0.0)
    others = taken(open_to[open_to["exchanges"] > wanted.exchanges])
    more = [other for other in others if other.score > best]
    lines = taken(table[table.index.isin(LINES)])
    totals = there[there["metric"] == "score"].groupby("method").size()
    run = {str(name): int(totals.get(name, 0)) for name in few.index}
    partly = {name: count for name, count in run.items() if count < len(names)}
    one_model = few.index[few["class"] != SEVERAL]
    scores = _scores(there[there["method"].isin([*one_model, LINES[0]])], near)
    line = scores.pop(LINES[0], None)
    tested = standings(scores, line, units=False) if line is not None else []
    better = frozenset(standing.method for standing in tested if standing.verdict == "better")
    far = float(distances.min())
    return Recommendation(names, far, choices, lines, more, partly, better, board)


def _models_suffice(row: Mapping[Hashable, Any]) -> bool:
    """Return whether a leaderboard `row` has a method that needs only models and example counts."""
    sees, sends = ("" if pd.isna(row.get(name)) else str(row[name]) for name in SAYS)
    return not sends and WITH_MODELS.issuperset(sees.split("; "))


def distance(wanted: Situation, case: str, clients: int) -> float:
    """Return |log2(ratio of clients)| + |log2(ratio of alphas)| between federation and scenario.

    `case` is the scenario's partition in words: "Dirichlet 0.1" has alpha 0.1; with "label" it
    deals out few labels, which is 3 from any alpha; all others are iid (alpha 10).
    """
    doublings = abs(math.log2(wanted.clients / clients))
    alpha = ALPHA.search(case)
    of_case = LABELS if "label" in case else alpha[1] if alpha else IID
    if LABELS in (wanted.skew, of_case):
        return doublings + UNLIKE * (wanted.skew != of_case)
    alphas = [IID_ALPHA if skew == IID else float(skew) for skew in (wanted.skew, of_case)]
    return doublings + abs(math.log2(min(alphas[0], IID_ALPHA) / min(alphas[1], IID_ALPHA)))


def _scores(rows: pd.DataFrame, near: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return {method run in all S scenarios `near`: scores, (S, T)} over T trials."""
    rows = rows[rows["metric"] == "score"]
    by_method: dict[str, np.ndarray] = {}
    for method, own in sorted(rows.groupby("method")):
        texts = near.merge(own, on=PLACE, how="left")["by_trial"].fillna("")
        found = [str(text).split() for text in texts]
        if len({len(scores) for scores in found}) == 1 and found[0]:
            scores = np.array(found, np.float64)
            if np.isfinite(scores).all():
                by_method[str(method)] = scores
    return by_method
