"""Matching in a stream and of a given size, and controls that only this paper compares."""
