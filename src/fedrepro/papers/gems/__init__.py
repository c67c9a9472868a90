"""Model aggregation via good-enough model spaces: Guha, Smith; arXiv 1805.07782, 2018.

Settings that the paper leaves open were read from its authors' code: findings-settings.md.
"""

NAME = "GEMS"
PICTURE = "figure-3-mnist"
