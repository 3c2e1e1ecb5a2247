"""What becomes of Machines of Cluster API and of hosts of Metal3, told to those who watch.

The timeline tells what it does itself. Here others act, Cluster API, Metal3, the hub, and operators in workload
clusters; what they do is read from the objects that they write.
"""

import asyncio

from haulout.kinds.clusterapi import APPROVED, MAINTENANCE, PRE_DRAIN_HOOKS
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout_sandbox.clusterapi import kinds
from haulout_sandbox.clusterapi.objects import Machine
from haulout_sandbox.controllers import conditions
from haulout_sandbox.metal3 import HOSTS
from haulout_sandbox.metal3.objects import Host
from haulout_sandbox.scenarios.deeds import Say
from haulout_sandbox.scenarios.news import follow

_STEPS = {
    "WaitingForPreDrainHook": "waits for a hook before it is drained",
    "DrainingNode": "is drained by Cluster API",
    "WaitingForPreTerminateHook": "waits for a hook before it is ended",
    "WaitingForInfrastructureDeletion": "is empty, and is ended",
}


async def tell_hub_news(client: Client, say: Say) -> None:
    """Tell what happens from now on, until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow(Cache(client, Selection(kinds().machines), row=as_is), about_machine, say))
        tasks.create_task(follow(Cache(client, Selection(HOSTS), row=as_is), about_host, say))


def about_machine(old: Machine | None, new: Machine | None) -> str:
    """Return what became of a Machine, for people; empty if it is nothing to speak of."""
    if new is None:
        return "" if old is None else f"{_called(old)} is gone"
    if old is None:
        maker = new.controller
        return f"{_called(new)} is new{f', made by {maker.kind} {maker.name}' if maker is not None else ''}"
    if new.labels.get(MAINTENANCE) == APPROVED != old.labels.get(MAINTENANCE):
        return f"maintenance of {_called(new)} is approved: its node is ready for it"
    if new.node and not old.node:
        return f"{_called(new)} is a node"
    step = _step(new)
    return f"{_called(new)} {_STEPS[step]}{_hooks(new, step)}" if step in _STEPS and step != _step(old) else ""


def about_host(old: Host | None, new: Host | None) -> str:
    """Return what became of a host, for people."""
    if old is None or new is None:
        return ""
    if new.is_powered != old.is_powered:
        return f"host {new.key} is {'on' if new.is_powered else 'off'}"
    return f"host {new.key} is {new.state}" if new.state != old.state and old.state else ""


def _called(machine: Machine) -> str:
    return f"Machine {machine.name} of {machine.cluster}"


def _step(machine: Machine) -> str:
    found = conditions.find(machine.status, "Deleting")
    return "" if found is None else str(found.get("reason", ""))


def _hooks(machine: Machine, step: str) -> str:
    if step != "WaitingForPreDrainHook":
        return ""
    hooks = (it for it in machine.metadata.annotations if it.startswith(PRE_DRAIN_HOOKS))
    return f": {', '.join(it.removeprefix(PRE_DRAIN_HOOKS) for it in sorted(hooks))}"
