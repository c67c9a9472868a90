"""The command line: jobs for the workflow, commands for people."""
