"""What this machine is, and whether its libraries compute what they should."""
