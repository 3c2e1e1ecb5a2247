"""`haulout status`."""
