"""Machines: the nodes of clusters whose machines are objects, too, and are replaced instead of repaired."""
