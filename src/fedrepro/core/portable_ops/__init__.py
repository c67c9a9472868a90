"""Matrix products, exponentials and the like that compute equal bytes on all processors."""
