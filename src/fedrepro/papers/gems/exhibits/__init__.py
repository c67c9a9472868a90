"""The tables and figures of the paper, one per data set, so that each is computed by itself.

From the same runs, figure-3 and figure-4 show all three data sets, and in-all the six scenarios of
tables 1 and 2. Table 10 of the paper repeats its table 3. Its figure 5, which counts examples of
each class, is left out. A method is a dict of its configuration's keys.
"""

from typing import Any

from fedrepro.papers.gems.exhibits import tables as t
from fedrepro.planning.exhibit_config import Entry, ExhibitData, component, exhibit, with_changes

exhibits: dict[str, ExhibitData] = {}

RAW = component("raw", "Raw")

BY_IMAGES = exhibit(
    drawing=component("accuracy-close-up", x_label="public images"),
    caption="""Test accuracy after tuning on public images, and of a model trained on them alone
        (Raw). Means over five samples of a size and over trials, bands one standard deviation.""",
    sweep={"tune.examples": [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]},
    scales=["paper"],
)


def all_tuned(gems: Entry, end: str = " tuned", **changes: Any) -> list[Entry]:
    """Return `gems`, average and local models with keys `changes` (as tune), `end` after labels."""
    return [with_changes(one, one["label"] + end, **changes) for one in (gems, t.AVERAGED, t.LOCAL)]


# what differs on CIFAR-10 and HAM10000 in figures 3 and 4, which show all data sets
ELSEWHERE: dict[str, Entry] = {"cifar10": {"dataset": t.CIFAR}, "ham10000": {"dataset": t.HAM}}
OF_3 = {data: {**of, "parameters": {"epsilon": 0.2}} for data, of in ELSEWHERE.items()}
OF_4 = {k: {**ELSEWHERE.get(k, {}), "parameters": v["parameters"]} for k, v in t.NETWORKS.items()}
OF_4["cifar10"]["model"] = {"hidden": [100]}
for figure, models, of_data, gems, layers, changes in (
    (3, "logistic models", t.LOGISTIC, t.GEMS, "all", OF_3),
    (4, "networks", t.NETWORKS, t.NEURAL_GEMS, "last", OF_4),
):
    tune = {"repetitions": 5, "epochs": 5, "lr": 0.01, "layers": layers}
    slow = {"tune": {**tune, "lr": 0.001, "layers": "all"}}  # of controls
    controls = [with_changes(t.LOCAL, "Local tuned, 0.001", **slow), with_changes(RAW, **slow)]
    for data, on_data in of_data.items():
        exhibits[f"figure-{figure}-{data}"] = exhibit(
            on_data,
            BY_IMAGES,
            title=f"Tuned {models} against the number of public images{t.ENDS[data]}",
            place=f"section 4.4, figure {figure}",
            methods=[*all_tuned(gems, tune=tune), *controls],
        )
    exhibits[f"figure-{figure}"] = exhibit(
        exhibits[f"figure-{figure}-mnist"],
        parameters={},
        cases={data: with_changes(t.FIVE, **changes.get(data, {})) for data in of_data},
    )

EPSILONS = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95]
OF_BOTH: Entry = {"epsilon_first": EPSILONS, "epsilon": EPSILONS}  # of the two clients
exhibits["figure-6"] = exhibit(
    drawing=component("heat-maps", split="test", sizes=False, where="common_point"),
    title="Where the balls of two clients have a common point",
    place="appendix C.4, figure 6",
    caption="""Test accuracy of the logistic model with which the descent ends, by the accuracy that
        either client's ball asks for; red crosses where balls provably have no common point.""",
    partition={"clients": 2},
    methods=[with_changes(t.BALLS, "GEMS", **OF_BOTH, show=[*OF_BOTH]), t.LOCAL, t.AVERAGED],
    scales=["paper"],
)

OF_SPACES: Entry = {"epsilon": [0.2, 0.4, 0.6, 0.8, 0.9, 0.95], "points": [50, 500, 5000]}
OF_RADII = {"metric": "radius", "split": "", "best": "none"}
exhibits["epsilon-and-p"] = exhibit(
    drawing=component("table", rows=["method", "epsilon"], columns=["points"], **OF_RADII),
    title="Radii by ε and the number of points a surface",
    caption="""Mean radius of the spaces of five clients by the accuracy that models in them need
        (ε), for so many points drawn from each surface (p).""",
    methods=[with_changes(one, **OF_SPACES, show=[*OF_SPACES]) for one in (t.BALLS, t.GEMS)],
    trials=5,
    scales=["paper"],
)

RATES = [0.01, 0.001]
TUNE: Entry = {"examples": 1000, "repetitions": 5, "epochs": 5, "lr": RATES}
SCOPE: Entry = {"tune": {**TUNE, "layers": ["all", "last"]}, "show": ["layers", "lr"]}
LONGER: Entry = {"examples": 1000, "repetitions": 5, "epochs": 50, "patience": 3, "lr": RATES}
exhibits["tuning-scope"] = exhibit(
    t.MNIST_NETWORKS,
    drawing=component("table", rows=["method", "layers"], columns=["lr"], best="column"),
    title="What tuning moves, and how fast",
    place="beyond the paper; section 4.4 and the authors' code",
    caption="""Test accuracy in percent of five clients' networks after 5 epochs on 1,000 public
        images, by step size and moving layers; and trained on these alone, for 5 or up to 50.""",
    methods=[
        *all_tuned(t.NEURAL_GEMS, **SCOPE),
        with_changes(RAW, "Raw, 5 epochs", tune=TUNE, show=["lr"]),
        with_changes(RAW, "Raw, up to 50 epochs", tune=LONGER, show=["lr"]),
    ],
    paper={"trials": 5},
)

AT_BOTH_POINTS = [
    with_changes(space, f"{space['label']}{end}", **point)
    for space in (t.BALLS, t.GEMS, t.BALLS_HIGH, t.GEMS_HIGH)
    for end, point in (("", {}), (", deepest", {"point": "deepest"}))
]
exhibits["deepest-point"] = exhibit(
    title="The point of the descent and the deepest one",
    caption="""Test accuracy in percent of the point at which the descent ends, and of the deepest
        one, whose largest distance from a client's model, in radii, is least.""",
    methods=[t.AVERAGED, *AT_BOTH_POINTS],
    cases=t.NUMBERS_OF_CLIENTS,
    paper={"trials": 5},
)

EACH_STOPS = {**t.NETWORK, "methods": [t.NEURAL_GEMS, t.NEURAL_LAST]}
WHOLE = with_changes(t.NETWORK["training"], patience=0)
exhibits["early-stopping"] = exhibit(
    title="What early stopping of each client does to averages",
    caption="Test accuracy in percent where each client stops by itself, and where none does.",
    cases={
        "logistic": {"label": "logistic, each stops"},
        "logistic-whole": {"label": "logistic, 40 epochs", "training": {"patience": 0}},
        "network": with_changes(EACH_STOPS, "network, each stops"),
        "network-whole": with_changes(EACH_STOPS, "network, 40 epochs", training=WHOLE),
    },
    methods=[*t.BASELINES, t.GEMS, t.GEMS_TUNED],
    paper={"trials": 5},
)

BY_DEVIATION = with_changes(
    t.NEURAL_GEMS, epsilon_hidden=[0.01, 0.03, 0.1, 0.3, 0.7], clusters=150, show=["epsilon_hidden"]
)
WITHOUT_CLUSTERS = with_changes(BY_DEVIATION, "GEMS, no clusters", clusters=1, merge="tuples")
exhibits["cifar-sizes"] = exhibit(
    t.NETWORKS["cifar10"],
    drawing=component(
        "table", rows=["epsilon_hidden"], columns=["method"], sizes=True, best="none"
    ),
    title="Hidden units that remain, by ε_hidden, CIFAR-10",
    place="beyond the paper; section 4.5",
    caption="""Test accuracy in percent and hidden units of 500, for 150 clusters, and without
        clusters, where tuples of units of different clients merge.""",
    parameters={"epsilon_final": 0.2},
    methods=[
        BY_DEVIATION,
        t.tuned_last(BY_DEVIATION, "GEMS tuned"),
        WITHOUT_CLUSTERS,
        t.tuned_last(WITHOUT_CLUSTERS, "GEMS, no clusters, tuned"),
    ],
    **t.SMALL,
    paper={"trials": 5},
)
exhibits["cifar-feature-sizes"] = exhibit(
    scales=["paper"],
    title="Features of CIFAR-10 by the side of the images",
    place="beyond the paper; appendix B.1",
    caption="""Test accuracy in percent of a logistic model trained on all data, on features of
        EfficientNet-Lite0. The exhibits have 40, which was picked by these accuracies.""",
    dataset=t.CIFAR,
    parameters={"epsilon": 0.2},
    cases={
        "side-32": {"label": "32 × 32", "dataset": {"features": "lite0.size-32"}},
        "side-40": {"label": "40 × 40"},
        "side-48": {"label": "48 × 48", "dataset": {"features": "lite0.size-48"}},
        "side-64": {"label": "64 × 64", "dataset": {"features": "lite0.size-64"}},
    },
    methods=[component("pooled", "Global")],
    paper={"trials": 5},
)

exhibits["ham10000-features"] = exhibit(
    exhibits["cifar-feature-sizes"],
    dataset=t.HAM,
    title="Features of HAM10000",
    place="appendix B.1",
    caption="""Test accuracy in percent of a logistic model trained on all data, on features of
        EfficientNet-Lite0, trained on ImageNet, and on those of the paper's own network.""",
    cases={
        "imagenet": {"label": "ImageNet features", "dataset": {"features": "lite0.size-64"}},
        "own": {"label": "own features"},
    },
)

BY_EXAMPLES = exhibit(
    drawing=component("table", columns=["examples", "lr"]),
    place="beyond the paper; section 4.4",
    sweep={"tune.examples": [100, 1000]},
)


def both_rates(layers: str = "all", **changes: Any) -> Entry:
    """Return a method's keys to fine-tune `layers` (all or last) at rates 0.01 and 0.001.

    By the key `show` a table has a column for each rate; `changes` are more keys of fine-tuning.
    """
    tune = {"repetitions": 5, "epochs": 5, "lr": RATES, "layers": layers, **changes}
    return {"tune": tune, "show": ["lr"]}


RAW_AT_BOTH = [
    with_changes(RAW, **both_rates()),
    with_changes(RAW, "Raw, up to 50 epochs", **both_rates(epochs=50, patience=3)),
]
exhibits["equal-steps"] = exhibit(
    BY_EXAMPLES,
    title="Tuning at equal step sizes",
    caption="""Test accuracy in percent of five clients' logistic models after 5 epochs on so many
        public images at both step sizes; and trained on these alone, for 5 or up to 50.""",
    methods=[*all_tuned(t.GEMS, **both_rates()), *RAW_AT_BOTH],
)

AS_IN_CODE: Entry = {"repetitions": 5, "epochs": 50, "lr": 0.001, "layers": "all", "patience": 3}
exhibits["equal-steps-networks"] = exhibit(
    t.MNIST_NETWORKS,
    BY_EXAMPLES,
    title="Tuning of networks at equal step sizes",
    caption="""As equal-steps, of networks, with the last layer tuned or all; and of what is trained
        on the images alone as the authors' code has it.""",
    methods=[
        *all_tuned(t.NEURAL_GEMS, **both_rates("last")),
        *all_tuned(t.NEURAL_GEMS, " tuned, all layers", **both_rates()),
        *RAW_AT_BOTH,
        with_changes(RAW, "Raw, as in the code", tune=AS_IN_CODE),
    ],
)

UNTRAINED = with_changes(t.NEURAL_GEMS, "Units untrained", units="untrained")
UNTRAINED_LAST = t.tuned_last(UNTRAINED, "Units untrained, tuned")
RANDOM_TUNED = [t.AVERAGED_LAST, t.NEURAL_LAST, t.UNITS_DRAWN_LAST, UNTRAINED_LAST]
RULE_OF_CODE = with_changes(t.NEURAL_GEMS, "GEMS, the code's rule", merge="greedy")
exhibits["random-units"] = exhibit(
    t.MNIST_NETWORKS,
    title="Merged units, and as many at random",
    place="beyond the paper; section 3.2",
    caption="""Test accuracy in percent of networks whose hidden units are merged (GEMS), are as
        many of the clients' own drawn at random, or are as many that nobody has trained, with
        output layers made in one way; the same after tuning these on 1,000 public images.""",
    methods=[t.AVERAGED, t.NEURAL_GEMS, t.UNITS_DRAWN, UNTRAINED, *RANDOM_TUNED],
    cases={
        **t.NUMBERS_OF_CLIENTS,
        "two": with_changes(t.TWO, parameters=t.IN_TUPLES, methods=[RULE_OF_CODE]),
    },
)
exhibits["two-epsilons"] = exhibit(
    title="ε as printed and as in the authors' notebook",
    place="beyond the paper; appendix C.1",
    caption="""Test accuracy in percent of logistic models at ε = 0.4, as printed for five clients,
        and at 0.7; and at 0.4 with radii within which every model is proven good enough.""",
    methods=[
        t.AVERAGED,
        t.GEMS,
        t.GEMS_NOTEBOOK,
        t.BALLS,
        with_changes(t.BALLS, "GEMS, balls, ε = 0.7", epsilon=0.7),
        with_changes(t.GEMS, "GEMS, proven radii", radii="proven"),
        with_changes(t.BALLS, "GEMS, balls, proven radii", radii="proven"),
        t.AVERAGED_TUNED,
        t.GEMS_TUNED,
        t.tuned(t.GEMS_NOTEBOOK, "GEMS, ε = 0.7, tuned"),
    ],
    cases=t.NUMBERS_OF_CLIENTS,
)

LEVELS: Entry = {"epsilon": [0.2, 0.4, 0.6, 0.7, 0.8, 0.9], "show": ["epsilon"]}
AT_CLIENTS = [
    {"metric": f"accuracy_client_{j}", "title": f"Accuracy at client {j}", "along": "epsilon"}
    for j in range(1, 6)
]
ENOUGH = {"metric": "clients_met", "title": "Clients where it is enough", "along": "epsilon"}
exhibits["clients-at-points"] = exhibit(
    scales=["quick", "paper"],
    drawing=component(
        "lines",
        panels=[*({**one, "dots": one["metric"], "bound": "x"} for one in AT_CLIENTS), ENOUGH],
    ),
    title="What the common point is worth at each client",
    place="beyond the paper; section 3.1",
    caption="""Accuracy of the point that GEMS takes at each of five clients, on the validation
        examples that its space was made from, by the accuracy that a space asks for (ε, dotted).
        Dots are trials, lines their means, bands one standard deviation.""",
    methods=[
        with_changes(t.BALLS, "Balls", **LEVELS),
        with_changes(t.GEMS, "Ellipsoids", **LEVELS),
        with_changes(t.BALLS, "Balls, proven radii", radii="proven", **LEVELS),
    ],
)
exhibits["equal-epochs"] = exhibit(
    title="Two and three clients that stop by themselves or train equally long",
    place="beyond the paper; appendix C.1",
    caption="As early-stopping, of logistic models of two and of three clients.",
    methods=[t.LOCAL, t.AVERAGED, t.GEMS, t.GEMS_NOTEBOOK, t.AVERAGED_TUNED, t.GEMS_TUNED],
    cases={
        "two": with_changes(t.TWO, "J = 2, each stops"),
        "two-whole": with_changes(t.TWO, "J = 2, 40 epochs", training={"patience": 0}),
        "three": with_changes(t.THREE, "J = 3, each stops"),
        "three-whole": with_changes(t.THREE, "J = 3, 40 epochs", training={"patience": 0}),
    },
)

STEPS = {"lr": 0.001, "l2": 0.0, "batch_size": 32, "epochs": 40}
EXHIBITS = {
    "paper": "gems",
    "title": "Model aggregation via good-enough model spaces",
    "source": "Guha, Smith; arXiv 1805.07782, 2018",
    "defaults": exhibit(
        t.LOGISTIC["mnist"],
        place="beyond the paper",  # where an exhibit does not say another
        dataset=t.MNIST,
        partition=component("by_label", clients=5),
        model=component("logistic"),
        training=component("adam", **STEPS, amsgrad=False, patience=5, weight_sd=0.05, bias=0.0),
        sweep={},
        trials=5,
        drawing=component("table", rows=["method"], sizes=False),
        size="hidden_units",
        notes=["Settings that the paper does not give, and their reasons, are in its findings."],
        # print has 5 trials, on which most sentences stay undecided
        paper={"trials": 20},
        **t.SMALL,
    ),
    "exhibits": {**t.exhibits, **exhibits},
}
