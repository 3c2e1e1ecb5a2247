"""Haulout: node maintenance for Kubernetes."""

from importlib.metadata import version

__version__ = version("haulout")
