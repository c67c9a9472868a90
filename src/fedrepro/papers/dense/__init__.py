"""DENSE, data-free one-shot federated learning: Zhang et al., NeurIPS 2022.

Printed values are of its table 1, as notes by others quote the paper
(github.com/hkanpak21/HE-IFD) and the text of FuseFL (NeurIPS 2024) reprints them, cell by cell the
same. Settings are of its authors' code (github.com/zj-jayzhang/DENSE, commit 458c3c4) and, for the
epochs, of FuseFL.
"""

NAME = "DENSE"
