"""The command line: stages for the workflow, commands for people."""
