"""Wiring of the hub: the Cluster API controller in a management cluster."""
