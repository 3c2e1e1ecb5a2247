"""Manifests of the operator, the hub and the agents."""
