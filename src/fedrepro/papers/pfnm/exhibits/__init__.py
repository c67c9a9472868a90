"""Every figure of the paper. The key `at` of a figure has what differs at a smaller scale.

Hyper-parameters are from section 4 and supplement 4 of the paper; the key `notes` says what was
chosen where the paper does not say.
"""

from __future__ import annotations

from fedrepro.papers.pfnm.exhibits import extra_experiments, paper_figures
from fedrepro.papers.pfnm.exhibits.paper_figures import (
    AS_IN_CODE,
    CHOSEN,
    DOWNPOUR,
    OTHERS,
    SIGMA2,
    clients,
    pfnm_chosen,
)
from fedrepro.planning.exhibit_settings import PaperData, component, exhibit

EXHIBITS = PaperData(
    paper="pfnm",
    title="Probabilistic federated neural matching",
    source="Yurochkin, Agarwal, Ghosh, Greenewald, Hoang, Khazaeni; submitted to ICLR 2019",
    defaults=exhibit(
        dataset=component("mnist"),
        model=component("mlp", hidden=[50]),
        training=component("adam", lr=0.01, l2=1e-6, batch_size=32, epochs=10),
        size="hidden_units",
        sweep=clients(5, 10, 15, 20, 25, 30),
        trials=10,
        methods=[pfnm_chosen(SIGMA2), *OTHERS],
        notes=[
            "The numbers of clients are read off the plot's range; the paper gives no list.",
            CHOSEN,
            DOWNPOUR,
            AS_IN_CODE,
        ],
        at={
            "paper": {"trials_of": {"KD": 2}},
            "quick": {
                "dataset": component("digits"),
                "sweep": clients(2, 5, 10, 15, 20),
                "trials": 5,
            },
            "tiny": {
                "dataset": component("digits"),
                "sweep": clients(2, 4),
                "training": {"epochs": 2},
                "trials": 2,
                "trials_of": {"KD": 1},
            },
        },
    ),
    exhibits={**paper_figures.exhibits, **extra_experiments.exhibits},
)
