"""The schedules there are, one a module."""
