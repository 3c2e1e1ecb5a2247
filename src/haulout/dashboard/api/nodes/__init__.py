"""Nodes in the API: tiles, details, states and commands."""
