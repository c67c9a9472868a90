"""Model aggregation via good-enough model spaces: Guha, Smith; arXiv 1805.07782, 2018.

Parameters that the paper does not give were read from its authors' code: findings-settings.md.
"""

NAME = "GEMS"
PICTURE = "figure-3-mnist"
LINK = "https://arxiv.org/abs/1805.07782"
