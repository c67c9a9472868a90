"""Stages: the programs of the pipeline's jobs, which read files, compute and write files."""
