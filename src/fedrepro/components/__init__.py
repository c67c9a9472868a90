"""What a path names: data sets, partitions, features, models, training, methods; one file each."""
