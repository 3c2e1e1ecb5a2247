"""Reports changes of Cluster API Machines and Metal3 hosts to the users of a sandbox.

The timeline reports its own actions. Cluster API, Metal3, the hub, and operators in workload clusters act on their own,
so their changes are read from the objects.
"""

import asyncio

from haulout.api.clusterapi import APPROVED, MAINTENANCE, PRE_DRAIN_HOOK_PREFIX
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout_sandbox.clusterapi.objects import Machine, resources_of
from haulout_sandbox.controllers import conditions
from haulout_sandbox.metal3.objects import BARE_METAL_HOSTS, BareMetalHost
from haulout_sandbox.scenarios.actions.action_result import OnEvent
from haulout_sandbox.scenarios.openshift_changes import report_changes

_DELETION_REASONS = {
    "WaitingForPreDrainHook": "waits for a hook before it is drained",
    "DrainingNode": "is drained by Cluster API",
    "WaitingForPreTerminateHook": "waits for a hook before it is ended",
    "WaitingForInfrastructureDeletion": "is empty, and is ended",
}


async def report_clusterapi_changes(client: Client, on_event: OnEvent) -> None:
    """Report changes from now on, until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(
            report_changes(
                Informer(client, ListWatch(resources_of().machines), transform=as_is), describe_machine_change, on_event
            )
        )
        tasks.create_task(
            report_changes(
                Informer(client, ListWatch(BARE_METAL_HOSTS), transform=as_is), describe_host_change, on_event
            )
        )


def describe_machine_change(old: Machine | None, new: Machine | None) -> str:
    """Return the change of a Machine as text; empty if it is not worth a report."""
    if new is None:
        return "" if old is None else f"{_machine_title(old)} is gone"
    if old is None:
        owner = new.controller
        return f"{_machine_title(new)} is new{f', made by {owner.kind} {owner.name}' if owner is not None else ''}"
    if new.labels.get(MAINTENANCE) == APPROVED != old.labels.get(MAINTENANCE):
        return f"maintenance of {_machine_title(new)} is approved: its node is ready for it"
    if new.node and not old.node:
        return f"{_machine_title(new)} is a node"
    reason = _deletion_reason(new)
    return (
        f"{_machine_title(new)} {_DELETION_REASONS[reason]}{_format_hooks(new, reason)}"
        if reason in _DELETION_REASONS and reason != _deletion_reason(old)
        else ""
    )


def describe_host_change(old: BareMetalHost | None, new: BareMetalHost | None) -> str:
    if old is None or new is None:
        return ""
    if new.is_powered != old.is_powered:
        return f"host {new.key} is {'on' if new.is_powered else 'off'}"
    return (
        f"host {new.key} is {new.provisioning_state}"
        if new.provisioning_state != old.provisioning_state and old.provisioning_state
        else ""
    )


def _machine_title(machine: Machine) -> str:
    return f"Machine {machine.name} of {machine.cluster_key}"


def _deletion_reason(machine: Machine) -> str:
    condition = conditions.find(machine.status, "Deleting")
    return "" if condition is None else str(condition.get("reason", ""))


def _format_hooks(machine: Machine, reason: str) -> str:
    if reason != "WaitingForPreDrainHook":
        return ""
    hooks = (hook for hook in machine.metadata.annotations if hook.startswith(PRE_DRAIN_HOOK_PREFIX))
    return f": {', '.join(hook.removeprefix(PRE_DRAIN_HOOK_PREFIX) for hook in sorted(hooks))}"
