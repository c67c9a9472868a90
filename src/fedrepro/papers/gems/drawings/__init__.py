"""Drawings that only this paper has: which spaces meet, and what clients get from it."""
