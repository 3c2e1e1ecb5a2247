"""Wiring of the hub: the controller of Cluster API in a management cluster."""
