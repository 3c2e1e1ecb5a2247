"""Generates the Helm chart."""
