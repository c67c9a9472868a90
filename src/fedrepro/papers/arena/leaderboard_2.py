"""The leaderboard arena/2: how its figures and tables differ from those of arena/1.

`CHANGES` lists every difference. Runs that no change affects are shared with arena/1. arena/2 takes
about 34 core-hours at the paper's size, 28 with the results of arena/1, and `rounds-2` takes 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from fedrepro.planning.exhibit_config import Entry, ExhibitData, exhibit

CHANGES = [
    """Settings are chosen in each trial, as the best client is. A table shows the one that is best
        over all trials; the leaderboard takes that of each.""",
    """Every method that has settings tries eight of them, in every scenario; the class-weighted
        ensemble and weight matching have two, and try these. Grids go on where arena/1 chose their
        ends: those of TIES, diagonal FedFisher, FedLPA, RegMean, FedDF and FENS. RegMean++ cannot
        go beyond an alpha of one, so its ridge varies.""",
    """All clients train for ten epochs, in FedFisher's grid too, and FedLPA takes 200 steps
        everywhere: the larger network has the settings of the others.""",
    """FENS trains its gate on every second validation example of a client, and its setting is
        chosen on the others.""",
    """Bytes and exchanges of choosing, with those of finding the best client, are counted beside
        those of the method itself, as well as how often an end of a grid was chosen.""",
]

LOCAL_TRAINING = """Local training, chosen once for all scenarios: SGD, step size 0.01, momentum
    0.9, batches of 64, ten epochs. Starts are uniform within one over the root of the inputs."""

STRENGTHS = {"alpha": [0.9, 1.0], "ridge": [1e-8, 1e-4, 0.01, 1.0]}
STEPS = [2, 5, 10, 20, 50, 100, 200, 500]
Grids = Mapping[str, Mapping[str, Sequence[Any]]]  # label -> values to try, all combinations
GRIDS: Grids = {
    "TIES": {"keep": [0.2, 0.5], "scale": [0.125, 0.25, 0.5, 1.0]},
    "FedFisher (diagonal)": {"steps": [50, 100, 200, 500, 1000, 2000, 5000, 10000]},
    "FedFisher (K-FAC)": {"steps": STEPS},
    "RegMean": STRENGTHS,
    "FedLPA": {"damping": [1e-8, 1e-6, 1e-4, 0.001, 0.01, 0.1, 1.0, 10.0]},
    "RegMean++": STRENGTHS,
    "FedDF": {"lr": [0.0003, 0.001, 0.003, 0.01], "epochs": [20, 50]},
    "FENS": {"gate": ["network", "class_weights"], "rate": [0.001, 0.01, 0.03, 0.1]},
    "OT fusion": {"class_weights": [False, True], "sweeps": [1, 3, 10, 30]},
    "matching, then RegMean": STRENGTHS,
    "matching, then FedFisher (K-FAC)": {"steps": STEPS},
    "PFNM": {"sigma2": [0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0]},
}
FIXED: Mapping[str, Entry] = {"FedLPA": {"steps": 200}, "FENS": {"leave": True}}
# on digits, in small test runs
SMALL: Grids = {
    "FedFisher (diagonal)": {"steps": [20, 200]},
    "FedDF": {"lr": [0.001, 0.01], "epochs": [2]},
}
# methods in several rounds try four values each
IN_ROUNDS: Grids = {
    "FedProx": {"proximal": [0.0001, 0.001, 0.01, 0.1]},
    "FedAvgM": {"server_momentum": [0.1, 0.3, 0.5, 0.9]},
    "FedAdam": {"server_lr": [0.03, 0.1, 0.3, 1.0]},
    "SCAFFOLD": {"server_lr": [0.5, 1.0, 1.5, 2.0]},
    "FedDyn": {"alpha": [0.001, 0.01, 0.1, 1.0]},
}
EPOCHS = 10


def regrid(methods: Sequence[Entry], grids: Grids) -> list[Entry]:
    """Return `methods`; a label in `grids` gets all combinations of its values as `settings`."""

    def changed(method: Entry) -> Entry:
        label = method.get("label", "")
        if label not in grids:
            return method
        kept = {key: method[key] for key in ("name", "label", "choose")}
        grid = grids[label]
        settings = [dict(zip(grid, each, strict=True)) for each in product(*grid.values())]
        return {**kept, "settings": settings, **FIXED.get(label, {})}

    return [changed(method) for method in methods]


RULES = ["average", "recalibrate"]


def with_rules(methods: Sequence[Entry], merging: Sequence[Entry]) -> list[Entry]:
    """Return `methods` for networks with BatchNorm: those in `merging` try each setting by RULES.

    "average" keeps running statistics averaged as weights are, "recalibrate" measures them again
    at the clients.
    """
    best = {"metric": "accuracy", "split": "client_validation"}
    merges = {method["label"] for method in merging}

    def ruled(method: Entry) -> Entry:
        if method["label"] not in merges:
            return method
        settings = method.get("settings", [{}])
        if settings == "grid":
            return {**method, "batchnorm": RULES, "choose": best}
        tried = [{**each, "batchnorm": rule} for each in settings for rule in RULES]
        return {**method, "settings": tried, "choose": best}

    return [ruled(method) for method in methods]


def second(first: ExhibitData, defaults: ExhibitData, of_both: Sequence[str]) -> ExhibitData:
    """Return a table of leaderboard 2, made from its counterpart `first` in 1.

    `defaults` are those of leaderboard 1, and `of_both` its notes that hold for both.
    """
    both = {**defaults, **first}
    cases = {
        name: case | ({"methods": regrid(case["methods"], GRIDS)} if "methods" in case else {})
        for name, case in first["cases"].items()
    }
    made = exhibit(
        first,
        place="arena/2",
        scales=[scale for scale in first.get("scales", ["paper"]) if scale != "quick"],
        methods=regrid(both["methods"], GRIDS),
        cases=cases,
        notes=[LOCAL_TRAINING, *CHANGES, *(note for note in both["notes"] if note in of_both)],
        at={},
    )
    if "epochs" in made.get("training", {}):
        made["training"] = {**made["training"], "epochs": EPOCHS}
    if "tiny" in made["scales"]:
        methods = regrid(defaults["methods"], {**GRIDS, **SMALL})
        made["at"] = {"tiny": {**first["at"]["tiny"], "methods": methods}}
    return made


def more_rounds(first: ExhibitData) -> ExhibitData:
    """Return table `first` with 1, 5 and 10 rounds, in which clients train 10 epochs altogether."""
    return exhibit(
        first,
        scales=["paper"],
        training={"epochs": EPOCHS},
        methods=regrid(first["methods"], IN_ROUNDS),
        cases={
            "one": {"label": "1 round", "parameters": {"rounds": 1, "epochs": 10}},
            "five": {"label": "5 rounds", "parameters": {"rounds": 5, "epochs": 2}},
            "ten": {"label": "10 rounds", "parameters": {"rounds": 10, "epochs": 1}},
        },
        at={},
    )
