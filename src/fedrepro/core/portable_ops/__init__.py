"""Products and exponentials, by named libraries."""
