"""What makes a scenario: data sets, partitions, features, models, trainings and graphs."""
