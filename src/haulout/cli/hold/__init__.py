"""`haulout hold` and `haulout release`."""
