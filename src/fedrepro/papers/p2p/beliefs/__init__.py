"""Beliefs of the nodes of a graph: Bayes' rule at each node, consensus with its neighbours."""
