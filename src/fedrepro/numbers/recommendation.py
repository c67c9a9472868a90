"""Recommend methods: the best in the scenarios of a leaderboard that are most like one's own."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.core import checksummed_files as stored
from fedrepro.core.errors import FedreproError, unknown
from fedrepro.numbers.leaderboard import ALL, CLASSES, COSTS_TOLD, REPORTED, SEVERAL, STARTS
from fedrepro.numbers.significance_ranking import Standing, standings
from fedrepro.planning.drawing_base import is_number
from fedrepro.planning.exhibit_config import SCALES

IID, LABELS = "iid", "labels"
IID_ALPHA = 10.0
UNLIKE = 3.0  # doublings between Dirichlet shares and a few labels a client
ALPHA = re.compile(r"Dirichlet ([0-9.]+)")
PLACE = ["data", "case", "clients"]
PAPER = "arena"  # the leaderboards' folder
BEST_CLIENT = "best client"
LINES = (BEST_CLIENT, "FedAvg", "pooled training")  # what the others are read against


@dataclass(frozen=True)
class Situation:
    """The federation that somebody wants a method for.

    skew: alpha of a Dirichlet partition, "iid", or "labels" for a few labels per client. exchanges:
    how often clients may exchange messages with the server. public: whether the server has images
    of another data set. one_start: whether all clients began from the same weights.
    """

    clients: int
    skew: str
    exchanges: int = 1
    public: bool = False
    one_start: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "skew", self.skew.lower())
        words = self.skew in (IID, LABELS)
        if not (words or (is_number(self.skew) and 0 < float(self.skew) < math.inf)):
            said = f"--skew is '{self.skew}': give an alpha of Dirichlet's distribution above 0,"
            others = f"{IID}, or {LABELS} for a few labels a client"
            raise FedreproError(f"{said} such as 0.1, or {others}")
        if self.clients < 1 or self.exchanges < 1:
            raise FedreproError("--clients and --exchanges are whole numbers from 1")


@dataclass(frozen=True)
class Recommendation:
    """The methods recommended for somebody's clients, by the leaderboard's most similar scenarios.

    board: the leaderboard's key. scenarios: names of the most similar scenarios. doublings: how far
    they are from the federation, in factors of two. methods: a row per method, by name. The best of
    each class and all that no test separates from it come first (`chosen`), then baselines. Columns
    are the leaderboard's, mean `score` and its 95 % interval (`low`, `high`), and `accuracies`, by
    scenario. remark: a sentence if no single model significantly beats the best client, or "".
    """

    board: str
    scenarios: Sequence[str]
    doublings: float
    methods: pd.DataFrame
    remark: str


def later_board(key: str, abouts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the key of the complete leaderboard that supersedes leaderboard `key`, or "".

    `abouts` has leaderboards' json by key (paper/version); a complete one misses no table.
    """
    version = key.partition("/")[2]
    later = (k for k, about in abouts.items() if about["board"].get("supersedes") == version)
    return next((k for k in later if not abouts[k]["missing"]), "")


def recommend(wanted: Situation, folder: Path) -> Recommendation:
    """Recommend methods from the newest leaderboard in a folder, such as reports/record/paper.

    `wanted` describes the federation. Raise FedreproError if the leaderboard is missing, or has no
    scenario where clients start as wanted.
    """
    if folder.name not in SCALES:
        raise unknown("scale", folder.name, SCALES)
    files = [path for path in (folder / PAPER).glob("*.json") if path.stem.isdecimal()]
    kinds = {"board": dict, "missing": list, "files": dict}
    abouts = {f"{PAPER}/{p.stem}": stored.read_json(p, kinds) for p in files}
    board = f"{PAPER}/1"
    for _ in abouts:
        board = later_board(board, abouts) or board
    paths = folder / f"{board}.csv", folder / f"{board}.scenarios.csv"
    if not all(path.is_file() for path in paths):
        said = f"{board} is not in {folder}: name a folder that has it by --reports and --scale,"
        raise FedreproError(f"{said} such as --reports reports --scale quick after a `make`")
    for path, suffix in zip(paths, (".csv", ".scenarios.csv"), strict=True) if abouts else ():
        stored.read_checked(path, abouts[board]["files"][suffix], folder / f"{board}.json")
    table, scenarios = map(pd.read_csv, paths)
    starts = STARTS[0] if wanted.one_start else STARTS[1]
    table = table[table["starts"] == starts]
    table = table[table["data"] == table["data"].tail(1).squeeze()]  # all data sets together
    if "computed" in table:  # what others report, and nobody computed again, is not recommended
        table = table[table["computed"] != REPORTED]
    single = scenarios[(scenarios["starts"] == starts) & (scenarios["case"] != ALL)]
    places = single.loc[single["metric"] == "score", PLACE].drop_duplicates()
    if places.empty:
        raise FedreproError(f"{board} has no scenario with a score of clients of {starts}")
    pairs = zip(places["case"], places["clients"].astype(int), strict=True)
    distances = np.array([distance(wanted, *pair) for pair in pairs])
    near = places[distances <= distances.min() + 1e-9]
    there = single.merge(near.reset_index(), on=PLACE)
    # the most that a method costs in one of these, in place of means over all scenarios
    costs = there[there["metric"].isin(COSTS_TOLD)]
    costs = costs.pivot_table(values="mean", index="method", columns="metric", aggfunc="max")
    table = table.set_index("method")
    table = costs.reindex(table.index).combine_first(table)
    scores, accuracies = (_by_method(there, near, metric) for metric in ("score", "accuracy"))
    left_out = ("reference", *([] if wanted.public else ["public data"]))
    fits = ~table["class"].isin(left_out) & (table["exchanges"] <= wanted.exchanges)
    gone = [label for label in table.index[fits] if label not in scores]
    table, few = (one[one.index.isin(list(scores))] for one in (table, table[fits]))

    def ranked(names: pd.Index, *line: np.ndarray) -> list[Standing]:
        return standings({name: scores[name] for name in names}, *line, units=False)

    by_class = [ranked(few.index[few["class"] == kind]) for kind in CLASSES]
    chosen = {s.method: s for found in by_class for s in found if s.group == 1}
    lines = ranked(table.index[table.index.isin([*LINES]) & ~table.index.isin([*chosen])])
    remark, one_model = "", few.index[few["class"] != SEVERAL]
    if BEST_CLIENT in scores and len(one_model):
        line = scores[BEST_CLIENT]
        tested = ranked(one_model, line)
        if line.mean() > max(standing.score.value for standing in tested):
            remark = "The best client alone, by validation, has a higher score than every model."
        elif all(standing.verdict != "better" for standing in tested):
            remark = "No single model is shown to score above the best client alone, by validation."
    shown = [*chosen.values(), *lines]
    methods = table.loc[[standing.method for standing in shown]].assign(
        **{end: [getattr(s.score, end) for s in shown] for end in ("low", "high")},
        score=[standing.score.value for standing in shown],
        accuracies=[accuracies[s.method].mean(axis=1).tolist() for s in shown],
        chosen=[standing.method in chosen for standing in shown],
    )
    names = [f"{row.data}, {row.case}, {row.clients:g} clients" for row in near.itertuples()]
    if gone:
        said = "Not run, or failed, in some of these scenarios, so not compared"
        remark += f" {said}: {', '.join(gone)}."
    return Recommendation(board, names, float(distances.min()), methods, remark.strip())


def distance(wanted: Situation, case: str, clients: int) -> float:
    """Return |log2(ratio of clients)| + |log2(ratio of alphas)| between federation and scenario.

    `case` is the scenario's partition, as "Dirichlet 0.1"; iid and alphas above 10 count as 10. If
    only one of the two has few labels per client ("label" in `case`), the second term is 3.
    """
    doublings = abs(math.log2(wanted.clients / clients))
    alpha = ALPHA.search(case)
    of_case = LABELS if "label" in case else alpha[1] if alpha else IID
    if LABELS in (wanted.skew, of_case):
        return doublings + UNLIKE * (wanted.skew != of_case)
    alphas = [IID_ALPHA if skew == IID else float(skew) for skew in (wanted.skew, of_case)]
    return doublings + abs(math.log2(min(alphas[0], IID_ALPHA) / min(alphas[1], IID_ALPHA)))


def _by_method(rows: pd.DataFrame, near: pd.DataFrame, metric: str) -> dict[str, np.ndarray]:
    """Return {method: values of `metric`, (S, T)} with T trials in each of the S rows of `near`."""
    rows = rows[rows["metric"] == metric]
    by_method: dict[str, np.ndarray] = {}
    for method, own in sorted(rows.groupby("method")):
        texts = near.merge(own, on=PLACE, how="left")["by_trial"].fillna("")
        found = [str(text).split() for text in texts]
        if len({*map(len, found)}) == 1 and found[0]:
            values = np.array(found, np.float64)
            if np.isfinite(values).all():
                by_method[str(method)] = values
    return by_method
