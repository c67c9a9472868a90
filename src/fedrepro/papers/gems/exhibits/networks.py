"""Networks with one hidden layer: tables 2, 3, 6 to 9 and 11, and exhibits beyond the paper.

Tables have five clients on MNIST unless an exhibit says otherwise.
"""

from __future__ import annotations

from fedrepro.papers.gems.exhibits.common import (
    AVERAGED,
    BASELINES,
    LOCAL,
    NEURAL_GEMS,
    NUMBERS_OF_CLIENTS,
    ON_CIFAR,
    ON_HAM,
    ON_MNIST,
    SMALL,
    THREE,
    TWO,
    tuned_last,
)
from fedrepro.planning.exhibit_settings import (
    Entry,
    ExhibitData,
    component,
    exhibit,
    text,
    with_changes,
)

HEADS = text("""
    Units of a cluster merge where each meets all before it, as in the authors' code; with one
    cluster, which stands for none, in tuples of different clients, as in the text. Clients then
    train their output layers anew for at most 10 epochs, and the intersection is that of balls
    around these.
""")

# epsilon_hidden: how far a unit's outputs may be from its own; clusters: m_ε
NETWORK = exhibit(
    model=component("mlp", hidden=[50], dropout=0.5),
    training={"patience": 3, "init": "glorot"},
    parameters={"epsilon_hidden": 1.0, "clusters": 100},
)
MNIST_NETWORKS = exhibit(NETWORK, notes=[HEADS, *ON_MNIST["notes"]])
CIFAR_NETWORKS = exhibit(
    NETWORK,
    ON_CIFAR,
    model=component("mlp", hidden=[100], dropout=0.5),
    parameters={"epsilon_hidden": 0.3, "clusters": 200, "epsilon_final": 0.2},
    notes=[HEADS, *ON_CIFAR["notes"]],
)
HAM_NETWORKS = exhibit(
    NETWORK,
    ON_HAM,
    parameters={"epsilon_hidden": 0.07, "clusters": 100, "epsilon_final": 0.25},
    notes=[HEADS, *ON_HAM["notes"]],
)

AVERAGED_LAST = tuned_last(AVERAGED, "Averaged tuned")
NEURAL_LAST = tuned_last(NEURAL_GEMS, "GEMS tuned")
ALL_LAST = [tuned_last(LOCAL, "Local tuned"), AVERAGED_LAST, NEURAL_LAST]
UNITS_DRAWN = with_changes(NEURAL_GEMS, "Units drawn", units="drawn")
UNITS_DRAWN_LAST = tuned_last(UNITS_DRAWN, "Units drawn, tuned")


def in_tuples(epsilon_hidden: float) -> Entry:
    """Merge units greedily in tuples of different clients; one cluster means no clustering."""
    return {"epsilon_hidden": epsilon_hidden, "clusters": 1, "merge": "tuples"}


# ------------------------------------------------------------------- tables 2, 6, 7 and 8: clients
def table_2(
    networks: ExhibitData, data: str = "", classes: str = "two classes each"
) -> ExhibitData:
    """Return table 2; `data` is the end of its title, for data sets other than MNIST."""
    return exhibit(
        networks,
        drawing=component("table", sizes=True),
        title=f"Networks of five clients with {classes}{data}",
        place="section 4.3, table 2",
        caption=text("""
            Test accuracy in percent of networks with one hidden layer, trained on all data
            (Global), of clients alone (Local, mean and spread over clients), of their average, and
            of units and heads in the intersection of their spaces (GEMS), or on as many units of
            the clients drawn at random; the same after tuning the last layer on 1,000 public
            images. Means over trials, with one standard deviation, and hidden units.
        """),
        methods=[*BASELINES, NEURAL_GEMS, *ALL_LAST, UNITS_DRAWN, UNITS_DRAWN_LAST],
    )


def other_numbers_of_clients(
    networks: ExhibitData, table: int, data: str, epsilon_of_two: float, three: Entry = THREE
) -> ExhibitData:
    """Return table 2 with two, three and five clients; `epsilon_of_two` is ε_hidden of two."""
    return exhibit(
        table_2(networks),
        title=f"Networks of two, three and five clients{data}",
        place=f"appendix C.2, table {table}",
        caption=text("""
            As table 2, with other numbers of clients J, each with its ε_hidden and m_ε. One
            cluster, with two clients, stands for none: units of both then merge in pairs.
        """),
        cases={
            **NUMBERS_OF_CLIENTS,
            "two": with_changes(TWO, parameters=in_tuples(epsilon_of_two)),
            "three": three,
        },
    )


def table_6() -> ExhibitData:
    return other_numbers_of_clients(MNIST_NETWORKS, 6, "", epsilon_of_two=0.01)


def table_7() -> ExhibitData:
    three = with_changes(THREE, parameters={"clusters": 150})
    return other_numbers_of_clients(
        CIFAR_NETWORKS, 7, ", CIFAR-10", epsilon_of_two=0.1, three=three
    )


def table_8() -> ExhibitData:
    return other_numbers_of_clients(HAM_NETWORKS, 8, ", HAM10000", epsilon_of_two=0.01)


# ------------------------------------------------------------------ tables 3, 9, 10 and 11: sizes
BY_SIZE = exhibit(
    drawing=component(
        "table", rows=["method", "epsilon_hidden", "clusters"], sizes=True, best="none"
    ),
    caption=text("""
        Test accuracy in percent and hidden units by how far a unit's outputs may be from its own
        (ε_hidden) and the number of clusters (m_ε), untuned and after tuning the last layer on
        1,000 public images, beside as many units of the clients drawn at random and ensembles of
        the clients' networks. Means over trials, with one standard deviation.
    """),
)
SHOWN = ["epsilon_hidden", "clusters"]
ENSEMBLES = [
    component("voting_ensemble", "Ensemble"),
    component("uniform_ensemble", "Ensemble, probabilities"),
]


def units_drawn(sizes: Entry) -> list[Entry]:
    """As many units of the clients drawn at random as merge at each size, untuned and tuned."""
    return [with_changes(UNITS_DRAWN, **sizes), with_changes(UNITS_DRAWN_LAST, **sizes)]


def table_9() -> ExhibitData:
    sizes: Entry = {"epsilon_hidden": [0.5, 1.0], "clusters": [50, 75, 100], "show": SHOWN}
    return exhibit(
        MNIST_NETWORKS,
        BY_SIZE,
        title="Size and accuracy of networks of five clients",
        place="appendix C.3, table 9",
        parameters={},  # each method says its own
        methods=[
            with_changes(NEURAL_GEMS, **sizes),
            with_changes(NEURAL_LAST, **sizes),
            with_changes(NEURAL_GEMS, "GEMS, as published", as_published=True, **sizes),
            with_changes(NEURAL_LAST, "GEMS tuned, as published", as_published=True, **sizes),
            *units_drawn(sizes),
            *ENSEMBLES,
        ],
    )


def table_3() -> ExhibitData:
    """Table 10 of the appendix is this one again."""
    sizes: Entry = {"epsilon_hidden": [0.3, 0.5, 0.7], "clusters": [100, 150, 200], "show": SHOWN}
    return exhibit(
        CIFAR_NETWORKS,
        BY_SIZE,
        title="Size and accuracy of networks of five clients, CIFAR-10",
        place="section 4.5, table 3; appendix C.3, table 10",
        parameters={"epsilon_final": 0.2},
        methods=[
            with_changes(NEURAL_GEMS, **sizes),
            with_changes(NEURAL_LAST, **sizes),
            *units_drawn(sizes),
            *ENSEMBLES,
        ],
    )


def table_11() -> ExhibitData:
    settings = [{"epsilon_hidden": 0.07, "clusters": clusters} for clusters in (50, 75, 100)]
    sizes: Entry = {"settings": settings, "show": SHOWN}
    return exhibit(
        HAM_NETWORKS,
        BY_SIZE,
        title="Size and accuracy of networks of five clients, HAM10000",
        place="appendix C.3, table 11",
        parameters={"epsilon_final": 0.25},
        methods=[
            with_changes(NEURAL_GEMS, **sizes),
            with_changes(NEURAL_LAST, **sizes),
            *units_drawn(sizes),
            *ENSEMBLES,
        ],
    )


# -------------------------------------------------------------------------------- beyond the paper
def cifar_sizes() -> ExhibitData:
    by_deviation = with_changes(
        NEURAL_GEMS,
        epsilon_hidden=[0.01, 0.03, 0.1, 0.3, 0.7],
        clusters=150,
        show=["epsilon_hidden"],
    )
    without_clusters = with_changes(by_deviation, "GEMS, no clusters", clusters=1, merge="tuples")
    return exhibit(
        CIFAR_NETWORKS,
        drawing=component(
            "table", rows=["epsilon_hidden"], columns=["method"], sizes=True, best="none"
        ),
        title="Hidden units that remain, by ε_hidden, CIFAR-10",
        place="beyond the paper; section 4.5",
        caption=text("""
            Test accuracy in percent and hidden units of 500, for 150 clusters, and without
            clusters, where tuples of units of different clients merge.
        """),
        parameters={"epsilon_final": 0.2},
        methods=[
            by_deviation,
            tuned_last(by_deviation, "GEMS tuned"),
            without_clusters,
            tuned_last(without_clusters, "GEMS, no clusters, tuned"),
        ],
        at={**SMALL, "paper": {"trials": 5}},
    )


def random_units() -> ExhibitData:
    untrained = with_changes(NEURAL_GEMS, "Units untrained", units="untrained")
    rule_of_code = with_changes(NEURAL_GEMS, "GEMS, the code's rule", merge="greedy")
    return exhibit(
        MNIST_NETWORKS,
        title="Merged units, and as many at random",
        place="beyond the paper; section 3.2",
        caption=text("""
            Test accuracy in percent of networks whose hidden units are merged (GEMS), are as many
            of the clients' own drawn at random, or are as many that nobody has trained; output
            layers are made in the same way for all three. With two clients also by the rule of the
            authors' code. The same after tuning these on 1,000 public images.
        """),
        methods=[
            AVERAGED,
            NEURAL_GEMS,
            UNITS_DRAWN,
            untrained,
            AVERAGED_LAST,
            NEURAL_LAST,
            UNITS_DRAWN_LAST,
            tuned_last(untrained, "Units untrained, tuned"),
        ],
        cases={
            **NUMBERS_OF_CLIENTS,
            "two": with_changes(TWO, parameters=in_tuples(0.01), methods=[rule_of_code]),
        },
    )
