"""Reads the configuration file of profiles, `maintenance.yaml`, checks it, and follows its changes."""
