"""Subresources: binding, eviction, scale, logs."""
