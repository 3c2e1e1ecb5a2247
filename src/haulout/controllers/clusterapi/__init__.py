"""Cluster API maintenance: couple the Machines of a management cluster with the Nodes of workload clusters.

- `controller` watches Machines and runs one `workload_cluster` per cluster; `cluster_accessor` keeps its connection.
- `machine_reconciler` reconciles a Machine and its node, `unclaimed_node` a node whose Machine is gone.
- `decision` is the pure function in the middle; `machine_deletion` and `machine_maintenance` are its two requests.
- `cluster_budget` limits how many clusters are in maintenance at once; `cluster_slot` is the slot of one of them.
- `machine_drain_rules` copies MachineDrainRules to nodes.
- `metal3` powers off the hosts of approved Machines; `host_power` decides which.
"""
