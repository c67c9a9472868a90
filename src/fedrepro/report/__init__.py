"""The site: one page per scale."""
