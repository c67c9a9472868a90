"""Matching hidden units of several networks (PFNM): rewards, assignment, layers."""
