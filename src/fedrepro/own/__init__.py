"""Models, data and methods of one's own: read, combined, compared, checked."""
