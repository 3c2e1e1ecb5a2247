"""Profiles: when a node is taken out of service and given back, by a state machine that a file configures."""
