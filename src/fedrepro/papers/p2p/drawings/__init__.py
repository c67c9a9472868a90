"""Drawings that only this paper has: nodes on graphs, and theorem 1."""
