"""A drawing that only this paper has: which spaces meet."""
