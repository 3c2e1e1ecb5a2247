"""Connections to workload clusters through the kubeconfig in their Secret."""
