"""What a path names: data sets, partitions, features, models, trainings, methods; one file each."""
