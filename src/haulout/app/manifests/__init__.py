"""Manifests of the operator, the hub and the agents.

`haulout manifests` prints them, and `tools.packages` derives the Helm chart, the kustomization and the OLM bundle.
"""
