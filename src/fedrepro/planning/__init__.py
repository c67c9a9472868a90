"""From the configuration to the list of artifacts, in pure Python."""
