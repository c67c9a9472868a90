"""Representation matching, and hyper-parameters that are adapted from round to round."""
