"""Graphs of peers: weights, checks, what they converge to and how fast. Pure functions."""
