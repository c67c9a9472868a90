"""Logistic models and networks in one exhibit, from the runs of tables 1 and 2.

These are their six cases, and the effect of early stopping on either.
"""

from __future__ import annotations

from fedrepro.papers.gems.exhibits.common import (
    BASELINES,
    CIFAR,
    DIGITS,
    GEMS,
    HAM,
    NEURAL_GEMS,
    NOTES_OF_ALL,
    ON_MNIST,
)
from fedrepro.papers.gems.exhibits.logistic import GEMS_TUNED, MNIST_LOGISTIC, table_1
from fedrepro.papers.gems.exhibits.networks import (
    ALL_LAST,
    CIFAR_NETWORKS,
    HAM_NETWORKS,
    HEADS,
    NETWORK,
    NEURAL_LAST,
)
from fedrepro.planning.exhibit_settings import (
    Entry,
    ExhibitData,
    component,
    exhibit,
    text,
    with_changes,
)


def in_all() -> ExhibitData:
    logistic: Entry = {"label": "logistic"}
    network: Entry = {
        "label": "network",
        **NETWORK,
        "methods": [NEURAL_GEMS, *ALL_LAST],
        "without": ["GEMS, balls", "GEMS, balls, tuned"],
    }
    small = exhibit(
        cases={
            "mnist-logistic": {"label": "as MNIST, logistic"},
            "cifar10-logistic": {"label": "as CIFAR-10, logistic", "dataset": DIGITS},
            "ham10000-logistic": {"label": "as HAM10000, logistic", "dataset": DIGITS},
            "mnist-network": {"label": "as MNIST, network"},
            "cifar10-network": {"label": "as CIFAR-10, network", "dataset": DIGITS},
            "ham10000-network": {"label": "as HAM10000, network", "dataset": DIGITS},
        }
    )
    return exhibit(
        drawing=component("table", rows=["case"], columns=["method"], best="row"),
        title="The six cases of tables 1 and 2",
        place="sections 1 and 5",
        caption=text("""
            What sentences on all of tables 1 and 2 are judged by. The runs are those of the tables.
        """),
        methods=table_1(MNIST_LOGISTIC)["methods"],
        notes=[HEADS, *NOTES_OF_ALL],
        cases={
            "mnist-logistic": logistic,
            "cifar10-logistic": with_changes(logistic, dataset=CIFAR, parameters={"epsilon": 0.2}),
            "ham10000-logistic": with_changes(logistic, dataset=HAM, parameters={"epsilon": 0.2}),
            "mnist-network": network,
            "cifar10-network": with_changes(
                network,
                dataset=CIFAR,
                model=CIFAR_NETWORKS["model"],
                parameters=CIFAR_NETWORKS["parameters"],
            ),
            "ham10000-network": with_changes(
                network, dataset=HAM, parameters=HAM_NETWORKS["parameters"]
            ),
        },
        at={"quick": small, "tiny": small},
    )


def early_stopping() -> ExhibitData:
    network: Entry = {
        "label": "network, each stops",
        **NETWORK,
        "methods": [NEURAL_GEMS, NEURAL_LAST],
    }
    whole = with_changes(NETWORK["training"], patience=0)
    return exhibit(
        title="What early stopping of each client does to averages",
        place="beyond the paper",
        caption=text("""
            Test accuracy in percent where each client stops by itself, and where all train for 40
            epochs.
        """),
        cases={
            "logistic": {"label": "logistic, each stops"},
            "logistic-whole": {"label": "logistic, 40 epochs", "training": {"patience": 0}},
            "network": network,
            "network-whole": with_changes(network, label="network, 40 epochs", training=whole),
        },
        methods=[*BASELINES, GEMS, GEMS_TUNED],
        notes=[HEADS, *ON_MNIST["notes"]],
        at={"paper": {"trials": 5}},
    )
