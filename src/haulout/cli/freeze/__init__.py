"""`haulout freeze` and `haulout unfreeze`."""
