"""The notifications there are, one a module."""
