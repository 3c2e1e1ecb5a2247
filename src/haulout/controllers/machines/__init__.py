"""Machines: replace the nodes of clusters whose machines are API objects, instead of repairing them."""
