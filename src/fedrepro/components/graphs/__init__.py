"""Graphs of decentralised learning: which nodes exchange models, and by which weights they mix."""
