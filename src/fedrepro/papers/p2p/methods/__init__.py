"""Methods of P2P, in which nodes of a graph average beliefs, and simulations of its theorem 1."""
