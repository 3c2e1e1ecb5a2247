"""A hub, Cluster API and Metal3 together: powering hosts off and on, and MachineDrainRules in drains."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from haulout.api.clusterapi import (
    APPROVE_MAINTENANCE,
    DRAIN_RULES,
    ENABLED,
    MACHINE_MAINTENANCE,
    MAINTENANCE,
    MAINTENANCE_STATE,
    OUR_REBOOT_ANNOTATION,
)
from haulout.api.objects import RawObject
from haulout.api.resources import NODES
from haulout.app.hub import HubReplicaSettings, run_hub
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.core.clock import Clock
from haulout.drain.drainer import Drainer
from haulout.drain.machine_drain_rules import with_machine_drain_rules
from haulout.drain.policy import DrainPolicy
from haulout.kube.patches import merge_patch
from haulout_sandbox.metal3.objects import a_host
from support.builders.objects import a_namespace, a_pod
from support.platforms.clusterapi import ManagementCluster, management_cluster

CLUSTER = "a/metal"
ON_HOSTS = {"infrastructureRef": {"kind": "Metal3MachineTemplate", "name": "workers"}}


@asynccontextmanager
async def hub_with_a_host(clock: Clock) -> AsyncIterator[tuple[ManagementCluster, str]]:
    """Run a hub, with a Machine on a host whose node is managed by a profile."""
    async with management_cluster(clock, CLUSTER) as site:
        await site.create(a_host("r1", namespace="a"))
        (machine,) = await site.create_machines(CLUSTER, spec=ON_HOSTS)
        await label(site, machine, ENABLED, "true")
        await change_node(site, machine, metadata={"labels": {MAINTENANCE_STATE: "operational"}})
        operation = HubReplicaSettings(
            namespace="haulout", identity="hub", elects_leader=False, hub=ClusterApiSettings(metal3=True)
        )
        async with asyncio.TaskGroup() as group:
            client = site.management.client("hub")
            task = group.create_task(run_hub(client, operation, connect=site.workloads.connect))
            try:
                yield site, machine
            finally:
                task.cancel()


async def label(site: ManagementCluster, machine: str, key: str, value: str | None) -> None:
    await site.patch("machines", machine, metadata={"labels": {key: value}})


async def change_node(site: ManagementCluster, machine: str, **change: object) -> None:
    client = site.cluster(CLUSTER).client("profile")
    await client.patch(NODES, site.node(machine)["metadata"]["name"], merge_patch(change))


def host(site: ManagementCluster) -> RawObject:
    return site.get("baremetalhosts", "a/r1")


def is_on(site: ManagementCluster) -> bool:
    return bool(host(site)["status"]["poweredOn"])


def is_ready(site: ManagementCluster, machine: str) -> bool:
    return any(it["type"] == "Ready" and it["status"] == "True" for it in site.node(machine)["status"]["conditions"])


async def start_maintenance(site: ManagementCluster, machine: str) -> None:
    """Request maintenance, and prepare the node as the profile does."""
    await label(site, machine, MAINTENANCE, "requested")
    await site.eventually(lambda: MACHINE_MAINTENANCE in site.node(machine)["metadata"]["labels"])
    await change_node(site, machine, spec={"unschedulable": True})
    await change_node(site, machine, metadata={"labels": {APPROVE_MAINTENANCE: "true"}})
    await site.eventually(lambda: not is_on(site))


async def test_host_is_powered_off_for_maintenance_and_its_node_returns(clock: Clock) -> None:
    async with hub_with_a_host(clock) as (site, machine):
        await start_maintenance(site, machine)
        await site.eventually(lambda: not is_ready(site, machine))
        await clock.sleep(timedelta(minutes=5))
        assert not is_on(site)
        await label(site, machine, MAINTENANCE, None)
        await site.eventually(lambda: is_on(site) and is_ready(site, machine))


async def test_host_of_a_machine_deleted_in_maintenance_is_reused(clock: Clock) -> None:
    async with hub_with_a_host(clock) as (site, machine):
        await start_maintenance(site, machine)
        await site.delete("machines", machine)
        await site.eventually(lambda: OUR_REBOOT_ANNOTATION not in host(site)["metadata"].get("annotations", {}))
        await site.patch("machines", machine, metadata={"labels": {ENABLED: None}})
        await site.eventually(lambda: site.running_machines(CLUSTER) and machine not in site.machines(CLUSTER))
        (another,) = site.running_machines(CLUSTER)
        assert host(site)["spec"]["consumerRef"]["name"] == another.removeprefix("a/")
        assert (is_on(site), is_ready(site, another)) == (True, True)


async def test_machine_drain_rules_apply_to_drains_in_the_workload_cluster(clock: Clock) -> None:
    async with hub_with_a_host(clock) as (site, machine):
        rule = {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "MachineDrainRule",
            "metadata": {"name": "keep-db", "namespace": "a"},
            "spec": {"drain": {"behavior": "Skip"}, "pods": [{"selector": {"matchLabels": {"app": "db"}}}]},
        }
        await site.create(rule)
        await site.eventually(lambda: DRAIN_RULES in site.node(machine)["metadata"]["annotations"])
        workload, node = site.cluster(CLUSTER), site.node(machine)["metadata"]["name"]
        workload.api.put(a_namespace("shop"))
        for app in ("db", "web"):
            workload.api.put(a_pod(f"shop/{app}", on=node, labels={"app": app}))
        client = workload.client("operator")
        policy = with_machine_drain_rules(DrainPolicy.like_nmo(), await client.get(NODES, node))
        assert (await Drainer(client, node, policy).run()).is_drained
        assert [it["metadata"]["name"] for it in workload.api.objects("pods", namespace="shop")] == ["db"]
