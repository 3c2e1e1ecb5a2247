"""`haulout check`."""
