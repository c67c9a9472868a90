"""PFNM on a stream of data and to a given size, and controls that only this paper compares."""
