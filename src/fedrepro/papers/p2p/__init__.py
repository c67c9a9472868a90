"""Peer-to-peer federated learning on graphs: nodes learn beliefs, and exchange with neighbours.

Lalitha, Kilinc, Javidi, Koushanfar; arXiv 1901.11173, 2019.
"""

NAME = "P2P"
PICTURE = "figure-2"
LINK = "https://arxiv.org/abs/1901.11173"
