"""MachineMaintenances in an OpenShift cluster: the operator as a process, its records, and their status."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from haulout.api.machinemaintenance import MACHINE_MAINTENANCES, NAMESPACE
from haulout.api.objects import RawObject
from haulout.api.resources import NODES
from haulout.controllers.machines.controller import MachineMaintenanceController
from haulout.controllers.machines.desired_maintenance import NoticeFilter
from haulout.controllers.machines.notice_controller import MachineNoticeController
from haulout.controllers.machines.replacement_time import ReplacementPolicy
from haulout.controllers.machines.settings import MachineSettings
from haulout.controllers.notices.controller import notice_informer
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from support.clusters.live_cluster import LiveCluster
from support.operators.freezes import freeze_source
from support.platforms.openshift import instance_of, machines, ready_machines, terminating_machines

Program = Callable[[Client], Coroutine[Any, Any, None]]
PLURAL = MACHINE_MAINTENANCES.plural
REPLACEMENT_TIMEOUT = timedelta(minutes=40)


def machinemaintenance_operator(
    replacement_policy: ReplacementPolicy | None = None,
    *,
    namespace: str = NAMESPACE,
    notice_filter: NoticeFilter | None = None,
    reads_freezes: bool = False,
) -> Program:
    """Return the operator as a program; with `notice_filter`, notices become records."""

    async def run_controller(client: Client) -> None:
        events = EventRecorder(client, instance="test", controller="MachineMaintenance")
        nodes = Informer(client, ListWatch(NODES), transform=as_is)
        settings = MachineSettings(policy=replacement_policy or ReplacementPolicy(), namespace=namespace)
        async with freeze_source(client, reads_freezes=reads_freezes) as freezes, asyncio.TaskGroup() as group:
            tasks = [group.create_task(component.run()) for component in (events, nodes)]
            controller = MachineMaintenanceController(
                client, events=events, nodes=nodes, settings=settings, freezes=freezes
            )
            if notice_filter is not None:
                notices = notice_informer(client)
                notice_controller = MachineNoticeController(
                    client,
                    informers=controller.informers,
                    notices=notices,
                    namespace=namespace,
                    notice_filter=notice_filter,
                )
                tasks += [group.create_task(run()) for run in (notices.run, notice_controller.run)]
            try:
                await controller.run()
            finally:
                for task in tasks:
                    task.cancel()

    return run_controller


run_operator = machinemaintenance_operator()


def a_machinemaintenance(
    machine: str, instance: str, *, name: str = "", namespace: str = NAMESPACE, **spec: Any
) -> RawObject:
    """Return a record as a person, or the Machine Maintenance Operator, writes it."""
    return {
        "apiVersion": MACHINE_MAINTENANCES.api_version,
        "kind": MACHINE_MAINTENANCES.kind,
        "metadata": {"name": name or f"mm-{machine}", "namespace": namespace},
        "spec": {"maintenancescheduled": False, "machineid": instance, "machinelink": machine, **spec},
    }


async def create_machinemaintenance(cluster: LiveCluster, machine: str, **more: Any) -> None:
    """Create a MachineMaintenance for a Machine."""
    await cluster.create(a_machinemaintenance(machine, instance_of(cluster, machine), **more))


def machinemaintenance_of(cluster: LiveCluster, machine: str, *, namespace: str = NAMESPACE) -> RawObject:
    """Return the record of a Machine by its old name, or by the name itself."""
    name = machine if cluster.has(PLURAL, f"{namespace}/{machine}") else f"mm-{machine}"
    return cluster.get(PLURAL, f"{namespace}/{name}")


def is_deletion_scheduled(cluster: LiveCluster, machine: str) -> bool:
    """Return whether the record says that the deletion of the Machine is scheduled."""
    return bool(machinemaintenance_of(cluster, machine)["spec"]["maintenancescheduled"])


def phase(cluster: LiveCluster, machine: str) -> str:
    """Return its phase."""
    return str(machinemaintenance_of(cluster, machine).get("status", {}).get("phase", ""))


def message(cluster: LiveCluster, machine: str) -> str:
    """Return its message."""
    return str(machinemaintenance_of(cluster, machine).get("status", {}).get("message", ""))


def warning_reasons(cluster: LiveCluster, machine: str) -> list[str]:
    """Return the reasons of the warnings about a record."""
    bad = [event for event in cluster.by_key("events").values() if event["type"] == "Warning"]
    uid = machinemaintenance_of(cluster, machine)["metadata"]["uid"]
    return sorted(
        event["reason"] for event in bad if (event.get("regarding") or event["involvedObject"]).get("uid") == uid
    )


async def wait_until_replaced(cluster: LiveCluster, old: list[str], *, ready_at_least: int) -> None:
    """Wait until these Machines are deleted one at a time, while at least that many others are ready."""
    counts: list[tuple[int, int]] = []

    def are_gone() -> bool:
        counts.append((len(terminating_machines(cluster)), len(ready_machines(cluster))))
        return not set(old) & set(machines(cluster))

    await cluster.eventually(are_gone, within=REPLACEMENT_TIMEOUT)
    assert max(going for going, _ in counts) <= 1
    assert min(serving for _, serving in counts) >= ready_at_least


async def wait_until_completed(cluster: LiveCluster, machine: str) -> None:
    """Wait until the Machine is deleted, and the record is completed."""
    await cluster.eventually(lambda: phase(cluster, machine), becomes="Completed", within=REPLACEMENT_TIMEOUT)
