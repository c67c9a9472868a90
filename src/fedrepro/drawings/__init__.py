"""Figures from the tables of exhibits."""
