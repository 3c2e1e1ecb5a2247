"""Requests a replacement for a node's Machine by creating a MachineMaintenance, which another component executes.

The name of the object is derived from the Machine, the profile and the instance. So a repeated request, after a crash
or by another process, finds the existing object. A request that someone has cancelled is not repeated.
"""

from collections.abc import Mapping

import msgspec

from haulout.api.machinemaintenance import (
    MACHINE_MAINTENANCES,
    NAMESPACE,
    PROFILE_EVENT_CODE,
    MachineMaintenance,
    MachineMaintenancePhase,
    MachineMaintenanceSpec,
    object_name,
)
from haulout.api.objects import Node, RawObject
from haulout.controllers.profiles.plugin import ReplaceMachine
from haulout.errors import AlreadyExists
from haulout.kube.client import Client


async def request_replacement(client: Client, replacement: ReplaceMachine, *, node: Node, profile: str) -> str:
    """Create the MachineMaintenance unless it exists. Return why it will not be executed; empty if it will."""
    name = object_name(replacement.machine, event_id(replacement, profile))
    body = _machine_maintenance(name, replacement, node=node, profile=profile)
    try:
        await client.create(MACHINE_MAINTENANCES, body, namespace=NAMESPACE)
    # From before a crash, or from another process: the name is the same for the same request.
    except AlreadyExists:
        return _refusal_reason(await client.get(MACHINE_MAINTENANCES, name, namespace=NAMESPACE))
    return ""


def event_id(replacement: ReplaceMachine, profile: str) -> str:
    """Return the identity of the request. A Machine of the same name on another instance is a different Machine."""
    return f"{PROFILE_EVENT_CODE}-{profile}-{replacement.instance}"


def _machine_maintenance(
    name: str, replacement: ReplaceMachine, *, node: Node, profile: str
) -> Mapping[str, RawObject | str]:
    spec = MachineMaintenanceSpec(
        eventcode=PROFILE_EVENT_CODE,
        eventid=event_id(replacement, profile),
        machineid=replacement.instance,
        machinelink=replacement.machine,
        surge=replacement.surge,
        description=f"profile {profile} replaces node {node.name}",
    )
    return {
        "apiVersion": MACHINE_MAINTENANCES.api_version,
        "kind": MACHINE_MAINTENANCES.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"maintenancescheduled": False, **msgspec.to_builtins(spec)},
    }


def _refusal_reason(maintenance: MachineMaintenance) -> str:
    where = f"MachineMaintenance {maintenance.key}"
    if maintenance.spec.is_over_or_cancelled or maintenance.status.phase == MachineMaintenancePhase.CANCELLED:
        reason = maintenance.status.message or maintenance.spec.description
        return f"{where} was cancelled ({reason:.200}): delete it to replace the Machine"
    if maintenance.status.phase == MachineMaintenancePhase.REFUSED:
        return f"{where} is refused: {maintenance.status.message}"
    return ""
