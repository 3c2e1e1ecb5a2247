"""The operator, the hub and the agents as objects to apply to a cluster."""
