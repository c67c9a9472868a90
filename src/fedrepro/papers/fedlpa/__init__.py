"""FedLPA, one-shot learning by posteriors of each layer: Liu et al., NeurIPS 2024.

Printed values are of its table 1, and of table 18's row of Co-Boosting, as notes by others quote
the paper (github.com/hkanpak21/HE-IFD); its columns for other partitions were not to be read here.
Settings are of its authors' code (github.com/lebronlambert/FedLPA_NeurIPS2024, commit 08dd729).
"""

NAME = "FedLPA"
LINK = "https://arxiv.org/abs/2310.00339"
PART = "one table, one trial of three"
