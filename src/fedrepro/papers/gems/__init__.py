"""Model aggregation via good-enough model spaces: Guha, Smith; arXiv 1805.07782, 2018.

Parameters that the paper does not give were read from its authors' code: findings-settings.md.
"""

NAME = "GEMS"
PICTURE = "figure-3-mnist"
LINK = "https://arxiv.org/abs/1805.07782"
# the sentence of its card; numbers are asked of the record as in findings
SENTENCE = """At the printed ε the common point of five logistic models on MNIST is no better than
their plain average, [40.4](reports/record/paper/gems/table-1-mnist.csv "GEMS") and
[40.4](reports/record/paper/gems/table-1-mnist.csv "Averaged") %; printed are
[45.6](reports/record/paper/gems/table-1-mnist.printed.csv "GEMS") and
[44.4](reports/record/paper/gems/table-1-mnist.printed.csv "Averaged")."""
