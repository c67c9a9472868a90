"""Tables of a leaderboard: its rows with ranks and costs, its scenarios, and seconds of trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.numbers.leaderboard import (
    ALL,
    COSTS_TOLD,
    EACH_TRIAL,
    ENDS,
    HERE,
    SECONDS,
    STARTS,
    BoardData,
    BoardRow,
    BoardScenario,
    score_table,
)
from fedrepro.numbers.setting_selection import ends_in_words
from fedrepro.numbers.significance_ranking import USUAL, Estimate
from fedrepro.numbers.trial_statistics import over_trials


def leaderboard(ground: BoardData, rows: Sequence[BoardRow]) -> pd.DataFrame:
    """Return a leaderboard's `rows` as a data frame: method, score, ranks, tests, costs, …."""
    return _whose(pd.DataFrame([_row(ground, row) for row in rows]), rows)


def _whose(table: pd.DataFrame, rows: Sequence[BoardRow]) -> pd.DataFrame:
    others = any(row.method.computed != HERE for row in rows)
    return table if others else table.drop(columns="computed")


def _row(ground: BoardData, row: BoardRow) -> dict[str, Any]:
    label, standing, line = row.method.label, row.standing, ground.board.line.replace(" ", "_")
    scenes = [s for s in ground.entries if s.starts == row.starts and row.data in (ALL, s.data)]
    costs = [_costs_there(ground, s, label) for s in scenes if label in ground.entries[s]]
    entries = [ground.entries[s][label] for s in scenes if label in ground.entries[s]]
    tests = {f"group_{test.lower().replace(' ', '_')}": test for test in (*USUAL, EACH_TRIAL)}
    above = standing.above if standing and label != ground.board.line else None
    return {
        "starts": row.starts,
        "data": row.data,
        "class": row.method.kind,
        "group": standing.group if standing else None,
        "method": label,
        "computed": row.method.computed,
        **_ends("score", standing.score if standing else None),
        "score_each_trial": row.each_trial,
        "rank_low": standing.rank_low if standing else None,
        "rank_high": standing.rank_high if standing else None,
        "not_told_apart": "; ".join(standing.not_significantly_different) if standing else "",
        **_ends(f"above_{line}", above),
        **_ends(f"above_{line}_trials", standing.above_trials if standing and above else None, 1),
        "scenarios_above": row.ahead if above else None,
        f"beside_{line}_chance": standing.chance if standing else None,
        f"beside_{line}": standing.verdict if standing else "",
        "drawn_again": row.drawn,
        **{name: standing.usual.get(test) if standing else None for name, test in tests.items()},
        "scenarios": len(row.scenes),
        "runs": row.runs,
        "failed": row.failed,
        "without_rank": row.unranked_reason,
        **{key: float(np.mean([own[key] for own in costs])) for key in costs[0]},
        "settings_tried": max(entry.tried for entry in entries),
        "ends_of_grid": ends_in_words([ends for entry in entries for ends in entry.ends]),
        "sees": row.method.sees,
        "clients_also_send": row.method.sends,
        "chosen_by": row.method.chosen_by,
        **{
            f"{s.name}{'' if s.starts == STARTS[0] else f', {s.starts}'}": (
                float(reached[label].accuracy.mean()) if s in scenes and label in reached else None
            )
            for s, reached in ground.entries.items()
        },
    }


def _ends(name: str, found: Estimate | None, first: int = 0) -> dict[str, float | None]:
    return {f"{name}{end}": getattr(found, end[1:] or "value", None) for end in ENDS[first:]}


def _costs_there(ground: BoardData, scene: BoardScenario, label: str) -> dict[str, float]:
    """Return a method's costs in one scenario by name, without and with selecting its parameters.

    Bytes are in units of one upload of all clients' models. To select, the server sends all clients
    all candidates (of an ensemble, its networks once), and gets accuracies in one more exchange;
    several exchanges are repeated per candidate. To find the best client all models go to all.
    """
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
    """Return accuracies, scores, costs and ranks: a row per scenario (or all), method, metric."""
    records: list[dict[str, Any]] = []
    computed = {(row.starts, row.method.label): row.method.computed for row in rows}

    def add(metric: str, values: np.ndarray, **place: Any) -> None:
        split = "test" if metric == "accuracy" else ""
        records.append({**place, "metric": metric, "split": split, **over_trials(values.tolist())})

    for scene, entries in ground.entries.items():
        place = {key: getattr(scene, key) for key in ("starts", "data", "case", "clients")}
        for label, entry in entries.items():
            if (scene.starts, label) not in computed:
                continue
            base = {**place, "method": label, "setting": entry.setting}
            add("accuracy", entry.accuracy, **base)
            if scene in ground.scenes:
                add("score", ground.scores(scene, label), **base)
            costs = _costs_there(ground, scene, label)
            records += [base | {"metric": name, "mean": costs[name]} for name in COSTS_TOLD]
    for row in rows:
        if row.standing is None:
            continue
        place = {"starts": row.starts, "data": row.data, "case": ALL, "clients": None}
        base = {**place, "method": row.method.label, "setting": ""}
        scores = score_table(ground, row, row.scenes, row.method.label)
        add("score", scores.mean(axis=0), **base)
        for metric in ("rank_low", "rank_high", "group") if row.standing.group else ():
            add(metric, np.array([float(getattr(row.standing, metric))]), **base)
    columns = ["starts", "data", "case", "clients", "method", "metric", "split"]
    table = pd.DataFrame(records, columns=[*columns, "mean", "sd", "trials", "by_trial", "setting"])
    whose = [computed[place] for place in zip(table["starts"], table["method"], strict=True)]
    return _whose(table.assign(computed=whose), rows)


def seconds(ground: BoardData, rows: Sequence[BoardRow]) -> pd.DataFrame:
    """Return measured seconds of a trial as means over scenarios, on the server and on clients."""
    records = []
    for starts, label in dict.fromkeys((row.starts, row.method.label) for row in rows):
        entries = [e[label] for s, e in ground.entries.items() if s.starts == starts and label in e]
        for metric in SECONDS:
            known = [entry.costs[metric] for entry in entries if metric in entry.costs]
            if known:
                records.append((starts, label, metric, float(np.mean(known)), len(known)))
    return pd.DataFrame(records, columns=["starts", "method", "metric", "mean", "scenarios"])
