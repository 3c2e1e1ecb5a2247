"""`haulout history`."""
