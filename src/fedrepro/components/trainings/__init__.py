"""Training procedures: what a client does with its data, one file each, found by themselves."""
