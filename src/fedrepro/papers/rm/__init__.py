"""Representation matching and adaptive hyper-parameters: Mostafa; arXiv 1912.13075, 2019."""

NAME = "RM+AH"
PICTURE = "figure-3"
LINK = "https://arxiv.org/abs/1912.13075"
