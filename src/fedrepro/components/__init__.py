"""Components of a scenario: data sets, partitions, features, models, trainings and graphs."""
