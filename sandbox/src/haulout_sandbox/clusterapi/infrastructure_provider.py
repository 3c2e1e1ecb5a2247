"""What Machines run on: whoever has the machines says how they come and go.

What has been done for a Machine may be asked for again, as long as it takes: an answer that is an instant is when to
ask the next time.
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

# Labels of a Machine that its Node gets as well, by how they begin or by the domain that they are of.
_SYNCED_LABEL_PREFIX, _SYNCED_LABEL_DOMAINS = (
    "node-role.kubernetes.io/",
    ("node.cluster.x-k8s.io", "node-restriction.kubernetes.io"),
)


class InfrastructureProvider(Protocol):
    """Machines of one kind, as Cluster API uses them."""

    async def provision(self, machine: Machine) -> str | datetime:
        """Return the providerID of what a Machine runs on: the same whenever it is asked for."""
        ...

    async def boot(self, machine: Machine) -> datetime | None:
        """Have it become a node of its cluster, unless it is one."""
        ...

    async def terminate(self, machine: Machine) -> datetime | None:
        """End it; None: it is gone. Its Node is left to whoever deletes that."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterApiDelays:
    """How long things take, counted from the order."""

    instance: timedelta = timedelta(seconds=40)  # until there is an instance
    node_join: timedelta = timedelta(minutes=3)  # until it is a node
    termination: timedelta = timedelta(seconds=30)  # until it is gone


HostFactory = Callable[[Machine], Host]  # what the node of a Machine is made of; it is called like the Machine


def default_host(machine: Machine) -> Host:
    """Return a machine with nothing special about it."""
    return Host(name=machine.name)


class SimulatedInstances:
    """Instances that no model of a cloud knows, in the workload clusters of this process."""

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
        self._terminates_at: dict[str, datetime] = {}  # by the uid of the Machine: when it is gone

    async def provision(self, machine: Machine) -> str | datetime:
        """Return the providerID of a Machine's instance."""
        ready_at = created_at(machine) + self._delays.instance
        digest = hashlib.sha256(machine.uid.encode()).hexdigest()
        return f"sandbox://{machine.cluster_key}/i-{digest[:12]}" if self._clock.now() >= ready_at else ready_at

    async def boot(self, machine: Machine) -> datetime | None:
        """Have the instance become a node."""
        joins_at = created_at(machine) + self._delays.node_join
        if self._clock.now() < joins_at:
            return joins_at
        join_cluster(self._registry, machine, self._host_factory(machine))
        return None

    async def terminate(self, machine: Machine) -> datetime | None:
        """End the instance: it falls silent at once, and is gone a little later."""
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
    """Have a machine become a node of its cluster, unless it is one."""
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
    """Return when a Machine was ordered."""
    return machine.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)
