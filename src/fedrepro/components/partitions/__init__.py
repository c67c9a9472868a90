"""Partitions: rules that deal out training examples to clients. Files here are found on import."""
