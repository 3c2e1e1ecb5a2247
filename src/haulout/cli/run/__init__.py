"""`haulout run`."""
