"""Settings of the NodeMaintenance controller, as values."""

from dataclasses import dataclass

from haulout.controllers.nodemaintenance import node_lease


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMaintenanceSettings:
    """What differs between installations. It does not change while the process runs."""

    lease_namespace: str = node_lease.NAMESPACE
    guard_quorum: bool = True  # check the etcd quorum; on OpenShift it is always checked
    namespace: str = "haulout"  # the operator's own; holds the slot ledger of the budget
