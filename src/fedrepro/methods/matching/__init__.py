"""Matching of hidden units: permuting several networks into one order, or fusing their units."""
