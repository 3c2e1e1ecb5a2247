"""Reads and writes of objects: strategies, defaults, deletion."""
