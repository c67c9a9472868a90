"""Evaluation: metrics and costs."""
