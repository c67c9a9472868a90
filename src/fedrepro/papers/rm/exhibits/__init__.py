"""The tables, the figure and the two ablations of the paper, and further experiments.

The paper gives ten clients, batches of 64 and three trials; findings.md gives the reason for every
other number. C is the share of clients that take part in a round.
"""

from __future__ import annotations

from fedrepro.papers.rm.exhibits import ablations, tables_and_figure
from fedrepro.planning.exhibit_settings import PaperData, component, exhibit

EXHIBITS = PaperData(
    paper="rm",
    title="Representation matching and adaptive hyper-parameters",
    source="Mostafa; arXiv 1912.13075, 2019",
    defaults=exhibit(
        dataset=component("mnist"),
        partition=component("iid", validation=500),
        model=component("mlp", hidden=[100, 100]),
        training=component("sgd", lr=0.3, batch_size=64, init="fan_in"),
        sweep={"partition.clients": [10]},
        trials=3,
        parameters={
            "rounds": 600,
            "fraction": 1.0,
            "steps": 20,
            "last_lr": 0.03,
            "weights": "all",
            "entropy": 1.0,
            "least_entropy": 2.0,
            "matching": 1.0,
            "reduction": "mean",
            "lrs": [0.02, 0.04, 0.08, 0.16, 0.32],
            "step_counts": [10, 20, 30, 40],
            "positions": "positions",
            "meta_lr": 0.01,
            "window": 5,
            "precision": 20.0,
        },
        at={
            "quick": exhibit(
                dataset=component("digits"),
                partition={"validation": 100},
                model={"hidden": [30, 30]},
                parameters={"rounds": 15, "steps": 10, "step_counts": [5, 10, 15, 20]},
                trials=5,
            ),
            "tiny": exhibit(
                dataset=component("digits"),
                partition={"validation": 100},
                model={"hidden": [10, 10]},
                parameters={"rounds": 3, "steps": 2, "step_counts": [1, 2, 3, 4]},
                trials=2,
            ),
        },
    ),
    exhibits={**tables_and_figure.exhibits, **ablations.exhibits},
)
