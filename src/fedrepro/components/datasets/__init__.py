"""Data sets: arrays with named splits. All modules of this folder are imported when needed."""
