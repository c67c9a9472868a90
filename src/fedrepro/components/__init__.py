"""Components of experiments: data sets, partitions, features, models, training and graphs.

Every component raises FedreproError for parameters that do not fit the data or one another, and for
raw files that are missing or damaged.
"""
