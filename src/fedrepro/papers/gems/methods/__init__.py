"""Methods of GEMS: models, or hidden units, that are good enough for all clients."""
