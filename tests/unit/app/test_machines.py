"""The machines component of the operator: it runs where Machines exist, together with other components."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from haulout.api import machinemaintenance
from haulout.api.machinemaintenance import object_name
from haulout.api.objects import Node, RawObject
from haulout.api.resources import NODES
from haulout.app.machines import read_settings
from haulout.app.operator import OperatorSettings, run_operator, shared_informers
from haulout.app.operator_status import OperatorStatus
from haulout.controllers.machines.component import MachinesComponent
from haulout.controllers.machines.controller import MachineMaintenanceController
from haulout.core.clock import Clock
from haulout.httpserver.metrics import Exposition
from haulout.kube.client import Client
from haulout.kube.informer import Handler, Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout.runtime.component import Leader
from haulout_sandbox.openshift.objects import custom_resource_definitions
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.clusters.process import Program
from support.platforms.machine_notices import EVENT, report_event
from support.platforms.machinemaintenance import create_machinemaintenance, wait_until_completed
from support.platforms.openshift import (
    SHORT_DELAYS,
    TIMEOUT,
    create_machine_set,
    machine_api,
    machines,
    ready_machines,
    terminating_machines,
    with_openshift,
)

HOME = "haulout"


def operator(vitals: OperatorStatus | None = None) -> Program:
    """Return the whole operator as a program."""

    async def program(client: Client) -> None:
        settings = OperatorSettings(namespace=HOME, identity="one")
        await run_operator(client, settings, status=vitals)

    return program


@asynccontextmanager
async def a_site(clock: Clock) -> AsyncIterator[SandboxCluster]:
    async with with_openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, delays=SHORT_DELAYS):
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
        yield cluster


def counted(vitals: OperatorStatus) -> dict[str, float]:
    """Return our metrics about Machines."""
    lines = Exposition(vitals.collect_metrics).text().decode().splitlines()
    ours = [it.rsplit(" ", 1) for it in lines if it.startswith("haulout_machine_maintenances")]
    return {name: float(number) for name, number in ours}


def in_phase(vitals: OperatorStatus, wanted: str) -> float:
    return counted(vitals).get(f'haulout_machine_maintenances{{phase="{wanted}"}}', -1)


async def test_notice_creates_a_machine_maintenance_and_replaces_its_machine(clock: Clock) -> None:
    vitals = OperatorStatus()
    async with a_site(clock) as cluster:
        first, second = await create_machine_set(cluster, "workers", replicas=2)
        cluster.run(operator(vitals))
        await report_event(cluster, first)
        await cluster.eventually(lambda: terminating_machines(cluster), becomes=[first])
        await cluster.eventually(lambda: in_phase(vitals, "Replacing"), becomes=1)
        assert "[+] machines: running on this replica; to be replaced: 1" in vitals.status_lines()
        await wait_until_completed(cluster, object_name(first, EVENT))
        await cluster.eventually(lambda: len(ready_machines(cluster)), becomes=2, within=TIMEOUT)
        assert second in machines(cluster)
        assert in_phase(vitals, "Completed") == 1
        assert counted(vitals)["haulout_machine_maintenances_late"] == 0
        assert vitals.troubles() == []


async def test_refused_machine_maintenance_is_reported_as_a_problem(clock: Clock) -> None:
    vitals = OperatorStatus()
    async with a_site(clock) as cluster:
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        cluster.run(operator(vitals))
        await cluster.create(
            {
                "apiVersion": "machinemaintenance.managed.openshift.io/v1alpha1",
                "kind": "MachineMaintenance",
                "metadata": {"name": "typo", "namespace": "machine-maintenance-operator"},
                "spec": {"maintenancescheduled": False, "machineid": "i-0other", "machinelink": name},
            }
        )
        (problem,) = await cluster.eventually(vitals.troubles)
        assert problem == (
            "1 MachineMaintenance cannot be done: "
            "`kubectl get machinemaintenances -n machine-maintenance-operator` shows why"
        )
        assert in_phase(vitals, "Refused") == 1


async def test_late_machine_replacement_is_reported_as_a_problem(clock: Clock) -> None:
    window = "{weekdays: [sat], start: '02:00', end: '04:00'}"
    settings, policy = read_settings({"HAULOUT_MACHINES_WINDOW": window})
    vitals = OperatorStatus(machines=MachinesComponent(settings=settings, policy=policy))
    async with a_site(clock) as cluster:
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        cluster.run(operator(vitals))
        await create_machinemaintenance(cluster, name, notbefore=(clock.now() + timedelta(minutes=5)).isoformat())
        (problem,) = await cluster.eventually(vitals.troubles)
        assert problem.startswith("1 Machine will not be replaced before the cloud begins")
        assert counted(vitals)["haulout_machine_maintenances_late"] == 1
        assert terminating_machines(cluster) == []


# CRDs that are installed later


async def test_crds_may_be_installed_after_the_operator(clock: Clock) -> None:
    record = machinemaintenance.definition()
    vitals = OperatorStatus()
    async with a_cluster(clock).on_the_sandbox() as cluster:
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
        operating = cluster.run(operator(vitals))
        await cluster.pass_time(minutes=30)
        assert machine_requests(cluster) == []
        assert [it for it in vitals.status_lines() if "machines" in it] == []
        install(cluster, *custom_resource_definitions())
        async with machine_api(cluster, delays=SHORT_DELAYS):
            (name,) = await create_machine_set(cluster, "workers", replicas=1)
            await cluster.pass_time(minutes=60)
            assert len(machine_requests(cluster)) <= 12
            assert [it for it in vitals.status_lines() if "machines" in it] == []
            install(cluster, record)
            await cluster.pass_time(minutes=10)
            await create_machinemaintenance(cluster, name)
            await wait_until_completed(cluster, name)
        operating.kill()


async def test_cluster_without_machines_causes_no_warning(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with a_cluster(clock).on_the_sandbox() as cluster:
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
        with caplog.at_level(logging.INFO):
            cluster.run(operator())
            await cluster.pass_time(minutes=5)
        assert [it for it in caplog.messages if "machine" in it.lower()] == []


def install(cluster: SandboxCluster, *wanted: RawObject) -> None:
    for definition in wanted:
        cluster.cluster.api.put(definition)


def machine_requests(cluster: SandboxCluster) -> list[str]:
    """Return the requests of the operator about Machines."""
    (process,) = cluster.processes.values()
    paths = [it.request.path for it in process.transport.requests]
    return [it for it in paths if "openshift" in it]


# Failures


async def test_failed_machines_component_restarts_and_subscribes_to_nodes_once(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(MachineMaintenanceController):
        lives = 0

        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # whatever the real one takes
            Broken.lives += 1
            if Broken.lives <= 2:
                self._maintenances.queue.run = self._break  # type: ignore[method-assign]  # a defect

        async def _break(self) -> None:
            raise RuntimeError("a defect")

    monkeypatch.setattr("haulout.controllers.machines.controller.MachineMaintenanceController", Broken)
    reports: list[str] = []
    informers: list[Counting] = []
    component = MachinesComponent()

    async def program(client: Client) -> None:
        nodes = Counting(client, ListWatch(NODES), transform=as_is)
        shared = replace(shared_informers(client), nodes=nodes)
        informers.append(nodes)

        async def warn(note: str, *, reason: str, action: str) -> None:
            assert (reason, action) == ("MachinesFailed", "RunMachines")
            reports.append(note)

        async with asyncio.TaskGroup() as group:
            group.create_task(followed(nodes))
            group.create_task(shared.freezes.run())
            await component.run(Leader(client=client, identity="one", namespace="haulout", informers=shared, warn=warn))

    async with a_site(clock) as cluster:
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        cluster.run(program)
        await create_machinemaintenance(cluster, name)
        await wait_until_completed(cluster, name)
        assert len(reports) == 2
        assert "Machine replacement failed" in reports[0]
        assert "a defect" in next(component.problems())
        assert [it.handlers for it in informers] == [1]


class Counting(Informer[Node]):
    """An informer of nodes that counts its subscribers."""

    handlers = 0

    def subscribe(self, handler: Handler[Node]) -> Callable[[], None]:
        """Count."""
        end = super().subscribe(handler)
        self.handlers += 1

        def ended() -> None:
            self.handlers -= 1
            end()

        return ended


async def followed(nodes: Informer[Node]) -> None:
    await nodes.run()
