"""The tables and figures of the paper, one exhibit a data set, so that each is computed by itself.

figure-3 and figure-4 have all three, and in-all the six cases of tables 1 and 2, from the same
runs. Table 10 of the paper is its table 3 again. Figure 5 is a count, in findings.md, which says
what was chosen and why.
"""

from __future__ import annotations

from fedrepro.papers.gems.exhibits import both, logistic, networks, public_images
from fedrepro.papers.gems.exhibits.common import MNIST, SMALL
from fedrepro.papers.gems.exhibits.logistic import CIFAR_LOGISTIC, HAM_LOGISTIC, MNIST_LOGISTIC
from fedrepro.papers.gems.exhibits.networks import CIFAR_NETWORKS, HAM_NETWORKS, MNIST_NETWORKS
from fedrepro.planning.exhibit_settings import PaperData, component, exhibit

EXHIBITS = PaperData(
    paper="gems",
    title="Model aggregation via good-enough model spaces",
    source="Guha, Smith; arXiv 1805.07782, 2018",
    defaults=exhibit(
        MNIST_LOGISTIC,
        dataset=MNIST,
        partition=component("by_label", clients=5),
        model=component("logistic"),
        training=component(
            "adam",
            lr=0.001,
            l2=0.0,
            batch_size=32,
            epochs=40,
            amsgrad=False,
            patience=5,
            weight_sd=0.05,
            bias=0.0,
        ),
        sweep={},
        trials=5,
        drawing=component("table", rows=["method"], sizes=False),
        size="hidden_units",
        # print has 5 trials, on which most sentences stay undecided
        at={"paper": {"trials": 20}, **SMALL},
    ),
    exhibits={
        "table-1-mnist": exhibit(logistic.table_1(MNIST_LOGISTIC), headline=True),
        "table-1-cifar10": logistic.table_1(CIFAR_LOGISTIC, ", CIFAR-10"),
        "table-1-ham10000": logistic.table_1(HAM_LOGISTIC, ", HAM10000", "classes of their own"),
        "table-5-mnist": logistic.table_5(MNIST_LOGISTIC),
        "table-5-cifar10": logistic.table_5(CIFAR_LOGISTIC, ", CIFAR-10"),
        "table-5-ham10000": logistic.table_5(HAM_LOGISTIC, ", HAM10000"),
        "table-2-mnist": networks.table_2(MNIST_NETWORKS),
        "table-2-cifar10": networks.table_2(CIFAR_NETWORKS, ", CIFAR-10"),
        "table-2-ham10000": networks.table_2(HAM_NETWORKS, ", HAM10000", "classes of their own"),
        "table-6": networks.table_6(),
        "table-7": networks.table_7(),
        "table-8": networks.table_8(),
        "in-all": both.in_all(),
        "table-9": networks.table_9(),
        "table-3": networks.table_3(),
        "table-11": networks.table_11(),
        "figure-3-mnist": public_images.figure_3(MNIST_LOGISTIC),
        "figure-3-cifar10": public_images.figure_3(CIFAR_LOGISTIC, ", CIFAR-10"),
        "figure-3-ham10000": public_images.figure_3(HAM_LOGISTIC, ", HAM10000"),
        "figure-3": public_images.figure_3_panels(),
        "figure-4-mnist": public_images.figure_4(MNIST_NETWORKS),
        "figure-4-cifar10": public_images.figure_4(CIFAR_NETWORKS, ", CIFAR-10"),
        "figure-4-ham10000": public_images.figure_4(HAM_NETWORKS, ", HAM10000"),
        "figure-4": public_images.figure_4_panels(),
        "figure-6": logistic.figure_6(),
        "epsilon-and-p": logistic.epsilon_and_p(),
        "tuning-scope": public_images.tuning_scope(),
        "deepest-point": logistic.deepest_point(),
        "early-stopping": both.early_stopping(),
        "cifar-sizes": networks.cifar_sizes(),
        "cifar-feature-sizes": logistic.cifar_feature_sizes(),
        "ham10000-features": logistic.ham10000_features(),
        "equal-steps": public_images.equal_steps(),
        "equal-steps-networks": public_images.equal_steps_networks(),
        "random-units": networks.random_units(),
        "two-epsilons": logistic.two_epsilons(),
        "clients-at-points": logistic.clients_at_points(),
        "equal-epochs": logistic.equal_epochs(),
    },
)
