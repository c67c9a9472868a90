"""Partitions: which client holds which examples, found by themselves."""
