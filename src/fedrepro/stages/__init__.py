"""Stages of the workflow: the edges that read files, call the logic, and write files."""
