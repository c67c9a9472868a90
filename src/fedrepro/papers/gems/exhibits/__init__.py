"""The tables and figures of the paper, one per data set, so that each is computed by itself.

From the same runs, figure-3 and figure-4 show all three data sets, and in-all the six scenarios of
tables 1 and 2. Table 10 of the paper repeats its table 3. Figure 5 is a count, in findings.md,
which says what was chosen and why.
"""

from __future__ import annotations

from fedrepro.papers.gems.exhibits import figures_and_beyond, tables
from fedrepro.papers.gems.exhibits.tables import MNIST, MNIST_LOGISTIC, SMALL
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
    exhibits={**tables.exhibits, **figures_and_beyond.exhibits},
)
