"""`haulout doctor`."""
