"""Asking for another Machine in place of a node's: by a MachineMaintenance, which is somebody else's business then.

Its name is that of the Machine, the profile and the instance: who asks twice, or after a crash, or beside another,
finds that it was asked for. What people have called off is not asked for again.
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
    """Ask for it, unless that was done; return why it will not happen as things are, or nothing."""
    name = object_name(replacement.machine, event_id(replacement, profile))
    body = _machine_maintenance(name, replacement, node=node, profile=profile)
    try:
        await client.create(MACHINE_MAINTENANCES, body, namespace=NAMESPACE)
    except AlreadyExists:
        return _refusal_reason(await client.get(MACHINE_MAINTENANCES, name, namespace=NAMESPACE))
    return ""


def event_id(replacement: ReplaceMachine, profile: str) -> str:
    """Return what tells this request from others: a Machine of the same name on another instance is another one."""
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
        description=f"profile {profile} has node {node.name} replaced",
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
        return f"{where} was called off ({reason:.200}): delete it to have the Machine replaced"
    if maintenance.status.phase == MachineMaintenancePhase.REFUSED:
        return f"{where} is refused: {maintenance.status.message}"
    return ""
