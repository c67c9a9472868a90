"""Verdicts on printed values and on claims, by the numbers of exhibits."""
