"""FedFisher, one-shot learning by Fisher information: Jhunjhunwala, Wang, Joshi; AISTATS 2024.

The tables of the paper could not be read here. Ours is compared with a rerun of its authors' code
by others (github.com/Ziqi-Gao/FedFisher, commit 910424f, results/table2), five starts a cell.
"""

NAME = "FedFisher"
LINK = "https://arxiv.org/abs/2403.12329"
PART = "one table, rerun by others"
