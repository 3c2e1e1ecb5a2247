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
from haulout_sandbox.clusterapi.workloads import Workloads
from haulout_sandbox.nodes import Machine as Host
from haulout_sandbox.nodes.placement import CONTROL_PLANE

# Labels of a Machine that its Node gets as well, by how they begin or by the domain that they are of.
_SHARED_PREFIX, _SHARED_DOMAINS = (
    "node-role.kubernetes.io/",
    ("node.cluster.x-k8s.io", "node-restriction.kubernetes.io"),
)


class Infrastructure(Protocol):
    """Machines of one kind, as Cluster API uses them."""

    async def provisioned(self, machine: Machine) -> str | datetime:
        """Return the providerID of what a Machine runs on: the same whenever it is asked for."""
        ...

    async def boot(self, machine: Machine) -> datetime | None:
        """Have it become a node of its cluster, unless it is one."""
        ...

    async def ended(self, machine: Machine) -> datetime | None:
        """End it; None: it is gone. Its Node is left to whoever deletes that."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """How long things take, counted from the order."""

    instance: timedelta = timedelta(seconds=40)  # until there is an instance
    node: timedelta = timedelta(minutes=3)  # until it is a node
    termination: timedelta = timedelta(seconds=30)  # until it is gone


Hosts = Callable[[Machine], Host]  # what the node of a Machine is made of; it is called like the Machine


def plain(machine: Machine) -> Host:
    """Return a machine with nothing special about it."""
    return Host(name=machine.name)


class Instances:
    """Instances that no model of a cloud knows, in the workload clusters of this process."""

    def __init__(
        self, workloads: Workloads, clock: Clock, *, paces: Paces | None = None, host: Hosts | None = None
    ) -> None:
        self._workloads = workloads
        self._clock = clock
        self._paces = paces or Paces()
        self._host = host or plain
        self._ending: dict[str, datetime] = {}  # by the uid of the Machine: when it is gone

    async def provisioned(self, machine: Machine) -> str | datetime:
        """Return the providerID of a Machine's instance."""
        due = begun(machine) + self._paces.instance
        digest = hashlib.sha256(machine.uid.encode()).hexdigest()
        return f"sandbox://{machine.cluster}/i-{digest[:12]}" if self._clock.now() >= due else due

    async def boot(self, machine: Machine) -> datetime | None:
        """Have the instance become a node."""
        due = begun(machine) + self._paces.node
        if self._clock.now() < due:
            return due
        plug_in(self._workloads, machine, self._host(machine))
        return None

    async def ended(self, machine: Machine) -> datetime | None:
        """End the instance: it falls silent at once, and is gone a little later."""
        workload = self._workloads.get(machine.cluster)
        if workload is None or machine.name not in workload.cluster.kubelets.names:
            return None
        if machine.uid not in self._ending:
            workload.cluster.kubelets.kill(machine.name)
            self._ending[machine.uid] = self._clock.now() + self._paces.termination
        if self._clock.now() < (due := self._ending[machine.uid]):
            return due
        del self._ending[machine.uid]
        workload.cluster.kubelets.discard(machine.name)
        return None


def plug_in(workloads: Workloads, machine: Machine, host: Host) -> None:
    """Have a machine become a node of its cluster, unless it is one."""
    workload = workloads.get(machine.cluster)
    if workload is None or host.name in workload.cluster.kubelets.names:
        return
    role = {CONTROL_PLANE: ""} if machine.is_control_plane else {}
    shared = {key: value for key, value in machine.labels.items() if _is_shared(key)}
    node = replace(
        host,
        provider_id=machine.spec.provider_id or "",
        kubelet_version=machine.spec.version or host.kubelet_version,
        labels={**host.labels, **role, **shared},
    )
    workload.cluster.kubelets.add(node)


def _is_shared(label: str) -> bool:
    domain = label.rpartition("/")[0]
    return label.startswith(_SHARED_PREFIX) or any(domain == it or domain.endswith(f".{it}") for it in _SHARED_DOMAINS)


def begun(machine: Machine) -> datetime:
    """Return when a Machine was ordered."""
    return machine.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)
