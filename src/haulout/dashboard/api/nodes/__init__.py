"""Nodes as the API answers them: summaries, details, states and commands."""
