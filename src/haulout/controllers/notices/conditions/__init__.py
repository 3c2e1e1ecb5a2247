"""The conditions of a MaintenanceNotice: OnTime, Emptied and those of kstatus. Pure."""
