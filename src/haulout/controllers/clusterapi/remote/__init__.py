"""Connections to workload clusters, by the kubeconfig in their Secret."""
