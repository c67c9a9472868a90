"""Every figure of the paper, a function each. `at` holds what differs at a scale.

Settings come from section 4 and supplement 4 of the paper; `notes` say what was chosen where it is
silent.
"""

from __future__ import annotations

from fedrepro.papers.pfnm.exhibits import accuracy, readings, sizes, supplement
from fedrepro.papers.pfnm.exhibits.common import (
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
    exhibits={
        "figure-2a": accuracy.figure_2a(),
        "figure-2b": accuracy.figure_2b(),
        "figure-2c": accuracy.figure_2c(),
        "figure-2d": accuracy.figure_2d(),
        "figure-2": accuracy.figure_2(),
        "figure-3a": accuracy.figure_3a(),
        "figure-3b": accuracy.figure_3b(),
        "figure-3c": accuracy.figure_3c(),
        "figure-3d": accuracy.figure_3d(),
        "figure-3": accuracy.figure_3(),
        "s-figure-2a": supplement.s_figure_2a(),
        "s-figure-2b": supplement.s_figure_2b(),
        "s-figure-3a": supplement.s_figure_3a(),
        "s-figure-3a-epochs": supplement.s_figure_3a_epochs(),
        "s-figure-3b": supplement.s_figure_3b(),
        "s-figure-4a": supplement.s_figure_4a(),
        "s-figure-4b": supplement.s_figure_4b(),
        "s-figure-4c": supplement.s_figure_4c(),
        "s-figure-4d": supplement.s_figure_4d(),
        "s-figure-5a": supplement.s_figure_5a(),
        "s-figure-5b": supplement.s_figure_5b(),
        "s-figure-5c": supplement.s_figure_5c(),
        "s-figure-5d": supplement.s_figure_5d(),
        # beyond the paper
        "matching-or-size": sizes.matching_or_size(),
        "finer-sigma2": sizes.finer_sigma2(),
        "equal-size": sizes.equal_size(),
        "equal-size-photographs": sizes.equal_size_photographs(),
        "equal-size-deep": sizes.equal_size_deep(),
        "erratum-options": readings.erratum_options(),
        "deep-sigma2": readings.deep_sigma2(),
        "merging-and-posterior": readings.merging_and_posterior(),
        "ensemble-readings": readings.ensemble_readings(),
        "wider-downpour": readings.wider_downpour(),
    },
)
