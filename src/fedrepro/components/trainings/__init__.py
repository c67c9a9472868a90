"""Training procedures of clients. All modules of this folder are imported when one is needed."""
