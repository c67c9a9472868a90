"""From metrics to the tables behind exhibits."""
