"""FedLPA, one-shot learning by posteriors of each layer: Liu et al., NeurIPS 2024.

Printed values are those of table 1, as quoted in notes by others
(github.com/hkanpak21/HE-IFD); columns for other partitions could not be read here. Settings
are of the authors' code (github.com/lebronlambert/FedLPA_NeurIPS2024, commit 08dd729).
"""

NAME = "FedLPA"
LINK = "https://arxiv.org/abs/2310.00339"
PART = "one table, one trial of three"
