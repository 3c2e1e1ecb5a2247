"""The checks there are, one a module."""
