"""Every table and figure of the paper, split by model and cost so that parts are computed apart.

A run ends after 1.5 times the printed number of rounds (the larger number if two tables print one
run), or when test accuracy reaches the target. `…-rest` has the cells of a table that take more
hours than were available. Runs do not depend on the table that shows them, so a computed cell is
moved to the table by moving its entry from one function to the other. findings.md says what was
chosen and why.
"""

from __future__ import annotations

from fedrepro.papers.fedavg.exhibits import after_equal_rounds, table_1, tables_2_and_3
from fedrepro.papers.fedavg.exhibits.table_1 import IID, MNIST, QUICK_CLIENTS, TINY_CLIENTS
from fedrepro.planning.exhibit_settings import PaperData, component, exhibit

EXHIBITS = PaperData(
    paper="fedavg",
    title="Communication-efficient learning of deep networks from decentralized data",
    source="McMahan, Moore, Ramage, Hampson, Agüera y Arcas; AISTATS 2017",
    defaults=exhibit(
        dataset=MNIST,
        partition=IID,
        model=component("mlp", hidden=[200, 200]),
        training=component("sgd", batch_size=10, init="fan_in"),
        sweep={},
        trials=1,
        at={
            "quick": exhibit(dataset=component("digits"), partition=QUICK_CLIENTS, trials=5),
            "tiny": exhibit(dataset=component("digits"), partition=TINY_CLIENTS, trials=2),
        },
    ),
    exhibits={**table_1.exhibits, **tables_2_and_3.exhibits, **after_equal_rounds.exhibits},
)
