"""Reports changes of OpenShift Machines and maintenance requests to the users of a sandbox.

Clouds and the timeline report their own actions. Machines change because of the operator and the Machine API, so their
changes are read from the objects, as with `kubectl get --watch`.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from haulout.api.machinemaintenance import MACHINE_MAINTENANCES, MachineMaintenance, MachineMaintenancePhase
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticePhase
from haulout.api.objects import Object, machine_key
from haulout.api.openshift import MACHINES, Machine
from haulout.api.resources import Resource
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout_sandbox.scenarios.actions.action_result import OnEvent

T = TypeVar("T", bound=Object)
_REPORTED_PHASES = (
    MachineMaintenancePhase.WAITING,
    MachineMaintenancePhase.SURGING,
    MachineMaintenancePhase.REFUSED,
)  # and the reasons; deletion of a Machine is reported when it begins
_FINISHED_NOTICE_PHASES = tuple(it for it in NoticePhase if it.is_over)
_FINISHED_PHASES = (MachineMaintenancePhase.COMPLETED, MachineMaintenancePhase.CANCELLED)


async def report_openshift_changes(client: Client, on_event: OnEvent) -> None:
    """Report changes from now on, until cancelled."""
    machine_informer = Informer(client, ListWatch(MACHINES), transform=as_is)

    def describe_notice(old: MaintenanceNotice | None, new: MaintenanceNotice | None) -> str:
        key = machine_key(new.spec.provider_id) if new is not None else ""
        node_names = (
            machine.node
            for machine in machine_informer.all()
            if machine.spec.provider_id and machine_key(machine.spec.provider_id) == key
        )
        return describe_notice_change(old, new, node=next(node_names, ""))

    others: tuple[tuple[Resource[Any], Callable[[Any, Any], str]], ...] = (
        (MAINTENANCE_NOTICES, describe_notice),
        (MACHINE_MAINTENANCES, describe_maintenance_change),
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(report_changes(machine_informer, describe_machine_change, on_event))
        for resource, describe in others:
            if await serves(client, resource):  # the operator's CRDs may be absent
                tasks.create_task(
                    report_changes(Informer(client, ListWatch(resource), transform=as_is), describe, on_event)
                )


async def report_changes(
    informer: Informer[T], describe: Callable[[T | None, T | None], str], on_event: OnEvent
) -> None:
    """Report changes of objects from now on, in the words of `describe`."""
    is_synced = False  # initial objects are no changes

    def on_change(old: T | None, new: T | None) -> None:
        if is_synced and (text := describe(old, new)):
            on_event(text)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(informer.run())
        await informer.wait_synced()
        informer.subscribe(on_change)
        is_synced = True


def describe_machine_change(old: Machine | None, new: Machine | None) -> str:
    """Return the change of a Machine as text; empty if it is not worth a report."""
    if new is None:
        return "" if old is None else f"Machine {old.name} is gone{f', and {old.node} with it' if old.node else ''}"
    if old is None:
        creator = (
            f"{new.controller_owner.kind} {new.controller_owner.name} makes"
            if new.controller_owner is not None
            else "there is"
        )
        return f"{creator} Machine {new.name}"
    if new.is_being_deleted and not old.is_being_deleted:
        consequence = f": {new.node} is emptied, and its instance ended" if new.node else ""
        return f"Machine {new.name} is deleted{consequence}"
    if new.status.phase == old.status.phase:
        return ""
    return {
        "Running": f"Machine {new.name} is running: {new.node} joins",
        "Failed": f"Machine {new.name} has failed: its instance is gone",
    }.get(new.status.phase or "", "")


def describe_maintenance_change(old: MachineMaintenance | None, new: MachineMaintenance | None) -> str:
    if new is None:
        return ""
    machine = new.spec.machinelink
    if old is None:
        return f"MachineMaintenance: Machine {machine} is to be replaced ({new.spec.eventcode})"
    phase, message = new.status.phase, new.status.message
    if phase in _REPORTED_PHASES and (phase, message) != (old.status.phase, old.status.message):
        return f"MachineMaintenance of {machine} is {phase}: {message}"
    return (
        f"MachineMaintenance of {machine} is {phase}" if phase in _FINISHED_PHASES and phase != old.status.phase else ""
    )


def describe_notice_change(old: MaintenanceNotice | None, new: MaintenanceNotice | None, *, node: str) -> str:
    if new is None:
        return ""
    if old is None:
        return f"MaintenanceNotice {new.name}: {new.spec.kind}{f' of {node}' if node else ''}"
    phase = new.status.phase
    return (
        f"MaintenanceNotice {new.name} is {phase}"
        if phase in _FINISHED_NOTICE_PHASES and phase != old.status.phase
        else ""
    )
