"""Components of a scenario: data sets, partitions, features, models, trainings and graphs.

Each raises FedreproError for values that do not fit the data or each other, and for raw files that
are missing or damaged.
"""
