"""Papers, a folder each: figures, methods and checks of one paper alone, found on import."""
