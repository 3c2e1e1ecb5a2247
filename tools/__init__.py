"""Generators of packages, reference pages, the docs site, alerts and the Grafana dashboard. Not part of the product."""
