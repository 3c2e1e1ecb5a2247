"""The schedules of notifications, one per module, named after their type."""
