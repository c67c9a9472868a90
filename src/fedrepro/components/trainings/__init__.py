"""Training procedures: how a client trains on its data.

Files of this folder are found on import.
"""
