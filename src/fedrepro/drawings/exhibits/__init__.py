"""Drawings of figures and tables that several papers use, a class each, found by itself."""
