"""`haulout cluster-info`."""
