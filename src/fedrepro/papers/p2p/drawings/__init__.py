"""A drawing that only the paper P2P has: confusion matrices of nodes."""
