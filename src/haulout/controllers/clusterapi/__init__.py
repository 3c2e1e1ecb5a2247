"""The hub: Cluster API Machines in a management cluster, coupled with their Nodes in workload clusters."""
