"""Graphs of decentralised learning: which nodes exchange models, and with which mixing weights."""
