"""Cloud instances of Machines: the interface that launches and terminates them.

All operations must be idempotent: they are repeated if the write that records them fails.
"""

import hashlib
from typing import Protocol

from haulout_sandbox.nodes import Kubelets
from haulout_sandbox.nodes import Machine as Host
from haulout_sandbox.openshift.objects import Machine


class InstanceProvider(Protocol):
    """A cloud, as the Machine API uses it."""

    def launch(self, machine: Machine) -> str:
        """Return the providerID of a Machine's instance: the same at each call."""
        ...

    def boot(self, machine: Machine) -> None:
        """Start the node of the instance, unless it exists."""
        ...

    async def terminate(self, machine: Machine) -> None:
        """Terminate the instance and its node, if they exist."""
        ...


class SimulatedInstances:
    """Instances without a cloud model; their names derive from the Machine."""

    def __init__(self, kubelets: Kubelets) -> None:
        self._kubelets = kubelets

    def launch(self, machine: Machine) -> str:
        return f"aws:///{machine.spec.zone}/i-0{_digest(machine.uid)[:16]}"

    def boot(self, machine: Machine) -> None:
        name = _node_name(machine)
        if name not in self._kubelets.names:
            provider_id = machine.spec.provider_id or ""
            host = Host(name=name, zone=machine.spec.zone, provider_id=provider_id, labels=machine.role_labels)
            self._kubelets.add(host)

    async def terminate(self, machine: Machine) -> None:
        for name in dict.fromkeys((machine.node, _node_name(machine))):
            if name in self._kubelets.names:
                await self._kubelets.remove(name)


def _node_name(machine: Machine) -> str:
    return f"ip-{_digest(machine.uid)[:8]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
