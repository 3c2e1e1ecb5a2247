"""Infrastructure of Machines: the interface that creates and terminates machines.

Operations must be idempotent: each is called until it is complete. A returned instant says when to call again.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from haulout.core.clock import Clock
from haulout_sandbox.clusterapi.objects import Machine
from haulout_sandbox.clusterapi.workload_clusters import WorkloadClusterRegistry
from haulout_sandbox.nodes import Machine as Host
from haulout_sandbox.nodes.scheduler.framework import CONTROL_PLANE_LABEL

# Labels of a Machine that Cluster API syncs to its Node: by prefix or by domain.
_SYNCED_LABEL_PREFIX, _SYNCED_LABEL_DOMAINS = (
    "node-role.kubernetes.io/",
    ("node.cluster.x-k8s.io", "node-restriction.kubernetes.io"),
)


class InfrastructureProvider(Protocol):
    """Machines of one kind, as Cluster API uses them."""

    async def provision(self, machine: Machine) -> str | datetime:
        """Return the providerID of a Machine: the same at each call; or when to call again."""
        ...

    async def boot(self, machine: Machine) -> datetime | None:
        """Start the node in its workload cluster, unless it exists."""
        ...

    async def terminate(self, machine: Machine) -> datetime | None:
        """Terminate the machine; None: terminated. The Node is deleted elsewhere."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterApiDelays:
    """Durations, counted from the creation of the Machine or its deletion."""

    instance: timedelta = timedelta(seconds=40)  # to an instance
    node_join: timedelta = timedelta(minutes=3)  # to a node
    termination: timedelta = timedelta(seconds=30)  # to a terminated instance


HostFactory = Callable[[Machine], Host]  # returns the hardware of a Machine's node, which has the Machine's name


def default_host(machine: Machine) -> Host:
    return Host(name=machine.name)


class SimulatedInstances:
    """Instances without a cloud model, in the workload clusters of this process."""

    def __init__(
        self,
        registry: WorkloadClusterRegistry,
        clock: Clock,
        *,
        delays: ClusterApiDelays | None = None,
        host_factory: HostFactory | None = None,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._delays = delays or ClusterApiDelays()
        self._host_factory = host_factory or default_host
        self._terminates_at: dict[str, datetime] = {}  # by the uid of the Machine

    async def provision(self, machine: Machine) -> str | datetime:
        ready_at = created_at(machine) + self._delays.instance
        digest = hashlib.sha256(machine.uid.encode()).hexdigest()
        return f"sandbox://{machine.cluster_key}/i-{digest[:12]}" if self._clock.now() >= ready_at else ready_at

    async def boot(self, machine: Machine) -> datetime | None:
        joins_at = created_at(machine) + self._delays.node_join
        if self._clock.now() < joins_at:
            return joins_at
        join_cluster(self._registry, machine, self._host_factory(machine))
        return None

    async def terminate(self, machine: Machine) -> datetime | None:
        """Terminate the instance: it is silent at once, and terminated a little later."""
        workload_cluster = self._registry.get(machine.cluster_key)
        if workload_cluster is None or machine.name not in workload_cluster.cluster.kubelets.names:
            return None
        if machine.uid not in self._terminates_at:
            workload_cluster.cluster.kubelets.kill(machine.name)
            self._terminates_at[machine.uid] = self._clock.now() + self._delays.termination
        if self._clock.now() < (terminated_at := self._terminates_at[machine.uid]):
            return terminated_at
        del self._terminates_at[machine.uid]
        workload_cluster.cluster.kubelets.remove_without_node(machine.name)
        return None


def join_cluster(registry: WorkloadClusterRegistry, machine: Machine, host: Host) -> None:
    """Add a machine to its workload cluster as a node, unless it exists."""
    workload_cluster = registry.get(machine.cluster_key)
    if workload_cluster is None or host.name in workload_cluster.cluster.kubelets.names:
        return
    role = {CONTROL_PLANE_LABEL: ""} if machine.is_control_plane else {}
    synced_labels = {key: value for key, value in machine.labels.items() if _is_synced_label(key)}
    node = replace(
        host,
        provider_id=machine.spec.provider_id or "",
        kubelet_version=machine.spec.version or host.kubelet_version,
        labels={**host.labels, **role, **synced_labels},
    )
    workload_cluster.cluster.kubelets.add(node)


def _is_synced_label(label: str) -> bool:
    domain = label.rpartition("/")[0]
    return label.startswith(_SYNCED_LABEL_PREFIX) or any(
        domain == synced_domain or domain.endswith(f".{synced_domain}") for synced_domain in _SYNCED_LABEL_DOMAINS
    )


def created_at(machine: Machine) -> datetime:
    return machine.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)
