"""Peer-to-peer federated learning on graphs: Lalitha, Kilinc, Javidi, Koushanfar; arXiv 1901.11173,
2019. Nodes that learn beliefs of their models, and hear those of their neighbours.
"""

NAME = "P2P"
PICTURE = "figure-2"
