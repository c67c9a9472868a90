"""Graphs: who hears whom, and how much each counts; one file each, found by themselves."""
