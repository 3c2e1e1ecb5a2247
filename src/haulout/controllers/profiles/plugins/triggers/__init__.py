"""The triggers there are, one a module."""
