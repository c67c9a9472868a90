"""What we measured, kept, and compared with what others measure."""
