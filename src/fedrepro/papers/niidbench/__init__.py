"""NIID-Bench, four methods in rounds on clients that differ: Li, Diao, Chen, He; ICDE 2022.

Printed values are of the leader board of its authors' repository
(github.com/Xtra-Computing/NIID-Bench, commit 61b901a), which gives means of three runs and one
digit. The tables of the paper itself were not to be read here.
"""

NAME = "NIID-Bench"
LINK = "https://arxiv.org/abs/2102.02079"
PART = "four of seven exhibits, one trial of three"
