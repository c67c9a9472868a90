"""Good-enough model spaces: their radii, whether they meet, and where."""
