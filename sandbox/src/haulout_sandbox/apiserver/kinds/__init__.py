"""The kinds that the API server serves."""
