"""Cluster API maintenance: couple the Machines of a management cluster with the Nodes of workload clusters."""
