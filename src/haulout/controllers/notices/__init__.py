"""MaintenanceNotices: the maintenance that clouds announce for machines, one object per announcement."""
