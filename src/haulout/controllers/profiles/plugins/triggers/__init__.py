"""The triggers, one per module."""
