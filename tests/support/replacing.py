"""MachineMaintenances in a cluster of OpenShift: the operator as a process, records, and how they stand."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from haulout.kinds.machinemaintenance import MACHINE_MAINTENANCES, NAMESPACE
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.follow import Selection
from haulout.kube.objects import RawObject
from haulout.kube.resources import NODES
from haulout.machines.controller import Controller
from haulout.machines.noting import Noting
from haulout.machines.records import Policy
from haulout.machines.settings import Settings
from haulout.machines.timing import Terms
from support.live import LiveCluster
from support.openshift import instance_of, leaving, machines, ready

Program = Callable[[Client], Coroutine[Any, Any, None]]
PLURAL = MACHINE_MAINTENANCES.plural
LONG = timedelta(minutes=40)


def operating(terms: Terms | None = None, *, namespace: str = NAMESPACE, notes: Policy | None = None) -> Program:
    """Return the operator as a program; with `notes`, notices become records."""

    async def operate(client: Client) -> None:
        events = EventRecorder(client, instance="test", controller="MachineMaintenance")
        nodes = Cache(client, Selection(NODES), row=as_is)
        settings = Settings(terms=terms or Terms(), namespace=namespace)
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(it.run()) for it in (events, nodes)]
            controller = Controller(client, events=events, nodes=nodes, settings=settings)
            if notes is not None:
                noting = Noting(client, sight=controller.sight, namespace=namespace, policy=notes)
                beside.append(group.create_task(noting.run()))
            try:
                await controller.run()
            finally:
                for task in beside:
                    task.cancel()

    return operate


operate = operating()


def a_record(machine: str, instance: str, *, name: str = "", namespace: str = NAMESPACE, **spec: Any) -> RawObject:
    """Return a record as a person, or the Machine Maintenance Operator, writes it."""
    return {
        "apiVersion": MACHINE_MAINTENANCES.api_version,
        "kind": MACHINE_MAINTENANCES.kind,
        "metadata": {"name": name or f"mm-{machine}", "namespace": namespace},
        "spec": {"maintenancescheduled": False, "machineid": instance, "machinelink": machine, **spec},
    }


async def order(cluster: LiveCluster, machine: str, **more: Any) -> None:
    """Have a Machine replaced."""
    await cluster.create(a_record(machine, instance_of(cluster, machine), **more))


def record(cluster: LiveCluster, machine: str, *, namespace: str = NAMESPACE) -> RawObject:
    """Return the record of a Machine by its old name, or by the name itself."""
    name = machine if cluster.has(PLURAL, f"{namespace}/{machine}") else f"mm-{machine}"
    return cluster.get(PLURAL, f"{namespace}/{name}")


def flag(cluster: LiveCluster, machine: str) -> bool:
    """Return whether the record says that the Machine was told to go."""
    return bool(record(cluster, machine)["spec"]["maintenancescheduled"])


def phase(cluster: LiveCluster, machine: str) -> str:
    """Return how it stands."""
    return str(record(cluster, machine).get("status", {}).get("phase", ""))


def message(cluster: LiveCluster, machine: str) -> str:
    """Return why."""
    return str(record(cluster, machine).get("status", {}).get("message", ""))


def warnings(cluster: LiveCluster, machine: str) -> list[str]:
    """Return the reasons of the warnings about a record."""
    bad = [it for it in cluster.all("events").values() if it["type"] == "Warning"]
    uid = record(cluster, machine)["metadata"]["uid"]
    return sorted(it["reason"] for it in bad if (it.get("regarding") or it["involvedObject"]).get("uid") == uid)


async def all_gone(cluster: LiveCluster, old: list[str], *, ready_at_least: int) -> None:
    """Wait until these Machines are gone, one at a time, while so many others serve."""
    seen: list[tuple[int, int]] = []

    def are_gone() -> bool:
        seen.append((len(leaving(cluster)), len(ready(cluster))))
        return not set(old) & set(machines(cluster))

    await cluster.eventually(are_gone, within=LONG)
    assert max(going for going, _ in seen) <= 1
    assert min(serving for _, serving in seen) >= ready_at_least


async def completed(cluster: LiveCluster, machine: str) -> None:
    """Wait until the Machine is gone, and the record says so."""
    await cluster.eventually(lambda: phase(cluster, machine), becomes="Completed", within=LONG)
