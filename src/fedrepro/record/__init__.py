"""The record: results that the repository keeps, comparisons with them, and the website."""
