"""Clouds as event sources: each reads what one cloud announces and writes MaintenanceNotices, nothing else."""
