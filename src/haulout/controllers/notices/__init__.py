"""Notices: clouds tell that machines will need maintenance; each becomes a MaintenanceNotice, and nothing else."""
