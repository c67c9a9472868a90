"""FedKT, one-shot learning by transferred knowledge: Li, He, Song; IJCAI 2021.

Printed values are of table 1, MNIST, of one of its versions (arXiv:2010.01017), as notes by others
quote it (github.com/hkanpak21/HE-IFD). They warn that another version prints other numbers.
"""

NAME = "FedKT"
