"""Representation matching, and hyper-parameters that are learnt while rounds go by."""
