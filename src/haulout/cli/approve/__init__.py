"""`haulout approve`."""
