"""From metrics to the tables behind exhibits, and what they say of claims."""
