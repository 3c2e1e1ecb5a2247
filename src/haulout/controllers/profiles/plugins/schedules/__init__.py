"""The schedules, one per module."""
