"""What happens between a management cluster and its workload clusters in a scenario, and what is told of it."""

import re

import pytest

from haulout.core.clock import Clock
from haulout.errors import Unauthorized, Unreachable
from haulout.kinds.clusterapi import APPROVED, MAINTENANCE, REQUESTED, ClusterKey
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout_sandbox.clusterapi import kinds
from support.playing import Play, played

BASE = """
pools: [{name: hub}]
clusters:
  - name: prod
    namespace: a
    labels: {team: a}
    pools: [{name: workers, count: 2, zones: [x, y], cpu: 2, labels: {team: shop}, machineLabels: {mine: "yes"}}]
    workloads: [{kind: Deployment, name: web, namespace: shop, replicas: 4, start: 1s, stop: 1s}]
  - {name: prod, namespace: b, pools: [{name: rack, count: 1, bareMetal: true}]}
"""
A, B = ClusterKey("a", "prod"), ClusterKey("b", "prod")


def machines(play: Play, key: ClusterKey = A) -> dict[str, RawObject]:
    return {it["metadata"]["name"]: it for it in play.api.objects("machines", namespace=key.namespace)}


def words(play: Play) -> list[str]:
    """Return what was told, without names that are left to chance."""
    return [re.sub(r"\b(workers|rack)-\w{10}(-\w{5})?\b", r"\1", what) for _, what in play.told]


async def test_pools_are_machine_deployments_whose_nodes_are_as_the_pool_says(clock: Clock) -> None:
    async with played(clock, "  []", base=BASE) as play:
        inside = play.stage.clusters.clusters[A].api
        assert [it["metadata"]["labels"]["mine"] for it in machines(play).values()] == ["yes", "yes"]
        nodes = {it["metadata"]["name"]: it for it in inside.objects("nodes")}
        assert set(nodes) == set(machines(play))
        zones = [it["metadata"]["labels"]["topology.kubernetes.io/zone"] for it in nodes.values()]
        assert sorted(zones) == ["x", "y"]
        assert {it["metadata"]["labels"]["team"] for it in nodes.values()} == {"shop"}
        assert {it["status"]["capacity"]["cpu"] for it in nodes.values()} == {"2"}
        assert {it["spec"]["nodeName"] for it in inside.objects("pods", namespace="shop")} == set(nodes)
        assert play.api.get("clusters", "prod", "a")["metadata"]["labels"] == {"team": "a"}
        found = play.api.objects("baremetalhosts")
        hosts = {it["metadata"]["name"]: it["status"]["provisioning"]["state"] for it in found}
        assert sorted(hosts.values()) == ["available", "provisioned"]
        assert list(hosts) == ["rack-01", "rack-02"]
        (metal,) = machines(play, B).values()
        assert metal["spec"]["providerID"].startswith("metal3://b/rack-0")


async def test_a_rollout_goes_to_the_next_version_each_time(clock: Clock) -> None:
    async with played(clock, "  - {at: 1s, every: 5m, rollOut: {cluster: a/prod, pool: workers}}", base=BASE) as play:
        await play.until(lambda: {it["spec"]["version"] for it in machines(play).values()} == {"v1.36.4"})
        assert words(play)[:3] == [
            "rollout: MachineDeployment a/workers of a/prod goes to v1.36.4",
            "Machine workers of a/prod is new, made by MachineSet workers",
            "Machine workers of a/prod is a node",
        ]
        await play.until(lambda: {it["spec"]["version"] for it in machines(play).values()} == {"v1.36.5"})


async def test_machines_that_are_deleted_are_told_step_by_step(clock: Clock) -> None:
    async with played(clock, "  - {at: 1s, deleteMachines: {cluster: a/prod}}", base=BASE) as play:
        before = set(machines(play))
        await play.until(lambda: len(set(machines(play)) - before) == 1 and len(machines(play)) == 2)
        await play.at(60)
        assert words(play) == [
            "deleted of a/prod: workers",
            "Machine workers of a/prod is drained by Cluster API",
            "Machine workers of a/prod is new, made by MachineSet workers",
            "Machine workers of a/prod is empty, and is ended",
            "Machine workers of a/prod is gone",
            "Machine workers of a/prod is a node",
        ]


async def approve(client: Client, name: str) -> None:
    patch = merge_patch({"metadata": {"labels": {MAINTENANCE: APPROVED}}})
    await client.patch(kinds().machines, name, patch, namespace="a")


async def test_maintenance_is_requested_done_when_it_is_approved_and_over(clock: Clock) -> None:
    async with played(clock, "  - {at: 1s, maintain: {cluster: a/prod, for: 1m}}", base=BASE) as play:

        def asked(value: str) -> list[str]:
            return [name for name, it in machines(play).items() if it["metadata"]["labels"].get(MAINTENANCE) == value]

        await play.at(120)
        (name,) = asked(REQUESTED)
        await approve(play.cluster.client("hub"), name)
        await play.at(50)
        assert asked(APPROVED) == [name]
        await play.at(20)
        assert asked(APPROVED) == asked(REQUESTED) == []
        assert words(play) == [
            "maintenance requested of a/prod: workers",
            "maintenance of Machine workers of a/prod is approved: its node is ready for it",
            "Machine workers of a/prod was maintained for 1m: the request is withdrawn",
        ]


async def test_a_machine_that_goes_before_it_is_maintained_is_told(clock: Clock) -> None:
    async with played(clock, "  - {at: 1s, maintain: {cluster: a/prod}}", base=BASE) as play:
        await play.at(5)
        (name,) = (it for it, found in machines(play).items() if MAINTENANCE in found["metadata"]["labels"])
        await play.cluster.client("me").delete(kinds().machines, name, namespace="a")
        await play.until(lambda: "Machine workers of a/prod is gone before it was maintained" in words(play))


async def test_a_cluster_can_be_cut_off_for_a_while(clock: Clock) -> None:
    line = "  - {at: 1s, cutOff: {cluster: a/prod, how: refuse, for: 1m}}"
    async with played(clock, line, base=BASE) as play:
        workload = play.stage.clusters.workloads.get(A)
        assert workload is not None
        async with play.stage.clusters.workloads.connect(workload.kubeconfig(), A) as client:
            await play.at(10)
            with pytest.raises(Unreachable):
                await client.server_version()
            await play.at(60)
            await client.server_version()
        assert words(play) == [
            "cluster a/prod cannot be reached by its management cluster for 1m",
            "cluster a/prod can be reached again",
        ]


async def test_a_kubeconfig_can_be_rotated(clock: Clock) -> None:
    async with played(clock, "  - {at: 5s, rotateKubeconfig: {cluster: a/prod}}", base=BASE) as play:
        workload = play.stage.clusters.workloads.get(A)
        assert workload is not None
        async with play.stage.clusters.workloads.connect(workload.kubeconfig(), A) as client:
            await client.server_version()
            await play.at(10)
            with pytest.raises(Unauthorized):
                await client.server_version()
        assert words(play) == ["the kubeconfig of cluster a/prod is another: the token before is refused from now on"]


async def test_what_fits_nothing_is_told(clock: Clock) -> None:
    base = BASE.replace("count: 2", "count: 0")
    async with played(clock, "  - {at: 1s, deleteMachines: {cluster: a/prod}}", base=base) as play:
        await play.at(5)
        assert words(play) == ["deleted of a/prod: no Machine fits"]


async def test_what_becomes_of_hosts_is_told(clock: Clock) -> None:
    annotation = "metadata: {annotations: {reboot.metal3.io/me: ''}}"
    line = f"  - {{at: 1s, patch: {{kind: BareMetalHost, name: rack-01, namespace: b, patch: {{{annotation}}}}}}}"
    async with played(clock, line, base=BASE) as play:
        await play.at(60)
        assert words(play) == ["patched: BareMetalHost b/rack-01", "host b/rack-01 is off"]
