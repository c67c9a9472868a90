"""Foundations of all other code: components and their parameters, random numbers, files, errors."""
