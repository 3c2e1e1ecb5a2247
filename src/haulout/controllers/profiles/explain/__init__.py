"""Explains why a node is in its state, and what would change that: `haulout why` and the dashboard."""
