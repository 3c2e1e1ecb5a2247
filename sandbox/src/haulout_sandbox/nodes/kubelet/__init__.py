"""Simulated kubelets: node status, and the lifecycle of pods."""
