"""Products, exponentials and the like that give equal bytes on all processors."""
