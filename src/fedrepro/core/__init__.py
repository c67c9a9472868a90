"""Foundations of all rooms: tokens, registry, randomness, files and errors."""
