"""Claims of a paper as predicates over the numbers of its exhibits, and the verdicts on them."""
