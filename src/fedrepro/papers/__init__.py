"""Papers, a folder each: what belongs to one of them alone, found by itself."""
