"""`haulout why`."""
