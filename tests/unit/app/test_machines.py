"""Replacing Machines as a part of the operator: where there are any, beside all else, and told to who asks."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from haulout.app.machine_settings import read
from haulout.app.machines import Machines, replace_machines
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.vitals import Vitals
from haulout.core.clock import Clock
from haulout.kinds import machinemaintenance
from haulout.kinds.machinemaintenance import name_of
from haulout.kube.cache import Cache, Handler, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.objects import Node, RawObject
from haulout.kube.resources import NODES
from haulout.machines.controller import Controller
from haulout.web.metrics import Exposition
from haulout_sandbox.openshift import definitions
from support.clusters import a_cluster
from support.live import SandboxCluster
from support.openshift import BRISK, PATIENCE, leaving, machine_api, machines, openshift, ready, with_machine_set
from support.processes import Program
from support.replacing import completed, order
from support.telling import EVENT, hear

HOME = "haulout"


def operator(vitals: Vitals | None = None) -> Program:
    """Return the whole operator as a program."""

    async def program(client: Client) -> None:
        settings = OperatorSettings(namespace=HOME, identity="one")
        await run_operator(client, settings, vitals=vitals)

    return program


@asynccontextmanager
async def a_site(clock: Clock) -> AsyncIterator[SandboxCluster]:
    async with openshift(a_cluster(clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=BRISK):
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
        yield cluster


def counted(vitals: Vitals) -> dict[str, float]:
    """Return our numbers about Machines."""
    lines = Exposition(vitals.tallies).text().decode().splitlines()
    ours = [it.rsplit(" ", 1) for it in lines if it.startswith("haulout_machine_maintenances")]
    return {name: float(number) for name, number in ours}


def in_phase(vitals: Vitals, wanted: str) -> float:
    return counted(vitals).get(f'haulout_machine_maintenances{{phase="{wanted}"}}', -1)


async def test_a_notice_becomes_a_record_and_its_machine_is_replaced(clock: Clock) -> None:
    vitals = Vitals()
    async with a_site(clock) as cluster:
        first, second = await with_machine_set(cluster, "workers", replicas=2)
        cluster.run(operator(vitals))
        await hear(cluster, first)
        await cluster.eventually(lambda: leaving(cluster), becomes=[first])
        await cluster.eventually(lambda: in_phase(vitals, "Replacing"), becomes=1)
        assert "[+] machines: this replica sees to them; to be replaced: 1" in vitals.told()
        await completed(cluster, name_of(first, EVENT))
        await cluster.eventually(lambda: len(ready(cluster)), becomes=2, within=PATIENCE)
        assert second in machines(cluster)
        assert in_phase(vitals, "Completed") == 1
        assert counted(vitals)["haulout_machine_maintenances_late"] == 0
        assert vitals.troubles() == []


async def test_what_cannot_be_done_is_a_trouble(clock: Clock) -> None:
    vitals = Vitals()
    async with a_site(clock) as cluster:
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        cluster.run(operator(vitals))
        await cluster.create(
            {
                "apiVersion": "machinemaintenance.managed.openshift.io/v1alpha1",
                "kind": "MachineMaintenance",
                "metadata": {"name": "typo", "namespace": "machine-maintenance-operator"},
                "spec": {"maintenancescheduled": False, "machineid": "i-0other", "machinelink": name},
            }
        )
        (told,) = await cluster.eventually(vitals.troubles)
        assert told == (
            "1 MachineMaintenance cannot be done: "
            "`kubectl get machinemaintenances -n machine-maintenance-operator` says why"
        )
        assert in_phase(vitals, "Refused") == 1


async def test_a_machine_that_will_be_late_is_a_trouble(clock: Clock) -> None:
    window = "{weekdays: [sat], start: '02:00', end: '04:00'}"
    settings, policy = read({"HAULOUT_MACHINES_WINDOW": window})
    vitals = Vitals(machines=Machines(settings=settings, policy=policy))
    async with a_site(clock) as cluster:
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        cluster.run(operator(vitals))
        await order(cluster, name, notbefore=(clock.now() + timedelta(minutes=5)).isoformat())
        (told,) = await cluster.eventually(vitals.troubles)
        assert told.startswith("1 Machine will not be replaced before the cloud begins")
        assert counted(vitals)["haulout_machine_maintenances_late"] == 1
        assert leaving(cluster) == []


# Where they come later


async def test_what_is_missing_may_come_later_than_the_operator(clock: Clock) -> None:
    record = machinemaintenance.definition()
    vitals = Vitals()
    async with a_cluster(clock).on_the_sandbox() as cluster:
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
        operating = cluster.run(operator(vitals))
        await cluster.pass_time(minutes=30)
        assert len(asked(cluster)) == 1
        assert [it for it in vitals.told() if "machines" in it] == []
        install(cluster, *definitions())
        async with machine_api(cluster, paces=BRISK):
            (name,) = await with_machine_set(cluster, "workers", replicas=1)
            await cluster.pass_time(minutes=60)
            assert len(asked(cluster)) <= 12
            assert [it for it in vitals.told() if "machines" in it] == []
            install(cluster, record)
            await cluster.pass_time(minutes=10)
            await order(cluster, name)
            await completed(cluster, name)
        operating.kill()


async def test_a_cluster_without_machines_is_no_reason_for_a_warning(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_cluster(clock).on_the_sandbox() as cluster:
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
        with caplog.at_level(logging.INFO):
            cluster.run(operator())
            await cluster.pass_time(minutes=5)
        assert [it for it in caplog.messages if "machine" in it.lower()] == []


def install(cluster: SandboxCluster, *wanted: RawObject) -> None:
    for definition in wanted:
        cluster.cluster.api.put(definition)


def asked(cluster: SandboxCluster) -> list[str]:
    """Return what the operator has asked about Machines."""
    (process,) = cluster.processes.values()
    paths = [it.request.path for it in process.transport.requests]
    return [it for it in paths if "openshift" in it]


# Where it breaks


async def test_a_part_that_breaks_is_started_again_and_hears_of_nodes_once(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Controller):
        lives = 0

        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # whatever the real one takes
            Broken.lives += 1
            if Broken.lives <= 2:
                self._queue.run = self._break  # type: ignore[method-assign]  # a defect

        async def _break(self) -> None:
            raise RuntimeError("a defect")

    monkeypatch.setattr("haulout.machines.controller.Controller", Broken)
    told: list[str] = []
    seen: list[Counting] = []
    whole = Machines()

    async def program(client: Client) -> None:
        nodes = Counting(client, Selection(NODES), row=as_is)
        seen.append(nodes)

        async def tell(note: str) -> None:
            told.append(note)

        async with asyncio.TaskGroup() as group:
            group.create_task(followed(nodes))
            work = lambda: replace_machines(client, whole, identity="one", nodes=nodes)  # noqa: E731 - as a part is run
            await whole.part.run(work, client=client, tell=tell)

    async with a_site(clock) as cluster:
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        cluster.run(program)
        await order(cluster, name)
        await completed(cluster, name)
        assert len(told) == 2
        assert "replacing Machines broke" in told[0]
        assert "a defect" in next(whole.troubles())
        assert [it.handlers for it in seen] == [1]


class Counting(Cache[Node]):
    """Nodes that know how many listen."""

    handlers = 0

    def subscribe(self, handler: Handler[Node]) -> Callable[[], None]:
        """Count."""
        end = super().subscribe(handler)
        self.handlers += 1

        def ended() -> None:
            self.handlers -= 1
            end()

        return ended


async def followed(nodes: Cache[Node]) -> None:
    await nodes.run()
