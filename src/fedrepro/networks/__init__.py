"""Networks as pure functions of (tensors, inputs), evaluated for many models at once."""
