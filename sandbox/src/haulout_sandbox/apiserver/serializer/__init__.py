"""Decodes request bodies: JSON, and kubectl's protobuf."""
