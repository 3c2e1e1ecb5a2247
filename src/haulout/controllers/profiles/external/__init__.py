"""Queries to systems outside the cluster: with timeouts and size limits, cached, and with errors safe to show."""
