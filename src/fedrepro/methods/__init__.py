"""Methods: ways from clients to predictions, one file each, found by themselves."""
