"""The figures and numbers of the paper, what its settings decide, and larger graphs.

findings.md has the reason of every number that the paper does not give.
"""

from __future__ import annotations

from fedrepro.papers.p2p.exhibits import beyond, simulations, two_nodes
from fedrepro.planning.exhibit_settings import PaperData, exhibit

EXHIBITS = PaperData(
    paper="p2p",
    title="Peer-to-peer federated learning on graphs",
    source="Lalitha, Kilinc, Javidi, Koushanfar; arXiv 1901.11173, 2019",
    defaults=exhibit(sweep={}),
    exhibits={
        "table-accuracy": two_nodes.table_accuracy(),
        "figure-2": two_nodes.figure_2(),
        "figure-3a": two_nodes.figure_3a(),
        "figure-3b": two_nodes.figure_3b(),
        "figure-4a": two_nodes.figure_4_case_a("4a", node=1),
        "figure-4b": two_nodes.figure_4_case_a("4b", node=2),
        "figure-4c": two_nodes.figure_4_case_b("4c", node=1),
        "figure-4d": two_nodes.figure_4_case_b("4d", node=2),
        "interval": beyond.interval(),
        "interval-bytes": beyond.interval_bytes(),
        "spreads-iid": beyond.spreads("iid", "i.i.d. halves"),
        "spreads-a": beyond.spreads("a", "case (a)"),
        "spreads-b": beyond.spreads("b", "case (b)"),
        "spreads-unbalanced": beyond.spreads("unbalanced", "unbalanced classes"),
        "settings": beyond.settings(),
        "defaults": beyond.defaults(),
        "graphs": beyond.graphs(),
        "figure-1a": simulations.figure_1a(),
        "figure-1b": simulations.figure_1b(),
        "theorem-1": simulations.theorem_1(),
    },
)
