"""The notifications, one per module."""
