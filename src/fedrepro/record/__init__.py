"""The record: results kept in the repository, and comparisons with them."""
