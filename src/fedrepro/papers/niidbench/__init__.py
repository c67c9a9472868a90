"""NIID-Bench, four methods in rounds on clients that differ: Li, Diao, Chen, He; ICDE 2022.

Printed values are those of the leader board in the authors' repository
(github.com/Xtra-Computing/NIID-Bench, commit 61b901a), which gives means of three runs with one
decimal. The tables of the paper itself could not be read here.
"""

NAME = "NIID-Bench"
LINK = "https://arxiv.org/abs/2102.02079"
PART = "four of seven exhibits, one trial of three"
