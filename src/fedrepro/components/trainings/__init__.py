"""Training procedures: how a client trains on its data.

All modules of this folder are imported when a procedure is needed.
"""
