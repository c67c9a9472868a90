"""Further training of what a method made, as GEMS does it on a public sample."""
