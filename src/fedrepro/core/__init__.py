"""What everything stands on: tokens, seeds, files, origins, sentences for people."""
