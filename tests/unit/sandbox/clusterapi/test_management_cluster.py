"""The hub on the stand-ins: what it is told by Cluster API, and Cluster API by it, is understood by both."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from haulout.api.clusterapi import (
    APPROVE_DELETION,
    ENABLED,
    MACHINE_DELETED,
    MAINTENANCE_STATE,
    PRE_DRAIN_HOOK,
    PRE_DRAIN_HOOK_OWNER,
    TRUE,
    VERSIONS,
)
from haulout.api.resources import NODES
from haulout.controllers.clusterapi.controller import ClusterApiController
from haulout.controllers.clusterapi.status import ConnectionState
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.recorder import EventRecorder
from haulout.runtime.freezes import NoFreezes
from haulout_sandbox.clusterapi.workload_clusters import Outage
from support.clusters.process import Process
from support.platforms.clusterapi import ManagementCluster, cluster_key, management_cluster


@asynccontextmanager
async def run_hub(
    clock: Clock, *keys: str, versions: tuple[str, ...] = VERSIONS
) -> AsyncIterator[tuple[ManagementCluster, ClusterApiController]]:
    """Have a hub beside Cluster API."""
    controllers: list[ClusterApiController] = []

    async def program(client: Client) -> None:
        events = EventRecorder(client, instance="test")
        controllers.append(
            ClusterApiController(client, connect=hub.workloads.connect, events=events, freezes=NoFreezes())
        )
        await controllers[0].run()

    async with management_cluster(clock, *keys, versions=versions) as hub:
        Process(hub.management, "haulout", program).start()
        await hub.eventually(lambda: controllers)
        yield hub, controllers[0]


async def a_managed_machine(hub: ManagementCluster, cluster: str) -> str:
    """Return a Machine that is coupled with its node, which somebody maintains."""
    (name,) = await hub.create_machines(cluster)
    await hub.patch("machines", name, metadata={"labels": {ENABLED: TRUE}})
    await set_node_label(hub, cluster, name, MAINTENANCE_STATE, "operational")
    await hub.eventually(
        lambda: hub.machine(name)["metadata"]["annotations"].get(PRE_DRAIN_HOOK), becomes=PRE_DRAIN_HOOK_OWNER
    )
    return name


async def set_node_label(hub: ManagementCluster, cluster: str, machine: str, key: str, value: str) -> None:
    node, patch = hub.node(machine)["metadata"]["name"], merge_patch({"metadata": {"labels": {key: value}}})
    await hub.cluster(cluster).client("profile").patch(NODES, node, patch)


@pytest.mark.parametrize("versions", [VERSIONS, VERSIONS[1:]], ids=" and ".join)
async def test_a_deletion_waits_for_the_node_in_either_version(clock: Clock, versions: tuple[str, ...]) -> None:
    async with run_hub(clock, "a/prod", "b/prod", versions=versions) as (hub, _):
        name, other = await a_managed_machine(hub, "a/prod"), await a_managed_machine(hub, "b/prod")
        for machine in (name, other):
            await hub.delete("machines", machine)
        await hub.eventually(lambda: hub.node(name)["metadata"]["labels"].get(MACHINE_DELETED), becomes=TRUE)
        await clock.sleep(timedelta(minutes=10))
        assert hub.deletion_reason(name) == hub.deletion_reason(other) == "WaitingForPreDrainHook"
        await set_node_label(hub, "a/prod", name, APPROVE_DELETION, TRUE)
        await hub.eventually(lambda: not hub.has("machines", name))
        assert hub.deletion_reason(other) == "WaitingForPreDrainHook"


async def test_a_cluster_that_was_unreachable_is_connected_again(clock: Clock) -> None:
    async with run_hub(clock, "a/prod") as (hub, found):
        name = await a_managed_machine(hub, "a/prod")
        workload = hub.workloads.get(cluster_key("a/prod"))
        assert workload is not None
        for outage in Outage:
            workload.break_connection(outage)
            await clock.sleep(timedelta(minutes=5))
            workload.heal_connection()
            await hub.eventually(
                lambda: [standing.connection_state for standing in found.cluster_statuses()],
                becomes=[ConnectionState.CONNECTED],
            )
        await hub.kubeconfigs.rotate(cluster_key("a/prod"))
        await hub.delete("machines", name)
        await hub.eventually(lambda: hub.node(name)["metadata"]["labels"].get(MACHINE_DELETED), becomes=TRUE)
        await set_node_label(hub, "a/prod", name, APPROVE_DELETION, TRUE)
        await hub.eventually(lambda: not hub.has("machines", name))


async def test_a_cluster_that_is_deleted_holds_no_machine_back(clock: Clock) -> None:
    async with run_hub(clock, "a/prod") as (hub, found):
        await a_managed_machine(hub, "a/prod")
        await hub.delete("clusters", "a/prod")
        await hub.eventually(lambda: not hub.has("clusters", "a/prod"))
        await hub.eventually(found.cluster_statuses, becomes=())
