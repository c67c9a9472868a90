"""Training procedures: what a client does with its data, found by themselves."""
