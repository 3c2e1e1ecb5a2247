"""Instances of a cloud behind Machines: whoever has the cloud says how they are launched and ended.

What has been done for a Machine may be asked for again: a write that should remember it may have failed.
"""

import hashlib
from typing import Protocol

from haulout_sandbox.nodes import Kubelets
from haulout_sandbox.nodes import Machine as Host
from haulout_sandbox.openshift.objects import Machine


class InstanceProvider(Protocol):
    """A cloud, as the Machine API uses it."""

    def launch(self, machine: Machine) -> str:
        """Return the providerID of a Machine's instance: the same whenever it is asked for."""
        ...

    def boot(self, machine: Machine) -> None:
        """Have the instance become a node, unless it is one."""
        ...

    async def terminate(self, machine: Machine) -> None:
        """End the instance and its node, as far as they are there."""
        ...


class SimulatedInstances:
    """Instances that no model of a cloud knows: names follow from the Machine."""

    def __init__(self, kubelets: Kubelets) -> None:
        self._kubelets = kubelets

    def launch(self, machine: Machine) -> str:
        """Return the providerID of a Machine's instance."""
        return f"aws:///{machine.spec.zone}/i-0{_digest(machine.uid)[:16]}"

    def boot(self, machine: Machine) -> None:
        """Have the instance become a node."""
        name = _node_name(machine)
        if name not in self._kubelets.names:
            provider_id = machine.spec.provider_id or ""
            host = Host(name=name, zone=machine.spec.zone, provider_id=provider_id, labels=machine.role_labels)
            self._kubelets.add(host)

    async def terminate(self, machine: Machine) -> None:
        """End the instance and its node."""
        for name in dict.fromkeys((machine.node, _node_name(machine))):
            if name in self._kubelets.names:
                await self._kubelets.remove(name)


def _node_name(machine: Machine) -> str:
    return f"ip-{_digest(machine.uid)[:8]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
