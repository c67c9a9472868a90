"""Data on disk: download, prepared arrays, and which client has which examples."""
