"""Data sets: arrays with named splits, found by themselves."""
