"""Data on disk: fetching, the prepared form, and who holds which examples."""
