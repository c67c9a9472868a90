"""Representation matching and adaptive hyper-parameters: Mostafa; arXiv 1912.13075, 2019."""

NAME = "RM+AH"
PICTURE = "figure-3"
