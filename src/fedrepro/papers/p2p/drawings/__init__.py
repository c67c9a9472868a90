"""A drawing that only this paper has: which classes nodes take for which."""
