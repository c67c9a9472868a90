"""A drawing that only this paper has: hyper-parameters as rounds go by."""
