"""Scenarios: machines, workloads and a timeline of events for the sandbox."""
