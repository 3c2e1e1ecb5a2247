"""The conditions of a MaintenanceNotice: OnTime, Emptied, and the kstatus conditions. Pure."""
