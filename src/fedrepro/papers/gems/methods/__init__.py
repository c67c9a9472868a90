"""Good-enough model spaces: models, or units of networks, that lie in the spaces of all clients."""
