"""Co-Boosting, one-shot federated learning: Dai et al., ICLR 2024.

Printed values are those of its table 1 on CIFAR-10, as notes by others quote the paper
(github.com/hkanpak21/HE-IFD); the rows of other data sets were not read. Settings are of the
authors' code (github.com/rong-dai/Co-Boosting, commit b95d715).
"""

NAME = "Co-Boosting"
