"""Facts about this machine, and checks that its libraries compute correctly."""
