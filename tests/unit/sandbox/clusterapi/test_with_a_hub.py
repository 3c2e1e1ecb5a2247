"""The hub on the stand-ins: what it is told by Cluster API, and Cluster API by it, is understood by both."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout.hub.controller import Hub
from haulout.hub.standing import Reach
from haulout.kinds.clusterapi import (
    APPROVE_DELETION,
    ENABLED,
    HOOK,
    HOOK_OWNER,
    MACHINE_DELETED,
    MANAGED,
    TRUE,
    VERSIONS,
)
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES
from haulout_sandbox.clusterapi import Outage
from support.clusterapi import Managed, key_of, managed
from support.processes import Process


@asynccontextmanager
async def coupled(clock: Clock, *keys: str, versions: tuple[str, ...] = VERSIONS) -> AsyncIterator[tuple[Managed, Hub]]:
    """Have a hub beside Cluster API."""
    made: list[Hub] = []

    async def program(client: Client) -> None:
        events = EventRecorder(client, instance="test")
        made.append(Hub(client, connect=hub.workloads.connect, events=events))
        await made[0].run()

    async with managed(clock, *keys, versions=versions) as hub:
        Process(hub.management, "haulout", program).start()
        await hub.eventually(lambda: made)
        yield hub, made[0]


async def enabled(hub: Managed, cluster: str) -> str:
    """Return a Machine that is coupled with its node, which somebody maintains."""
    (name,) = await hub.with_machines(cluster)
    await hub.patch("machines", name, metadata={"labels": {ENABLED: TRUE}})
    await label(hub, cluster, name, MANAGED, "operational")
    await hub.eventually(lambda: hub.machine(name)["metadata"]["annotations"].get(HOOK), becomes=HOOK_OWNER)
    return name


async def label(hub: Managed, cluster: str, machine: str, key: str, value: str) -> None:
    node, patch = hub.node(machine)["metadata"]["name"], merge_patch({"metadata": {"labels": {key: value}}})
    await hub.cluster(cluster).client("profile").patch(NODES, node, patch)


@pytest.mark.parametrize("versions", [VERSIONS, VERSIONS[1:]], ids=" and ".join)
async def test_a_deletion_waits_for_the_node_in_either_version(clock: Clock, versions: tuple[str, ...]) -> None:
    async with coupled(clock, "a/prod", "b/prod", versions=versions) as (hub, _):
        name, other = await enabled(hub, "a/prod"), await enabled(hub, "b/prod")
        for machine in (name, other):
            await hub.delete("machines", machine)
        await hub.eventually(lambda: hub.node(name)["metadata"]["labels"].get(MACHINE_DELETED), becomes=TRUE)
        await clock.sleep(timedelta(minutes=10))
        assert hub.reason(name) == hub.reason(other) == "WaitingForPreDrainHook"
        await label(hub, "a/prod", name, APPROVE_DELETION, TRUE)
        await hub.eventually(lambda: not hub.has("machines", name))
        assert hub.reason(other) == "WaitingForPreDrainHook"


async def test_a_cluster_that_is_away_for_a_while_is_coupled_again(clock: Clock) -> None:
    async with coupled(clock, "a/prod") as (hub, found):
        name = await enabled(hub, "a/prod")
        workload = hub.workloads.get(key_of("a/prod"))
        assert workload is not None
        for outage in Outage:
            workload.fail(outage)
            await clock.sleep(timedelta(minutes=5))
            workload.mend()
            await hub.eventually(lambda: [it.reach for it in found.standings()], becomes=[Reach.CONNECTED])
        await hub.kubeconfigs.rotate(key_of("a/prod"))
        await hub.delete("machines", name)
        await hub.eventually(lambda: hub.node(name)["metadata"]["labels"].get(MACHINE_DELETED), becomes=TRUE)
        await label(hub, "a/prod", name, APPROVE_DELETION, TRUE)
        await hub.eventually(lambda: not hub.has("machines", name))


async def test_a_cluster_that_is_deleted_holds_no_machine_back(clock: Clock) -> None:
    async with coupled(clock, "a/prod") as (hub, found):
        await enabled(hub, "a/prod")
        await hub.delete("clusters", "a/prod")
        await hub.eventually(lambda: not hub.has("clusters", "a/prod"))
        await hub.eventually(found.standings, becomes=())
