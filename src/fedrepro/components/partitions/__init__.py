"""Partitions: rules that deal out training examples to clients, a module per family of rules."""
