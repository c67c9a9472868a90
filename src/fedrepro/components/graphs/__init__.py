"""Graphs: who hears whom, and how much each counts, found by themselves."""
