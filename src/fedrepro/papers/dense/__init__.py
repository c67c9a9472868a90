"""DENSE, data-free one-shot federated learning: Zhang et al., NeurIPS 2022.

Printed values are those of the run in the README of the authors' code, and hyper-parameters those
of the code (github.com/zj-jayzhang/DENSE, commit 458c3c4). The paper's table 1 is left out, since
neither its seeds nor its networks are given.
"""

NAME = "DENSE"
LINK = "https://arxiv.org/abs/2112.12371"
PART = "not run yet"
