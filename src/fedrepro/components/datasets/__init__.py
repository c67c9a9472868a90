"""Data sets: arrays with named splits, one file per data set, found by themselves."""
