"""Asking for another Machine in place of a node's: by a MachineMaintenance, which is somebody else's business then.

Its name is that of the Machine, the profile and the instance: who asks twice, or after a crash, or beside another,
finds that it was asked for. What people have called off is not asked for again.
"""

from collections.abc import Mapping

import msgspec

from haulout.errors import AlreadyExists
from haulout.kinds.machinemaintenance import (
    BY_PROFILE,
    MACHINE_MAINTENANCES,
    NAMESPACE,
    MachineMaintenance,
    Phase,
    Spec,
    name_of,
)
from haulout.kube.client import Client
from haulout.kube.objects import Node, RawObject
from haulout.profiles.plugin import ReplaceMachine


async def request(client: Client, wanted: ReplaceMachine, *, node: Node, profile: str) -> str:
    """Ask for it, unless that was done; return why it will not happen as things are, or nothing."""
    name = name_of(wanted.machine, event_of(wanted, profile))
    body = _record(name, wanted, node=node, profile=profile)
    try:
        await client.create(MACHINE_MAINTENANCES, body, namespace=NAMESPACE)
    except AlreadyExists:
        return _refused(await client.get(MACHINE_MAINTENANCES, name, namespace=NAMESPACE))
    return ""


def event_of(wanted: ReplaceMachine, profile: str) -> str:
    """Return what tells this request from others: a Machine of the same name on another instance is another one."""
    return f"{BY_PROFILE}-{profile}-{wanted.instance}"


def _record(name: str, wanted: ReplaceMachine, *, node: Node, profile: str) -> Mapping[str, RawObject | str]:
    spec = Spec(
        eventcode=BY_PROFILE,
        eventid=event_of(wanted, profile),
        machineid=wanted.instance,
        machinelink=wanted.machine,
        surge=wanted.surge,
        description=f"profile {profile} has node {node.name} replaced",
    )
    return {
        "apiVersion": MACHINE_MAINTENANCES.api_version,
        "kind": MACHINE_MAINTENANCES.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"maintenancescheduled": False, **msgspec.to_builtins(spec)},
    }


def _refused(found: MachineMaintenance) -> str:
    where = f"MachineMaintenance {found.key}"
    if found.spec.is_called_off or found.status.phase == Phase.CANCELLED:
        why = found.status.message or found.spec.description
        return f"{where} was called off ({why:.200}): delete it to have the Machine replaced"
    if found.status.phase == Phase.REFUSED:
        return f"{where} is refused: {found.status.message}"
    return ""
