"""Models: architectures as pure functions of (parameters, inputs)."""
