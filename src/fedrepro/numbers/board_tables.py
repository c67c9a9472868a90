"""The tables of a leaderboard: one of methods, one of single scenarios, one of measured seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.numbers.board import (
    ALL,
    HERE,
    SECONDS,
    STARTS,
    Ground,
    Reached,
    Row,
    Scene,
    score_table,
)

# of a scenario: bytes as a multiple of what sending the models takes there
COSTS_TOLD = ("bytes_up", "exchanges", "networks")


def leaderboard(ground: Ground, rows: Sequence[Row]) -> pd.DataFrame:
    """A row a method: class, group, score and rank with intervals, costs, single accuracies.

    Where entries of others are among them, each says who computed it.
    """
    scenes = list(ground.entries)
    others = _others(rows)
    return pd.DataFrame([_row(ground, row, scenes, others) for row in rows])


def _others(rows: Sequence[Row]) -> bool:
    """Whether there are entries of others."""
    return any(row.method.computed != HERE for row in rows)


def _row(ground: Ground, row: Row, scenes: Sequence[Scene], others: bool) -> dict[str, Any]:
    label, standing, line = row.method.label, row.standing, row.beside_line
    ranked = standing is not None and not row.why
    entries = [
        ground.entries[s][label]
        for s in scenes
        if s.starts == row.starts and label in ground.entries[s]
    ]
    return {
        "starts": row.starts,
        "class": row.method.kind,
        "group": standing.group if standing and ranked else None,
        "method": label,
        **({"computed": row.method.computed} if others else {}),
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
        "settings_tried": max(entry.tried for entry in entries),
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
    label = row.method.label
    per_scene = [
        _costs_there(ground, ground.entries[s], s, label)
        for s in scenes
        if s.starts == row.starts and label in ground.entries[s]
    ]
    return (
        {key: float(np.mean([costs[key] for costs in per_scene])) for key in per_scene[0]}
        if per_scene
        else {}
    )


def _costs_there(
    ground: Ground, entries: Mapping[str, Reached], scene: Scene, label: str
) -> dict[str, float]:
    """The same in one scenario."""
    costs, plain = entries[label].costs, entries[ground.board.baseline].costs
    return {
        "bytes_up": costs["bytes_up"] / plain["bytes_up"],
        "megabytes_up_a_client": costs["bytes_up"] / scene.clients / 1e6,
        "exchanges": costs["rounds"],
        "passes": costs["passes"],
        "networks": costs["forward_passes"],
        "parameters": costs["parameters"],
    }


def scenarios(ground: Ground, rows: Sequence[Row]) -> pd.DataFrame:
    """A row per scenario, method and number, in the form of an exhibit's csv; and of all scenarios.

    Numbers: accuracy on test examples, score, what the method costs (COSTS_TOLD, which have no
    trials), and of all scenarios together score, rank_low, rank_high and group. Of methods without
    a row nothing is told.
    """
    records = []
    computed = {(row.starts, row.method.label): row.method.computed for row in rows}
    for scene, entries in ground.entries.items():
        place = {key: getattr(scene, key) for key in ("starts", "data", "case", "clients")}
        for label, entry in entries.items():
            if (scene.starts, label) not in computed:
                continue
            base = {**place, "method": label, "setting": entry.setting}
            records.append(base | _series("accuracy", "test", entry.accuracy))
            if scene in ground.scenes:
                records.append(base | _series("score", "", ground.scores(scene, label)))
            costs = _costs_there(ground, entries, scene, label)
            records += [base | {"metric": name, "mean": costs[name]} for name in COSTS_TOLD]
    for row in rows:
        place = {"starts": row.starts, "data": ALL, "case": ALL, "clients": None}
        base = {**place, "method": row.method.label, "setting": ""}
        if row.standing is None:
            continue
        table = score_table(ground, row.scenes, row.method.label)
        records.append(base | _series("score", "", table.mean(axis=0)))
        for metric in ("rank_low", "rank_high", "group") if not row.why else ():
            value = np.array([float(getattr(row.standing, metric))])
            records.append(base | _series(metric, "", value))
    columns = (*("starts", "data", "case", "clients", "method", "metric", "split"),)
    all_columns = [*columns, "mean", "sd", "trials", "by_trial", "setting"]
    if _others(rows):
        all_columns.append("computed")
        records = [
            record | {"computed": computed[record["starts"], record["method"]]}
            for record in records
        ]
    return pd.DataFrame(records, columns=all_columns)


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
    records = []
    for row in rows:
        label = row.method.label
        scene_costs = [
            e[label].costs
            for s, e in ground.entries.items()
            if s.starts == row.starts and label in e
        ]
        for metric in SECONDS:
            known = [costs[metric] for costs in scene_costs if metric in costs]
            if known:
                records.append(
                    {
                        "starts": row.starts,
                        "method": label,
                        "metric": metric,
                        "mean": float(np.mean(known)),
                        "scenarios": len(known),
                    }
                )
    return pd.DataFrame(records, columns=["starts", "method", "metric", "mean", "scenarios"])
