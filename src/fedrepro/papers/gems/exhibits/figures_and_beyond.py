"""Figures of the paper, each of one data set and of all three, and experiments beyond the paper."""

from __future__ import annotations

from typing import Any

from fedrepro.papers.gems.exhibits import tables
from fedrepro.planning.exhibit_settings import Entry, ExhibitData, component, exhibit, with_changes

exhibits: dict[str, ExhibitData] = {}

RAW_NOTE = """What is trained on the sample alone (Raw) has 5 epochs at a step size of 0.001, as in
    the authors' code for logistic models; for networks it has up to 50, which tuning-scope
    shows."""
RAW = component("raw", "Raw")

BY_IMAGES = exhibit(
    drawing=component("accuracy-close-up", x_label="public images"),
    caption="""Test accuracy after tuning on so many public images, and of a model trained on them
        alone (Raw). Means over five samples of each size and over trials, bands one standard
        deviation over trials.""",
    sweep={"tune.examples": [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]},
    at={
        "quick": exhibit(tables.QUICK, sweep={"tune.examples": [100, 300, 1000]}),
        "tiny": exhibit(tables.TINY, sweep={"tune.examples": [100, 1000]}),
    },
)


def tuned_on_samples(gems: Entry, layers: str) -> list[Entry]:
    """List configurations of the methods in figures 3 and 4, fine-tuned on public images.

    `gems` is the configuration of GEMS; `layers` says which layers are fine-tuned, "all" or "last".
    """
    tune: Entry = {"repetitions": 5, "epochs": 5, "lr": 0.01, "layers": layers}
    slow = with_changes(tune, lr=0.001, layers="all")
    return [
        with_changes(gems, "GEMS tuned", tune=tune),
        with_changes(tables.AVERAGED, "Averaged tuned", tune=tune),
        with_changes(tables.LOCAL, "Local tuned", tune=tune),
        with_changes(tables.LOCAL, "Local tuned, 0.001", tune=slow),
        with_changes(RAW, tune=slow),
    ]


def panels(of_mnist: ExhibitData, cases: dict[str, Entry]) -> ExhibitData:
    """Return the configuration of the figure `of_mnist` with a panel for each of three data sets.

    `cases` has their configurations by name. In small test runs, digits replace the data sets.
    """
    at = of_mnist["at"]
    return exhibit(
        of_mnist,
        drawing=component("accuracy-close-up", x_label="public images"),
        cases=cases,
        at={scale: exhibit(at[scale], cases=tables.stand_ins()) for scale in ("quick", "tiny")},
    )


for data, on_data in tables.LOGISTIC.items():
    exhibits[f"figure-3-{data}"] = exhibit(
        on_data,
        BY_IMAGES,
        title=f"Tuned logistic models against the number of public images{tables.ENDS[data]}",
        place="section 4.4, figure 3",
        methods=tuned_on_samples(tables.GEMS, "all"),
        notes=[RAW_NOTE, *on_data["notes"]],
    )
exhibits["figure-3"] = panels(
    exhibit(exhibits["figure-3-mnist"], notes=[RAW_NOTE, *tables.NOTES_OF_ALL]),
    cases={
        "mnist": tables.FIVE,
        "cifar10": with_changes(tables.FIVE, dataset=tables.CIFAR, parameters={"epsilon": 0.2}),
        "ham10000": with_changes(tables.FIVE, dataset=tables.HAM, parameters={"epsilon": 0.2}),
    },
)

for data, networks in tables.NETWORKS.items():
    exhibits[f"figure-4-{data}"] = exhibit(
        networks,
        BY_IMAGES,
        title=f"Tuned networks against the number of public images{tables.ENDS[data]}",
        place="section 4.4, figure 4",
        methods=tuned_on_samples(tables.NEURAL_GEMS, "last"),
        notes=[RAW_NOTE, *networks["notes"]],
    )
exhibits["figure-4"] = panels(
    exhibit(
        exhibits["figure-4-mnist"],
        parameters={},
        notes=[RAW_NOTE, tables.HEADS, *tables.NOTES_OF_ALL],
    ),
    cases={
        "mnist": with_changes(tables.FIVE, parameters=tables.MNIST_NETWORKS["parameters"]),
        "cifar10": with_changes(
            tables.FIVE,
            dataset=tables.CIFAR,
            model={"hidden": [100]},
            parameters=tables.CIFAR_NETWORKS["parameters"],
        ),
        "ham10000": with_changes(
            tables.FIVE, dataset=tables.HAM, parameters=tables.HAM_NETWORKS["parameters"]
        ),
    },
)


def balls_of_two_clients(grid: list[float]) -> Entry:
    """Return GEMS's configuration that runs and shows all pairs of two clients' ε in `grid`."""
    return with_changes(
        tables.BALLS, "GEMS", epsilon_first=grid, epsilon=grid, show=["epsilon_first", "epsilon"]
    )


exhibits["figure-6"] = exhibit(
    drawing=component("heat-maps", split="test", sizes=False, where="common_point"),
    title="Where the balls of two clients have a common point",
    place="appendix C.4, figure 6",
    caption="""Test accuracy of the logistic model taken from the balls of two clients with five
        classes each, by the accuracy that a model needs to be in either; red crosses where the
        balls have no common point in any trial, which is certified. The number below is that of
        what the descent ends with.""",
    partition={"clients": 2},
    methods=[
        balls_of_two_clients([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95]),
        tables.LOCAL,
        tables.AVERAGED,
    ],
    notes=[
        "The paper gives no grid. Here it is 0.3 to 0.9 and 0.95; 16 balls a trial serve its "
        "64 pairs.",
        *tables.UNTUNED_NOTES,
    ],
    at={
        "tiny": {"methods": [balls_of_two_clients([0.3, 0.7, 0.95]), tables.LOCAL, tables.AVERAGED]}
    },
)


def balls_and_ellipsoids(epsilons: list[float], points: list[int]) -> list[Entry]:
    """List the configurations of GEMS with balls and with ellipsoids, for all values of parameters.

    `epsilons` are accuracies that a good enough model must have, `points` numbers of random models
    to test each radius with; all pairs are run and shown.
    """
    grid: Entry = {"epsilon": epsilons, "points": points, "show": ["epsilon", "points"]}
    return [with_changes(tables.BALLS, **grid), with_changes(tables.GEMS, **grid)]


exhibits["epsilon-and-p"] = exhibit(
    drawing=component(
        "table",
        rows=["method", "epsilon"],
        columns=["points"],
        metric="radius",
        split="",
        best="none",
    ),
    title="Radii by ε and the number of points a surface",
    place="beyond the paper",
    caption="""Mean radius of the spaces of five clients by the accuracy that models in them need
        (ε), for so many points drawn from each surface (p). The more points, the smaller a radius
        that all pass.""",
    methods=balls_and_ellipsoids([0.2, 0.4, 0.6, 0.8, 0.9, 0.95], [50, 500, 5000]),
    notes=[tables.MNIST_SPLIT, tables.STOPPING, tables.search("so many points")],
    at={"paper": {"trials": 5}, "tiny": {"methods": balls_and_ellipsoids([0.4, 0.9], [5, 50])}},
)

RATES = [0.01, 0.001]
TUNE: Entry = {"examples": 1000, "repetitions": 5, "epochs": 5, "lr": RATES}
SCOPE: Entry = {"tune": {**TUNE, "layers": ["all", "last"]}, "show": ["layers", "lr"]}
LONGER: Entry = {"examples": 1000, "repetitions": 5, "epochs": 50, "patience": 3, "lr": RATES}
exhibits["tuning-scope"] = exhibit(
    tables.MNIST_NETWORKS,
    drawing=component("table", rows=["method", "layers"], columns=["lr"], best="column"),
    title="What tuning moves, and how fast",
    place="beyond the paper; section 4.4 and the authors' code",
    caption="""Test accuracy in percent of networks of five clients after 5 epochs on 1,000 public
        images, by the step size and the layers that move; of what is trained on the images alone,
        for 5 epochs or up to 50. The text moves the last layer, the code all but that of the
        average, and local models at 0.001.""",
    methods=[
        with_changes(tables.NEURAL_GEMS, "GEMS tuned", **SCOPE),
        with_changes(tables.AVERAGED, "Averaged tuned", **SCOPE),
        with_changes(tables.LOCAL, "Local tuned", **SCOPE),
        with_changes(RAW, "Raw, 5 epochs", tune=TUNE, show=["lr"]),
        with_changes(RAW, "Raw, up to 50 epochs", tune=LONGER, show=["lr"]),
    ],
    notes=[tables.HEADS, *tables.UNTUNED_NOTES],
    at={"paper": {"trials": 5}},
)
exhibits["deepest-point"] = exhibit(
    title="The point of the descent and the deepest one",
    place="beyond the paper",
    caption="""Test accuracy in percent of the point at which the descent ends, which is the mean of
        the models wherever that lies in all spaces, and of the deepest one, whose largest distance
        from a client's model, in radii, is least; two, three and five clients.""",
    methods=[
        tables.AVERAGED,
        tables.BALLS,
        with_changes(tables.BALLS, "GEMS, balls, deepest", point="deepest"),
        tables.GEMS,
        with_changes(tables.GEMS, "GEMS, deepest", point="deepest"),
        tables.BALLS_HIGH,
        with_changes(tables.BALLS_HIGH, "GEMS, balls, ε = 0.9, deepest", point="deepest"),
        tables.GEMS_HIGH,
        with_changes(tables.GEMS_HIGH, "GEMS, ε = 0.9, deepest", point="deepest"),
    ],
    cases=tables.NUMBERS_OF_CLIENTS,
    notes=tables.UNTUNED_NOTES,
    at={"paper": {"trials": 5}},
)

EACH_STOPS: Entry = {
    "label": "network, each stops",
    **tables.NETWORK,
    "methods": [tables.NEURAL_GEMS, tables.NEURAL_LAST],
}
WHOLE = with_changes(tables.NETWORK["training"], patience=0)
exhibits["early-stopping"] = exhibit(
    title="What early stopping of each client does to averages",
    place="beyond the paper",
    caption="""Test accuracy in percent where each client stops by itself, and where all train for
        40 epochs.""",
    cases={
        "logistic": {"label": "logistic, each stops"},
        "logistic-whole": {"label": "logistic, 40 epochs", "training": {"patience": 0}},
        "network": EACH_STOPS,
        "network-whole": with_changes(EACH_STOPS, label="network, 40 epochs", training=WHOLE),
    },
    methods=[*tables.BASELINES, tables.GEMS, tables.GEMS_TUNED],
    notes=[tables.HEADS, *tables.ON_MNIST["notes"]],
    at={"paper": {"trials": 5}},
)

BY_DEVIATION = with_changes(
    tables.NEURAL_GEMS,
    epsilon_hidden=[0.01, 0.03, 0.1, 0.3, 0.7],
    clusters=150,
    show=["epsilon_hidden"],
)
WITHOUT_CLUSTERS = with_changes(BY_DEVIATION, "GEMS, no clusters", clusters=1, merge="tuples")
exhibits["cifar-sizes"] = exhibit(
    tables.CIFAR_NETWORKS,
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
        tables.tuned_last(BY_DEVIATION, "GEMS tuned"),
        WITHOUT_CLUSTERS,
        tables.tuned_last(WITHOUT_CLUSTERS, "GEMS, no clusters, tuned"),
    ],
    at={**tables.SMALL, "paper": {"trials": 5}},
)
exhibits["cifar-feature-sizes"] = exhibit(
    scales=["paper"],
    title="Features of CIFAR-10 by the side of the images",
    place="beyond the paper; appendix B.1",
    caption="""Test accuracy in percent of a logistic model trained on all data, on features of
        EfficientNet-Lite0 at several sizes of the images. The exhibits have 40, which was picked by
        these accuracies.""",
    dataset=tables.CIFAR,
    parameters={"epsilon": 0.2},
    cases={
        "side-32": {"label": "32 × 32", "dataset": {"features": "lite0.size-32"}},
        "side-40": {"label": "40 × 40"},
        "side-48": {"label": "48 × 48", "dataset": {"features": "lite0.size-48"}},
        "side-64": {"label": "64 × 64", "dataset": {"features": "lite0.size-64"}},
    },
    methods=[component("pooled", "Global")],
    notes=[
        """Features of EfficientNet-Lite0 stand in for those of VGG-16, of which the paper gives
            neither layer nor input size; the latter varies here.""",
        tables.CIFAR_SPLIT,
    ],
    at={"paper": {"trials": 5}},
)

SMALL_FEATURES = exhibit(dataset=tables.DIGITS, cases={"imagenet": {"dataset": tables.DIGITS}})
exhibits["ham10000-features"] = exhibit(
    tables.ON_HAM,
    title="Features of HAM10000",
    place="appendix B.1",
    caption="""Test accuracy in percent of a logistic model trained on all data, on features of
        EfficientNet-Lite0, trained on ImageNet, and on those of the paper's own network.""",
    parameters={"epsilon": 0.2},
    cases={
        "imagenet": {"label": "ImageNet features", "dataset": {"features": "lite0.size-64"}},
        "own": {"label": "own features"},
    },
    methods=[component("pooled", "Global")],
    notes=[tables.LESIONS],
    at={"paper": {"trials": 5}, "quick": SMALL_FEATURES, "tiny": SMALL_FEATURES},
)

BY_EXAMPLES = exhibit(
    drawing=component("table", columns=["examples", "lr"]),
    place="beyond the paper; section 4.4",
    sweep={"tune.examples": [100, 1000]},
)


def at_both_rates(method: Entry, label: str, layers: str = "all", **changes: Any) -> Entry:
    """Return the configuration `method` with fine-tuning on five samples at two learning rates.

    Both rates are shown. `label` is the method's name; `layers` says which layers are fine-tuned,
    "all" or "last"; `changes` replace options of fine-tuning, such as 5 epochs.
    """
    tune = {"repetitions": 5, "epochs": 5, "lr": RATES, "layers": layers, **changes}
    return with_changes(method, label, tune=tune, show=["lr"])


exhibits["equal-steps"] = exhibit(
    BY_EXAMPLES,
    title="Tuning at equal step sizes",
    caption="""Test accuracy in percent of logistic models of five clients after 5 epochs on so many
        public images, each at both step sizes, and of what is trained on the images alone, for 5
        epochs or up to 50.""",
    methods=[
        at_both_rates(tables.GEMS, "GEMS tuned"),
        at_both_rates(tables.AVERAGED, "Averaged tuned"),
        at_both_rates(tables.LOCAL, "Local tuned"),
        at_both_rates(RAW, "Raw"),
        at_both_rates(RAW, "Raw, up to 50 epochs", epochs=50, patience=3),
    ],
    notes=tables.UNTUNED_NOTES,
)

AS_IN_CODE: Entry = {"repetitions": 5, "epochs": 50, "lr": 0.001, "layers": "all", "patience": 3}
exhibits["equal-steps-networks"] = exhibit(
    tables.MNIST_NETWORKS,
    BY_EXAMPLES,
    title="Tuning of networks at equal step sizes",
    caption="""Test accuracy in percent of networks of five clients after 5 epochs on so many public
        images, of the last layer or of all, each at both step sizes, and of what is trained on the
        images alone, for 5 epochs or up to 50, the latter at 0.001 as the authors' code has it.""",
    methods=[
        at_both_rates(tables.NEURAL_GEMS, "GEMS tuned", layers="last"),
        at_both_rates(tables.AVERAGED, "Averaged tuned", layers="last"),
        at_both_rates(tables.LOCAL, "Local tuned", layers="last"),
        at_both_rates(tables.NEURAL_GEMS, "GEMS tuned, all layers"),
        at_both_rates(tables.AVERAGED, "Averaged tuned, all layers"),
        at_both_rates(tables.LOCAL, "Local tuned, all layers"),
        at_both_rates(RAW, "Raw"),
        at_both_rates(RAW, "Raw, up to 50 epochs", epochs=50, patience=3),
        with_changes(RAW, "Raw, as in the code", tune=AS_IN_CODE),
    ],
    notes=[tables.HEADS, *tables.UNTUNED_NOTES],
)

UNTRAINED = with_changes(tables.NEURAL_GEMS, "Units untrained", units="untrained")
RULE_OF_CODE = with_changes(tables.NEURAL_GEMS, "GEMS, the code's rule", merge="greedy")
exhibits["random-units"] = exhibit(
    tables.MNIST_NETWORKS,
    title="Merged units, and as many at random",
    place="beyond the paper; section 3.2",
    caption="""Test accuracy in percent of networks whose hidden units are merged (GEMS), are as
        many of the clients' own drawn at random, or are as many that nobody has trained; output
        layers are made in the same way for all three. With two clients also by the rule of the
        authors' code. The same after tuning these on 1,000 public images.""",
    methods=[
        tables.AVERAGED,
        tables.NEURAL_GEMS,
        tables.UNITS_DRAWN,
        UNTRAINED,
        tables.AVERAGED_LAST,
        tables.NEURAL_LAST,
        tables.UNITS_DRAWN_LAST,
        tables.tuned_last(UNTRAINED, "Units untrained, tuned"),
    ],
    cases={
        **tables.NUMBERS_OF_CLIENTS,
        "two": with_changes(tables.TWO, parameters=tables.in_tuples(0.01), methods=[RULE_OF_CODE]),
    },
)
exhibits["two-epsilons"] = exhibit(
    title="ε as printed and as in the authors' notebook",
    place="beyond the paper; appendix C.1",
    caption="""Test accuracy in percent of logistic models at ε = 0.4, which the paper prints for
        five clients, and at 0.7, which the authors' notebook has; and at 0.4 with radii within
        which every model is proven to be good enough.""",
    methods=[
        tables.AVERAGED,
        tables.GEMS,
        tables.GEMS_NOTEBOOK,
        tables.BALLS,
        with_changes(tables.BALLS, "GEMS, balls, ε = 0.7", epsilon=0.7),
        with_changes(tables.GEMS, "GEMS, proven radii", radii="proven"),
        with_changes(tables.BALLS, "GEMS, balls, proven radii", radii="proven"),
        tables.AVERAGED_TUNED,
        tables.GEMS_TUNED,
        tables.tuned(tables.GEMS_NOTEBOOK, "GEMS, ε = 0.7, tuned"),
    ],
    cases=tables.NUMBERS_OF_CLIENTS,
)

LEVELS: Entry = {"epsilon": [0.2, 0.4, 0.6, 0.7, 0.8, 0.9], "show": ["epsilon"]}
exhibits["clients-at-points"] = exhibit(
    scales=["quick", "paper"],
    drawing=component(
        "lines",
        panels=[
            *(
                {
                    "metric": f"accuracy_client_{client}",
                    "title": f"Accuracy at client {client}",
                    "along": "epsilon",
                    "dots": f"accuracy_client_{client}",
                    "bound": "x",
                }
                for client in range(1, 6)
            ),
            {"metric": "clients_met", "title": "Clients where it is enough", "along": "epsilon"},
        ],
    ),
    title="What the common point is worth at each client",
    place="beyond the paper; section 3.1",
    caption="""Accuracy of the point that GEMS takes at each of five clients, on the validation
        examples that its space was made from, by the accuracy that a space asks for (ε, dotted);
        and at how many clients the point has it. Dots are trials, lines their means, bands
        one standard deviation.""",
    methods=[
        with_changes(tables.BALLS, "Balls", **LEVELS),
        with_changes(tables.GEMS, "Ellipsoids", **LEVELS),
        with_changes(tables.BALLS, "Balls, proven radii", radii="proven", **LEVELS),
    ],
    notes=tables.UNTUNED_NOTES,
)
exhibits["equal-epochs"] = exhibit(
    title="Two and three clients that stop by themselves or train equally long",
    place="beyond the paper; appendix C.1",
    caption="""Test accuracy in percent of logistic models where each client stops by itself, and
        where all train for 40 epochs. early-stopping has five clients.""",
    methods=[
        tables.LOCAL,
        tables.AVERAGED,
        tables.GEMS,
        tables.GEMS_NOTEBOOK,
        tables.AVERAGED_TUNED,
        tables.GEMS_TUNED,
    ],
    cases={
        "two": with_changes(tables.TWO, "J = 2, each stops"),
        "two-whole": with_changes(tables.TWO, "J = 2, 40 epochs", training={"patience": 0}),
        "three": with_changes(tables.THREE, "J = 3, each stops"),
        "three-whole": with_changes(tables.THREE, "J = 3, 40 epochs", training={"patience": 0}),
    },
    notes=tables.ON_MNIST["notes"],
)
