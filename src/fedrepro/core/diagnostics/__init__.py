"""Facts about this machine, and one run at a time in a folder."""
