"""Reproduced papers, a folder each: its figures, tables, claims, and methods of it alone."""
