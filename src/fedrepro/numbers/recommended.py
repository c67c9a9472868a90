"""Which method to take: those not told apart from the best where the leaderboard is nearest.

Read from the tables of a leaderboard that is drawn or recorded (`board.py`). Nearness counts
doublings: of the number of clients, and of Dirichlet's alpha. What has no alpha of its own gets
one: iid stands at 10, and a few labels a client lie as far from every Dirichlet share as UNLIKE.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import Rng
from fedrepro.numbers.board import ALL, CLASSES, REPORTED, STARTS
from fedrepro.numbers.board_tables import COSTS_TOLD
from fedrepro.numbers.standings import Standing, standings

IID, LABELS = "iid", "labels"
IID_ALPHA = 10.0
UNLIKE = 3.0  # doublings between Dirichlet shares and a few labels a client
ALPHA = re.compile(r"Dirichlet ([0-9.]+)")
PLACE = ["data", "case", "clients"]


@dataclass(frozen=True)
class Wanted:
    """Somebody's setting. skew: an alpha of Dirichlet's, "iid" or "labels". exchanges: how often
    clients may answer. public: the server has images of another data set. one_start: all clients
    began from the same weights."""

    clients: int
    skew: str
    exchanges: int = 1
    public: bool = False
    one_start: bool = True

    def __post_init__(self) -> None:
        if self.skew not in (IID, LABELS):
            try:
                alpha = float(self.skew)
            except ValueError:
                alpha = math.nan
            if not 0 < alpha < math.inf:
                raise FedreproError(
                    f"--skew is '{self.skew}': give an alpha of Dirichlet's distribution above 0, "
                    f"such as 0.1, or {IID}, or {LABELS} for a few labels a client"
                )
        if self.clients < 1 or self.exchanges < 1:
            raise FedreproError("--clients and --exchanges are whole numbers from 1")

    @property
    def classes(self) -> list[str]:
        """The classes of methods that can be taken."""
        left_out = {"reference", *(() if self.public else ("public data",))}
        return [name for name in CLASSES if name not in left_out]


@dataclass(frozen=True)
class Taken:
    """A method that is not told apart from the best of its class in the nearest scenarios.

    accuracy: mean on test examples there. costs: columns of the leaderboard by name; bytes,
    exchanges and networks are of these scenarios.
    """

    kind: str
    standing: Standing
    accuracy: float
    costs: dict[str, object]


@dataclass(frozen=True)
class Recommendation:
    """scenarios: the nearest ones. doublings: how far away these are. line: mean accuracy of the
    best client there, not a number if that was not run. more: the exchanges that a method takes
    and its accuracy, of those that have more than every choice and take too many exchanges."""

    scenarios: Sequence[str]
    doublings: float
    choices: Sequence[Taken]
    line: float
    more: Mapping[str, tuple[int, float]]


def recommend(wanted: Wanted, folder: Path, board: str = "arena/1") -> Recommendation:
    """From a leaderboard of a folder of reports, such as reports/record/paper.

    Errors: FedreproError where it is not there, or has no scenario of clients that start so.
    """
    table, every = (_read(folder / f"{board}{end}", board) for end in (".csv", ".scenarios.csv"))
    starts = STARTS[0] if wanted.one_start else STARTS[1]
    table = table[(table["starts"] == starts) & table["class"].isin(wanted.classes)]
    if "computed" in table:  # what others report, and nobody computed again, is not recommended
        table = table[table["computed"] != REPORTED]
    single = every[(every["starts"] == starts) & (every["case"] != ALL)]
    scored = single[single["metric"] == "score"]
    if scored.empty:
        raise FedreproError(f"{board} has no scenario with a score of clients of {starts}")
    places = scored[PLACE].drop_duplicates()
    pairs = zip(places["case"].tolist(), places["clients"].tolist(), strict=True)
    away = np.array([distance(wanted, case, int(clients)) for case, clients in pairs])
    near = places[away <= away.min() + 1e-9]
    there = single.merge(near, on=PLACE)
    accuracy = there[there["metric"] == "accuracy"].groupby("method")["mean"].mean()
    table = _as_there(table.set_index("method"), there)
    too_many = table[table["exchanges"] > wanted.exchanges]["exchanges"]
    table = table[table["exchanges"] <= wanted.exchanges]
    names = [f"{row.data}, {row.case}, {row.clients:g} clients" for row in near.itertuples()]
    found: list[Taken] = []
    for kind in wanted.classes:
        own = table[table["class"] == kind]
        scores = _scores(there[there["method"].isin(own.index)], near)
        for one in standings(scores, names, Rng(0)):
            if one.group == 1:
                costs = {str(key): value for key, value in own.loc[one.method].items()}
                found.append(Taken(kind, one, float(accuracy[one.method]), costs))
    line = float(accuracy.get("best client", math.nan))
    best = max((one.accuracy for one in found), default=0.0)
    asked = {name: (round(times), float(accuracy.get(name, 0))) for name, times in too_many.items()}
    more = {str(name): own for name, own in asked.items() if own[1] > best}
    return Recommendation(names, float(away.min()), found, line, more)


@dataclass(frozen=True)
class AfterRounds:
    """title: of the exhibit. accuracy: mean on test examples, of each method after so many rounds,
    in order."""

    title: str
    accuracy: Mapping[str, Mapping[int, float]]


def in_rounds(folder: Path, exhibit: str = "arena/rounds") -> AfterRounds | None:
    """What methods in rounds reach by the same local training; None where it was not drawn."""
    path = folder / f"{exhibit}.csv"
    if not path.is_file():
        return None
    table = pd.read_csv(path)
    rounds = table[table["metric"] == "rounds"].set_index(["case", "method"])["mean"]
    rows = table[(table["metric"] == "accuracy") & (table["split"] == "test")]
    rows = rows.join(rounds.rename("rounds"), on=["case", "method"])
    rows = rows[rows["rounds"] > 0].sort_values("rounds", kind="stable")
    found: dict[str, dict[int, float]] = {}
    for method, number, mean in zip(rows["method"], rows["rounds"], rows["mean"], strict=True):
        found.setdefault(str(method), {})[int(number)] = float(mean)
    return AfterRounds(json.loads(path.with_suffix(".json").read_text())["title"], found)


def _as_there(table: pd.DataFrame, there: pd.DataFrame) -> pd.DataFrame:
    """Methods with what they cost in these scenarios, in the place of means over all of them.

    Exchanges are the most that one of them takes.
    """
    own = there[there["metric"].isin(COSTS_TOLD)]
    costs = own.pivot_table(values="mean", index="method", columns="metric")
    if "exchanges" in costs:
        asked = own[own["metric"] == "exchanges"]
        costs["exchanges"] = asked.groupby("method")["mean"].max()
    return costs.reindex(table.index).combine_first(table)


def distance(wanted: Wanted, case: str, clients: int) -> float:
    """Doublings from somebody's setting to a scenario of the leaderboard."""
    found = abs(math.log2(wanted.clients / clients))
    alpha = ALPHA.search(case)
    of_case = LABELS if "label" in case else alpha[1] if alpha else IID
    if LABELS in (wanted.skew, of_case):
        return found + UNLIKE * (wanted.skew != of_case)
    ends = [IID_ALPHA if skew == IID else float(skew) for skew in (wanted.skew, of_case)]
    return found + abs(math.log2(min(ends[0], IID_ALPHA) / min(ends[1], IID_ALPHA)))


def _scores(rows: pd.DataFrame, near: pd.DataFrame) -> dict[str, np.ndarray]:
    """Scores (S, T) of the methods that have one in each of these scenarios and trials."""
    rows, found = rows[rows["metric"] == "score"], {}
    for method, own in rows.groupby("method"):
        ordered = near.merge(own, on=PLACE)
        trials = [np.array(str(text).split(), np.float64) for text in ordered["by_trial"]]
        whole = len(trials) == len(near) and len({len(one) for one in trials}) == 1
        if whole and np.isfinite(np.concatenate(trials)).all():
            found[str(method)] = np.stack(trials)
    return found


def _read(path: Path, board: str) -> pd.DataFrame:
    if not path.is_file():
        raise FedreproError(
            f"{board} is not in {path.parents[1]}: name a folder that has it by --reports and "
            f"--scale, such as --reports reports --scale quick after a `make`"
        )
    return pd.read_csv(path)
