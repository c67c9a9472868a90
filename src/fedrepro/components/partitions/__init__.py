"""Partitions: which client holds which examples, one file each, found by themselves."""
