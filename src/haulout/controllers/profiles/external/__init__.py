"""Queries to systems outside the cluster: bounded, cached, and with errors that may be shown."""
