"""Clients and nodes as methods see them: they train, answer and evaluate, and costs are counted."""
