"""The leaderboards arena/1 and arena/2, and how tables of arena/2 differ from those of arena/1.

docs/leaderboard.md says what is measured, how it is read, and every difference. Runs that no change
affects are shared. arena/2 takes about 34 core-hours, 28 with the results of arena/1, and
`rounds-2` takes 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from fedrepro.papers.arena import leaderboard_1 as first
from fedrepro.planning.exhibit_config import Entry, ExhibitData, component, exhibit

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
# methods in several rounds try four values each
IN_ROUNDS: Grids = {
    "FedProx": {"proximal": [0.0001, 0.001, 0.01, 0.1]},
    "FedAvgM": {"server_momentum": [0.1, 0.3, 0.5, 0.9]},
    "FedAdam": {"server_lr": [0.03, 0.1, 0.3, 1.0]},
    "SCAFFOLD": {"server_lr": [0.5, 1.0, 1.5, 2.0]},
    "FedDyn": {"alpha": [0.001, 0.01, 0.1, 1.0]},
}


def regrid(methods: Sequence[Entry], grids: Grids) -> list[Entry]:
    """Return `methods`; a label in `grids` gets all combinations of its values as `settings`."""
    changed = list(methods)
    for at, method in enumerate(methods):
        if grid := grids.get(method.get("label", "")):
            settings = [dict(zip(grid, each, strict=True)) for each in product(*grid.values())]
            kept = {key: method[key] for key in ("name", "label", "choose")}
            changed[at] = {**kept, "settings": settings, **FIXED.get(kept["label"], {})}
    return changed


def second(table: ExhibitData) -> ExhibitData:
    """Return a table of leaderboard 2, made from its counterpart `table` in leaderboard 1."""
    both = first.DEFAULTS | table
    cases = {
        name: case | ({"methods": regrid(case["methods"], GRIDS)} if "methods" in case else {})
        for name, case in table["cases"].items()
    }
    made = exhibit(
        table,
        place="arena/2",
        scales=["paper"],
        methods=regrid(both["methods"], GRIDS),
        cases=cases,
        at={},
    )
    if "epochs" in made.get("training", {}):
        made["training"] = {**made["training"], "epochs": 10}
    return made


BOARD_1 = {
    "title": "One exchange of models, ten classes of small images",
    "baseline": "FedAvg",
    "ceiling": "pooled training",
    "line": "best client",
    # of the networks' version 2: compiled steps changed their last digits, and nothing else did
    "ground": "21a6a309cdf091dc0dc58aaa2e6a72c931378c562678739525dbfb94b16f3def",
    "data": {
        "mnist": "ee549a562a810942d68b31d4589f9e18e0322ba0136684939f7170d5fcaf0e81",
        "fashion_mnist": "6aaec0d49a339b8b4b52b1f3dfff1ac04e03c9f034f92ee031d127a6029e5090",
        "cifar10": "e1759fe21d23087602f142aa423845095eb88acb0eda5d294dd531586e1791ca",
    },
}

GROUND_2 = "76d8ded62188db943c0be29ae443401748a61447663e5992890fcbd13e8a58ad"
BOARD_2 = BOARD_1 | {"each_trial": True, "supersedes": "1", "ground": GROUND_2}

RULES_TRIED = """With BatchNorm a method that merges tries each of its settings twice: with running
    statistics averaged as weights are, and measured again at the clients."""


def residual(norm: str, title: str) -> ExhibitData:
    """Return a table with ResNet-8, normalised by `norm`, on the ground of arena/2.

    It takes about 7 core-hours with GroupNorm and 9 with BatchNorm; ResNet-20 would take three
    times as long. With numbers it joins arena/2 by its name.
    """
    cases: dict[str, Entry] = {
        "dirichlet-05": {"partition": {**first.OF_2000, "alpha": 0.5}},
        "dirichlet-01": {"partition": first.OF_2000},
    }
    for case in cases.values():
        case["label"] = f"{title}, Dirichlet {case['partition']['alpha']}"
    on_pictures = exhibit(
        first.PARTS_1["1-cifar10-network"],
        title=f"{title} on 20,000 images of CIFAR-10",
        model=component("resnet8", norm=norm),
        methods=[*first.BOUNDS, *first.MERGES, *first.ENSEMBLES],
        cases=cases,
    )
    table = second(on_pictures)
    if norm == "group":
        return table
    methods, merging = table["methods"], {method["label"] for method in first.MERGES}
    return exhibit(
        table,
        methods=[by_rules(one) if one["label"] in merging else one for one in methods],
        notes=[*first.NOTES, RULES_TRIED],
    )


def by_rules(method: Entry) -> Entry:
    """Return `method` with each setting under both rules for BatchNorm's running statistics."""
    rules, settings = ["average", "recalibrate"], method.get("settings", [{}])
    if settings == "grid":
        return {**method, "batchnorm": rules, "choose": first.BEST}
    tried = [{**each, "batchnorm": rule} for each in settings for rule in rules]
    return {**method, "settings": tried, "choose": first.BEST}


ROUNDS_2 = exhibit(
    first.ROUNDS,
    training={"epochs": 10},
    methods=regrid(first.ROUNDS["methods"], IN_ROUNDS),
    cases={
        "one": {"label": "1 round", "parameters": {"rounds": 1, "epochs": 10}},
        "five": {"label": "5 rounds", "parameters": {"rounds": 5, "epochs": 2}},
        "ten": {"label": "10 rounds", "parameters": {"rounds": 10, "epochs": 1}},
    },
    at={},
)
EXHIBITS = {
    "paper": "arena",
    "title": "Which method should I use?",
    "source": "a leaderboard of this project",
    "boards": {"1": BOARD_1, "2": BOARD_2},
    "defaults": first.DEFAULTS,
    "exhibits": {
        **first.PARTS_1,
        "rounds": first.ROUNDS,
        **{name.replace("1-", "2-", 1): second(part) for name, part in first.PARTS_1.items()},
        "resnet-group": residual("group", "ResNet-8 with GroupNorm"),
        "resnet-batch": residual("batch", "ResNet-8 with BatchNorm"),
        "rounds-2": ROUNDS_2,
    },
}
