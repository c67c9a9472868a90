"""FedFisher, one-shot learning by Fisher information: Jhunjhunwala, Wang, Joshi; AISTATS 2024.

The tables of the paper could not be read here. Our numbers are compared with those that others got
from the authors' code (github.com/Ziqi-Gao/FedFisher, commit 910424f, results/table2), with five
random starts for each cell of the table.
"""

NAME = "FedFisher"
LINK = "https://arxiv.org/abs/2403.12329"
PART = "one table, rerun by others"
