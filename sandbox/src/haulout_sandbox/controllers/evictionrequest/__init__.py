"""The controllers of EvictionRequests and Evictions."""
