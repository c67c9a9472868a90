"""Training many clients at once: the engine, the procedures, the minibatches."""
