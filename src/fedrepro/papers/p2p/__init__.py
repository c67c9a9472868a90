"""Peer-to-peer federated learning on graphs: nodes learn beliefs, and exchange with neighbours.

Lalitha, Kilinc, Javidi, Koushanfar; arXiv 1901.11173, 2019.
"""

NAME = "P2P"
PICTURE = "figure-2"
LINK = "https://arxiv.org/abs/1901.11173"
# the sentence of its card; numbers are asked of the record as in findings
SENTENCE = """Two nodes that hold different classes reach
[85.9](reports/record/paper/p2p/table-accuracy.csv "node 1 at case=case (b)") and
[86.1](reports/record/paper/p2p/table-accuracy.csv "node 2 at case=case (b)") % in case (b), where
[85.8](reports/record/paper/p2p/table-accuracy.printed.csv "node 1 at case=case (b)") and
[85.9](reports/record/paper/p2p/table-accuracy.printed.csv "node 2 at case=case (b)") are printed,
and [83.6](reports/record/paper/p2p/table-accuracy.csv "node 1 at case=case (a)") and
[76.2](reports/record/paper/p2p/table-accuracy.csv "node 2 at case=case (a)") in case (a), where
[83.0](reports/record/paper/p2p/table-accuracy.printed.csv "node 1 at case=case (a)") and
[67.0](reports/record/paper/p2p/table-accuracy.printed.csv "node 2 at case=case (a)") are."""
