"""`haulout cordon` and `haulout uncordon`."""
