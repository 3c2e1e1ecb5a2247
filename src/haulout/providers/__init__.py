"""Cloud event sources: each reads the maintenance events of one cloud and writes MaintenanceNotices, nothing else."""
