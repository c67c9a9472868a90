"""Drawings of exhibits that several papers use: a class each, found by itself."""
