"""Stages: the programs that jobs of the workflow run."""
