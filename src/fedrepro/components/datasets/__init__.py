"""Data sets: arrays with named splits. Files of this folder are found on import."""
