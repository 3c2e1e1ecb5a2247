"""Cloud instances of Machines: the interface that launches and terminates them.

All operations must be idempotent: they are repeated if the write that records them fails.
"""

from typing import Protocol

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
