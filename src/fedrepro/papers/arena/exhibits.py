"""The leaderboards arena/1 and arena/2, and how tables of arena/2 differ from those of arena/1.

docs/leaderboard.md says what is measured and how it is read. `CHANGES` lists every difference. Runs
that no change affects are shared. arena/2 takes about 34 core-hours at the paper's size, 28 with
the results of arena/1, and `rounds-2` takes 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from fedrepro.papers.arena import leaderboard_1 as first
from fedrepro.planning.exhibit_config import Entry, ExhibitData, component, exhibit

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
    changed = list(methods)
    for at, method in enumerate(methods):
        if grid := grids.get(method.get("label", "")):
            settings = [dict(zip(grid, each, strict=True)) for each in product(*grid.values())]
            kept = {key: method[key] for key in ("name", "label", "choose")}
            changed[at] = {**kept, "settings": settings, **FIXED.get(kept["label"], {})}
    return changed


SHARED = [first.set_aside(examples) for examples in ("5,000", "2,000")]
SHARED += [first.DEALT, first.AT_THE_SERVER, first.AUGMENTING]  # notes that hold for both
NOTES_OF_BOTH = exhibit(notes=SHARED)["notes"]


def second(table: ExhibitData) -> ExhibitData:
    """Return a table of leaderboard 2, made from its counterpart `table` in leaderboard 1."""
    both = first.DEFAULTS | table
    cases = {
        name: case | ({"methods": regrid(case["methods"], GRIDS)} if "methods" in case else {})
        for name, case in table["cases"].items()
    }
    notes = [note for note in both["notes"] if note in NOTES_OF_BOTH]
    made = exhibit(
        table,
        place="arena/2",
        scales=[scale for scale in table.get("scales", ["paper"]) if scale != "quick"],
        methods=regrid(both["methods"], GRIDS),
        cases=cases,
        notes=[LOCAL_TRAINING, *CHANGES, *notes],
        at={},
    )
    if "epochs" in made.get("training", {}):
        made["training"] = {**made["training"], "epochs": EPOCHS}
    if "tiny" in made["scales"]:
        methods = regrid(first.DEFAULTS["methods"], {**GRIDS, **SMALL})
        made["at"] = {"tiny": {**table["at"]["tiny"], "methods": methods}}
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

    Like the larger network it takes 20,000 images: about 7 core-hours with GroupNorm and 9 with
    BatchNorm. ResNet-20 would take three times as long. With numbers it joins arena/2 by its name.
    """
    cases = {
        name: {
            "label": f"{title}, Dirichlet {alpha}",
            "partition": {**first.OF_2000, "alpha": alpha},
        }
        for name, alpha in (("dirichlet-05", 0.5), ("dirichlet-01", 0.1))
    }
    on_pictures = exhibit(
        first.PARTS_1["1-cifar10-network"],
        title=f"{title} on 20,000 images of CIFAR-10",
        model=component("resnet8", norm=norm),
        methods=[*first.BOUNDS, *first.MERGES, *first.ENSEMBLES],
        cases=cases,
        notes=[first.set_aside("2,000"), first.DEALT, first.AUGMENTING],
    )
    table = second(on_pictures)
    if norm == "group":
        return table
    methods, merging = table["methods"], {method["label"] for method in first.MERGES}
    return exhibit(
        table,
        methods=[by_rules(one) if one["label"] in merging else one for one in methods],
        notes=[*table["notes"], RULES_TRIED],
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
    scales=["paper"],
    training={"epochs": EPOCHS},
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
