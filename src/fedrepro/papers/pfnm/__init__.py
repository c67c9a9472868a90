"""Probabilistic federated neural matching, submitted to ICLR 2019.

Yurochkin, Agarwal, Ghosh, Greenewald, Hoang, Khazaeni. The paper's method PFNM is in
fedrepro.methods, since the leaderboard has it too.
"""

NAME = "PFNM"
PICTURE = "figure-2b"
LINK = "https://arxiv.org/abs/1905.12022"
