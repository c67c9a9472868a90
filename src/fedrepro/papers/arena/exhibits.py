"""The leaderboards arena/1 and arena/2: what to do with models that clients have trained once.

Tables whose names begin with "1-" are parts of arena/1, the most decisive first; each is recorded
by itself. Tables of arena/2 are made from them, and equal runs are shared. The table `rounds` has
the data, partition and model of one part. docs/leaderboard.md says what is measured, how to read
it, and every difference. arena/2 takes about 34 core-hours, 28 after arena/1; `rounds-2` takes 8.
`Entry` (a method or scenario) and `ExhibitData` (a table) are dicts with keys of the configuration.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from fedrepro.planning.exhibit_config import Entry, ExhibitData, component, exhibit, with_changes

# LeNet without biases, as in FedFisher's public code
LENET = component("cnn", channels=[6, 16], kernel=5, padding="valid", hidden=[120, 84], bias=False)
PERCEPTRON = component("mlp", hidden=[200, 200])
WITH_PERCEPTRON = "perceptron, Dirichlet 0.1"

# of all scenarios but FedFisher's grid: that of NIID-Bench, without weight decay
TRAINING = component(
    "sgd", lr=0.01, momentum=0.9, batch_size=64, epochs=10, init="fan_in", shared_init=True
)
AUGMENTED = {"augment": "crop_flip"}


def validating_partition(name: str, **parameters: Any) -> Entry:
    """Return partition `name` with `parameters`; clients have 5,000 validation examples in all."""
    return component(name, **parameters, validation=5000, validation_at="clients")


IID = validating_partition("iid")
DIRICHLET_05 = validating_partition("dirichlet", alpha=0.5, balance=True)
DIRICHLET_01 = validating_partition("dirichlet", alpha=0.1, balance=True)
TWO_LABELS = validating_partition("labels_each", each=2)
FEWER_VALIDATE = {"validation": 200}  # at the small scales

BEST = {"metric": "accuracy", "split": "client_validation"}


def chosen(name: str, label: str, **settings: Any) -> Entry:
    """Return method `name` with parameters selected by accuracy on clients' validation data.

    `settings` lists candidates: values as lr=[1, 2], or settings="grid" for the method's own grid.
    """
    return component(name, label, **settings, choose=BEST)


BEST_CLIENT = component("best_client", "best client", reference=True)
POOLED = component("pooled", "pooled training", reference=True)
BOUNDS = [
    component("local", "mean client", reference=True),
    BEST_CLIENT,
    POOLED,
    component("majority", "majority class", reference=True),
]

FEDAVG = component("average", "FedAvg")
KFAC_STEPS = [5, 10, 20, 50, 100, 200]
# merge clients' networks into one without server data
MERGES = [
    FEDAVG,
    chosen("task_arithmetic", "task arithmetic", settings="grid"),
    chosen("ties", "TIES", settings="grid"),
    chosen("fisher_merge", "Fisher merge", settings="grid"),
    chosen("fedfisher_diagonal", "FedFisher (diagonal)", settings="grid"),
    chosen("fedfisher_kfac", "FedFisher (K-FAC)", steps=KFAC_STEPS),
    chosen("regmean", "RegMean", settings="grid"),
    chosen("fedlpa", "FedLPA", settings="grid", steps=200),
    chosen("regmean_plus", "RegMean++", alpha=[0.1, 0.5, 0.9, 1.0]),
]


def merges(*others: Entry) -> list[Entry]:
    """Return the merging methods MERGES; each of `others` replaces the method with its label."""
    by_label = {one["label"]: one for one in others}
    return [by_label.get(one["label"], one) for one in MERGES]


# the server has unlabelled images
FEDDF = chosen("feddf", "FedDF", settings="grid")
SMALL_FEDDF = chosen("feddf", "FedDF", lr=[0.001, 0.01], epochs=2)

# all of the clients' networks predict
ENSEMBLES = [
    component("uniform_ensemble", "mean of probabilities"),
    component("voting_ensemble", "majority vote"),
    chosen("weighted_ensemble", "class-weighted ensemble", settings="grid"),
    chosen("fens", "FENS", settings="grid"),
]


NOTES = [
    """docs/leaderboard.md has the ground of both leaderboards, and what differs between them.""",
    """Local training has 10 epochs, as in NIID-Bench, and for arena/1 30 in FedFisher's grid, as in
        its public code. Clients that have CIFAR-10 train on crops and mirror images, as there.""",
    """Dirichlet shares are drawn for each class over the clients, with the balance step of
        NIID-Bench; two labels a client are dealt as there. Each trial has a partition of its
        own.""",
    """FedDF's server has 10,000 unlabelled images of MNIST, or of Fashion-MNIST where the clients
        have MNIST. No other data set here has the shape of CIFAR-10's.""",
]

# the defaults of small scales: digits and tiny networks
OF_FEW_STEPS = merges(chosen("fedfisher_diagonal", "FedFisher (diagonal)", steps=[20, 200]))
QUICK = exhibit(
    dataset=component("digits"),
    partition=FEWER_VALIDATE,
    model={"channels": [4, 8], "kernel": 3, "padding": "same", "hidden": [16]},
    training={"lr": 0.05, "batch_size": 16, "epochs": 4},
    parameters={"rounds": 10, "batch_size": 1000, "public_data": "digits"},
    methods=[*BOUNDS, *OF_FEW_STEPS, SMALL_FEDDF, *ENSEMBLES],
)

TINY = exhibit(
    QUICK,
    sweep={"partition.clients": [4]},
    training={"lr": 0.05, "batch_size": 16, "epochs": 2},
    parameters={"rounds": 5, "batch_size": 1000, "public_data": "digits"},
    trials=2,
)

DEFAULTS = exhibit(
    scales=["paper"],
    drawing=component("table", rows=["method"], columns=["case"], sizes=False, best="column"),
    place="arena/1",
    dataset=component("fashion_mnist"),
    model=LENET,
    training=TRAINING,
    partition=IID,
    sweep={"partition.clients": [10]},
    trials=5,
    methods=[*BOUNDS, *MERGES, FEDDF, *ENSEMBLES],
    caption="""Test accuracy in percent of what comes of the clients' models. Means over five
        trials, each with a partition of its own, with one standard deviation. Bold: the best of a
        column.""",
    notes=NOTES,
    quick=QUICK,
    tiny=TINY,
)

ON_MNIST = exhibit(dataset=component("mnist"), parameters={"public_data": "fashion_mnist"})
ON_CIFAR10 = exhibit(
    dataset=component("cifar10"), training=AUGMENTED, methods=[*BOUNDS, *MERGES, *ENSEMBLES]
)

SKEWED: dict[str, Entry] = {
    "dirichlet-01": {"label": "Dirichlet 0.1", "partition": DIRICHLET_01},
    "two-labels": {"label": "two labels a client", "partition": TWO_LABELS},
}
EVEN: dict[str, Entry] = {
    "iid": {"label": "iid"},
    "dirichlet-05": {"label": "Dirichlet 0.5", "partition": DIRICHLET_05},
}


def ten_clients(images: str, kind: str, cases: dict[str, Entry], *on: ExhibitData) -> ExhibitData:
    """Return a table of scenarios `cases`, based on tables `on`; its title has `images`, `kind`."""
    return exhibit(*on, title=f"LeNet on {images}, ten clients, {kind}", cases=cases)


def fedfisher(point: str, case: str, alpha: float, *on: ExhibitData) -> ExhibitData:
    """Return a table of FedFisher's experiment with five clients, based on the tables `on`.

    `point`, as "MNIST, 0.1", ends its title. `case` names its scenario, Dirichlet with `alpha`.
    """
    own_shares = validating_partition("dirichlet_clients", alpha=alpha)
    return exhibit(
        *on,
        title=f"FedFisher's grid on {point}",
        training={**(on[0]["training"] if on else {}), "epochs": 30},
        sweep={"partition.clients": [5]},
        cases={case: {"label": f"Dirichlet {alpha} per client", "partition": own_shares}},
    )


PARTS_1: dict[str, ExhibitData] = {}

FEW_OF_EACH = exhibit(cases={name: {"partition": FEWER_VALIDATE} for name in SKEWED})
PARTS_1["1-fashion-mnist-skewed"] = exhibit(  # at every scale
    ten_clients("Fashion-MNIST", "skewed", SKEWED),
    scales=["tiny", "quick", "paper"],
    quick=exhibit(FEW_OF_EACH, headline=True),
    tiny=FEW_OF_EACH,
)
PARTS_1["1-fashion-mnist-even"] = ten_clients("Fashion-MNIST", "even", EVEN)

# Every client starts from weights of its own, so methods may match units before they merge
MERGED = [
    component("average_shared", "FedAvg, one start", reference=True),
    FEDAVG,
    chosen("ot_fusion", "OT fusion", settings="grid"),
    chosen("weight_matching", "weight matching", settings="grid"),
    component("c2m3", "cycle-consistent matching"),
    chosen("matched_regmean", "matching, then RegMean", settings="grid"),
    chosen("matched_kfac", "matching, then FedFisher (K-FAC)", steps=KFAC_STEPS),
]
PFNM = chosen("pfnm", "PFNM", settings=[{"sigma2": s} for s in (0.1, 0.3, 1.0, 3.0)])
FEWER_STARTS = exhibit(
    partition=FEWER_VALIDATE,
    methods=[*BOUNDS, *MERGED, SMALL_FEDDF, *ENSEMBLES],
    cases={"perceptron": {"model": {"hidden": [20, 20]}}},
)
PARTS_1["1-starts"] = exhibit(
    scales=["tiny", "paper"],  # the quick report draws a leaderboard if it has all its tables
    title="Clients of different starts on Fashion-MNIST",
    training={"shared_init": False},
    partition=DIRICHLET_01,
    methods=[*BOUNDS, *MERGED, FEDDF, *ENSEMBLES],
    cases={
        "lenet": {"label": "Dirichlet 0.1"},
        "perceptron": {"label": WITH_PERCEPTRON, "model": PERCEPTRON, "methods": [PFNM]},
    },
    tiny=FEWER_STARTS,
)
PARTS_1["1-perceptron"] = exhibit(
    title="A perceptron on Fashion-MNIST",
    model=PERCEPTRON,
    cases={"perceptron": {"label": WITH_PERCEPTRON, "partition": DIRICHLET_01}},
)
PARTS_1["1-fashion-mnist-clients"] = exhibit(
    title="LeNet on Fashion-MNIST, five and twenty clients",
    sweep={"partition.clients": [5, 20]},
    drawing=component("table", columns=["case", "clients"]),
    cases={"dirichlet-01": {"label": "Dirichlet 0.1", "partition": DIRICHLET_01}},
)
PARTS_1["1-fedfisher-fashion-mnist-01"] = fedfisher("Fashion-MNIST, 0.1", "own-01", 0.1)
PARTS_1["1-fedfisher-fashion-mnist-005"] = fedfisher("Fashion-MNIST, 0.05", "own-005", 0.05)
PARTS_1["1-fedfisher-fashion-mnist-02"] = fedfisher("Fashion-MNIST, 0.2", "own-02", 0.2)
PARTS_1["1-mnist-skewed"] = ten_clients("MNIST", "skewed", SKEWED, ON_MNIST)
PARTS_1["1-mnist-even"] = ten_clients("MNIST", "even", EVEN, ON_MNIST)
PARTS_1["1-cifar10-skewed"] = ten_clients("CIFAR-10", "skewed", SKEWED, ON_CIFAR10)
PARTS_1["1-cifar10-even"] = ten_clients("CIFAR-10", "even", EVEN, ON_CIFAR10)
PARTS_1["1-fedfisher-cifar10"] = fedfisher("CIFAR-10, one point", "own-01", 0.1, ON_CIFAR10)

# fifteen times LeNet's weights, fewer images, and fewer settings of what costs most
CHEAPER = merges(
    chosen("fedfisher_kfac", "FedFisher (K-FAC)", steps=[5, 20]),
    chosen("fedlpa", "FedLPA", damping=[0.001, 0.1], steps=20),
    chosen("regmean_plus", "RegMean++", alpha=0.9),
)
OF_2000 = with_changes(DIRICHLET_01, validation=2000)
PARTS_1["1-cifar10-network"] = exhibit(
    title="A larger network on 20,000 images of CIFAR-10",
    dataset=component("cifar10", train=20000),
    model=with_changes(LENET, channels=[32, 64], hidden=[512, 128]),
    training=AUGMENTED,
    methods=[*BOUNDS, *CHEAPER, *ENSEMBLES],
    cases={"dirichlet-01": {"label": "larger network, Dirichlet 0.1", "partition": OF_2000}},
)


# The same local epochs in more rounds. It is not a part of arena/1, whose methods have one
# exchange, but on its ground. About 5 core-hours at the paper's size by `fedrepro plan`.
ROUNDS = exhibit(
    # fixed before the first number was read: three, and two more, whatever these showed
    trials=5,
    title="What more exchanges are worth: LeNet on Fashion-MNIST, Dirichlet 0.1",
    caption="""Test accuracy in percent after the same number of local epochs at each client, in
        one round or cut into more. Means over trials, each with a partition of its own, with
        one standard deviation. Bold: the best of a column.""",
    training={"epochs": 20},
    partition=DIRICHLET_01,
    parameters={"fraction": 1.0},
    methods=[
        BEST_CLIENT,
        POOLED,
        component("fedavg", "FedAvg"),
        chosen("fedavg", "FedProx", proximal=[0.001, 0.01, 0.1, 1.0]),
        chosen("fedavg", "FedAvgM", server_momentum=[0.5, 0.9]),
        chosen("fedadam", "FedAdam", server_lr=[0.001, 0.01, 0.1]),
        chosen("scaffold", "SCAFFOLD", server_lr=[0.5, 1.0]),
        component("fednova", "FedNova"),
        chosen("feddyn", "FedDyn", settings="grid"),
    ],
    cases={
        "one": {"label": "1 round", "parameters": {"rounds": 1, "epochs": 20}},
        "five": {"label": "5 rounds", "parameters": {"rounds": 5, "epochs": 4}},
        "twenty": {"label": "20 rounds", "parameters": {"rounds": 20, "epochs": 1}},
    },
    notes=[
        """All clients take part in every round. SCAFFOLD's controls and FedNova's lengths count a
            step with momentum as FedNova does: as the steps without it that go as far.""",
        """Each method tries at most eight settings, chosen by accuracy on the clients'
            validation examples. FedDyn's server overshoots in its first round; its paper
            reports the mean of the clients' models too.""",
    ],
)

# how arena/2 differs: which values it tries
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
    """Return `methods`; one in `grids`, {label: {parameter: values}}, tries all combinations."""
    changed = list(methods)
    for at, method in enumerate(methods):
        if grid := grids.get(method.get("label", "")):
            settings = [dict(zip(grid, each, strict=True)) for each in product(*grid.values())]
            kept = {key: method[key] for key in ("name", "label", "choose")}
            changed[at] = {**kept, "settings": settings, **FIXED.get(kept["label"], {})}
    return changed


def second(table: ExhibitData) -> ExhibitData:
    """Return `table` of arena/1 as one of arena/2: methods try GRIDS, clients train 10 epochs."""
    methods = regrid((DEFAULTS | table)["methods"], GRIDS)
    cases = {
        name: case | ({"methods": regrid(case["methods"], GRIDS)} if "methods" in case else {})
        for name, case in table["cases"].items()
    }
    made = exhibit(table, place="arena/2", scales=["paper"], methods=methods, cases=cases, at={})
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


def residual(norm: str, alpha: float) -> ExhibitData:
    """Return a table of merging methods and ensembles on ResNet-8, with the settings of arena/2.

    `norm` is "group" or "batch" (normalisation), `alpha` of Dirichlet shares. To run it takes 5
    core-hours, or 9. Named "2-…" in EXHIBITS, as it will be once it was run, it joins arena/2.
    """
    title = f"ResNet-8 with {norm.title()}Norm"
    case = {"partition": {**OF_2000, "alpha": alpha}, "label": f"{title}, Dirichlet {alpha}"}
    on_pictures = exhibit(
        PARTS_1["1-cifar10-network"],
        title=f"{title} on 20,000 images of CIFAR-10",
        model=component("resnet8", norm=norm),
        cases={f"dirichlet-{alpha}": case},
    )
    table = second(on_pictures)
    if norm == "group":
        return table
    methods, merging = table["methods"], {method["label"] for method in MERGES}
    return exhibit(
        table,
        methods=[by_rules(one) if one["label"] in merging else one for one in methods],
        notes=[*NOTES, RULES_TRIED],
    )


def by_rules(method: Entry) -> Entry:
    """Return `method` trying settings twice: BatchNorm statistics averaged, and measured again."""
    rules, settings = ["average", "recalibrate"], method.get("settings", [{}])
    if settings == "grid":
        return {**method, "batchnorm": rules, "choose": BEST}
    tried = [{**each, "batchnorm": rule} for each in settings for rule in rules]
    return {**method, "settings": tried, "choose": BEST}


ROUNDS_2 = exhibit(
    ROUNDS,
    training={"epochs": 10},
    methods=regrid(ROUNDS["methods"], IN_ROUNDS),
    cases={
        "one": {"label": "1 round", "parameters": {"rounds": 1, "epochs": 10}},
        "five": {"label": "5 rounds", "parameters": {"rounds": 5, "epochs": 2}},
        "ten": {"label": "10 rounds", "parameters": {"rounds": 10, "epochs": 1}},
    },
)
EXHIBITS = {
    "paper": "arena",
    "title": "Which method should I use?",
    "source": "a leaderboard of this project",
    "boards": {"1": BOARD_1, "2": BOARD_2},
    "defaults": DEFAULTS,
    "exhibits": {
        **PARTS_1,
        "rounds": ROUNDS,
        **{name.replace("1-", "2-", 1): second(part) for name, part in PARTS_1.items()},
        "resnet-group-05": residual("group", 0.5),
        "resnet-group-01": residual("group", 0.1),
        "resnet-batch-05": residual("batch", 0.5),
        "resnet-batch-01": residual("batch", 0.1),
        "rounds-2": ROUNDS_2,
    },
}
