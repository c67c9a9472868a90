"""Exhibits: figures and tables from tidy metrics."""
