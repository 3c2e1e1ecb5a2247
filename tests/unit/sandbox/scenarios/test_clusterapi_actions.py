"""What happens between a management cluster and its workload clusters in a scenario, and what is told of it."""

import re

import pytest

from haulout.api.clusterapi import APPROVED, MAINTENANCE, REQUESTED, ClusterKey
from haulout.api.objects import RawObject
from haulout.core.clock import Clock
from haulout.errors import Unauthorized, Unreachable
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout_sandbox.clusterapi.objects import resources_of
from support.clusters.scenario_run import ScenarioRun, running_scenario

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


def machines(run: ScenarioRun, key: ClusterKey = A) -> dict[str, RawObject]:
    return {machine["metadata"]["name"]: machine for machine in run.api.objects("machines", namespace=key.namespace)}


def messages(run: ScenarioRun) -> list[str]:
    """Return what was told, without names that are left to chance."""
    return [re.sub(r"\b(workers|rack)-\w{10}(-\w{5})?\b", r"\1", message) for _, message in run.log]


async def test_pools_are_machine_deployments_whose_nodes_are_as_the_pool_says(clock: Clock) -> None:
    async with running_scenario(clock, "  []", base=BASE) as run:
        inside = run.scenario_cluster.workload_cluster_manager.clusters[A].api
        assert [item["metadata"]["labels"]["mine"] for item in machines(run).values()] == ["yes", "yes"]
        nodes = {item["metadata"]["name"]: item for item in inside.objects("nodes")}
        assert set(nodes) == set(machines(run))
        zones = [item["metadata"]["labels"]["topology.kubernetes.io/zone"] for item in nodes.values()]
        assert sorted(zones) == ["x", "y"]
        assert {item["metadata"]["labels"]["team"] for item in nodes.values()} == {"shop"}
        assert {item["status"]["capacity"]["cpu"] for item in nodes.values()} == {"2"}
        assert {item["spec"]["nodeName"] for item in inside.objects("pods", namespace="shop")} == set(nodes)
        assert run.api.get("clusters", "prod", "a")["metadata"]["labels"] == {"team": "a"}
        found = run.api.objects("baremetalhosts")
        hosts = {item["metadata"]["name"]: item["status"]["provisioning"]["state"] for item in found}
        assert sorted(hosts.values()) == ["available", "provisioned"]
        assert list(hosts) == ["rack-01", "rack-02"]
        (metal,) = machines(run, B).values()
        assert metal["spec"]["providerID"].startswith("metal3://b/rack-0")


async def test_a_rollout_goes_to_the_next_version_each_time(clock: Clock) -> None:
    async with running_scenario(
        clock, "  - {at: 1s, every: 5m, rollOut: {cluster: a/prod, pool: workers}}", base=BASE
    ) as run:
        await run.wait_until(lambda: {machine["spec"]["version"] for machine in machines(run).values()} == {"v1.36.4"})
        assert messages(run)[:3] == [
            "rollout: MachineDeployment a/workers of a/prod goes to v1.36.4",
            "Machine workers of a/prod is new, made by MachineSet workers",
            "Machine workers of a/prod is a node",
        ]
        await run.wait_until(lambda: {machine["spec"]["version"] for machine in machines(run).values()} == {"v1.36.5"})


async def test_each_step_of_a_deleted_machine_is_reported(clock: Clock) -> None:
    async with running_scenario(clock, "  - {at: 1s, deleteMachines: {cluster: a/prod}}", base=BASE) as run:
        before = set(machines(run))
        await run.wait_until(lambda: len(set(machines(run)) - before) == 1 and len(machines(run)) == 2)
        await run.wait_until_second(60)
        assert messages(run) == [
            "deleted of a/prod: workers",
            "Machine workers of a/prod is drained by Cluster API",
            "Machine workers of a/prod is new, made by MachineSet workers",
            "Machine workers of a/prod is empty, and is ended",
            "Machine workers of a/prod is gone",
            "Machine workers of a/prod is a node",
        ]


async def approve(client: Client, name: str) -> None:
    patch = merge_patch({"metadata": {"labels": {MAINTENANCE: APPROVED}}})
    await client.patch(resources_of().machines, name, patch, namespace="a")


async def test_maintenance_is_requested_done_when_it_is_approved_and_over(clock: Clock) -> None:
    async with running_scenario(
        clock, "  - {at: 1s, requestMaintenance: {cluster: a/prod, for: 1m}}", base=BASE
    ) as run:

        def asked(value: str) -> list[str]:
            return [
                name
                for name, machine in machines(run).items()
                if machine["metadata"]["labels"].get(MAINTENANCE) == value
            ]

        await run.wait_until_second(120)
        (name,) = asked(REQUESTED)
        await approve(run.cluster.client("hub"), name)
        await run.wait_until_second(50)
        assert asked(APPROVED) == [name]
        await run.wait_until_second(20)
        assert asked(APPROVED) == asked(REQUESTED) == []
        assert messages(run) == [
            "maintenance requested of a/prod: workers",
            "maintenance of Machine workers of a/prod is approved: its node is ready for it",
            "Machine workers of a/prod was maintained for 1m: the request is withdrawn",
        ]


async def test_a_machine_that_is_gone_before_its_maintenance_is_reported(clock: Clock) -> None:
    async with running_scenario(clock, "  - {at: 1s, requestMaintenance: {cluster: a/prod}}", base=BASE) as run:
        await run.wait_until_second(5)
        (name,) = (machine for machine, found in machines(run).items() if MAINTENANCE in found["metadata"]["labels"])
        await run.cluster.client("me").delete(resources_of().machines, name, namespace="a")
        await run.wait_until(lambda: "Machine workers of a/prod is gone before it was maintained" in messages(run))


async def test_a_cluster_can_be_cut_off_for_a_while(clock: Clock) -> None:
    line = "  - {at: 1s, clusterOutage: {cluster: a/prod, how: refuse, for: 1m}}"
    async with running_scenario(clock, line, base=BASE) as run:
        workload = run.scenario_cluster.workload_cluster_manager.registry.get(A)
        assert workload is not None
        async with run.scenario_cluster.workload_cluster_manager.registry.connect(workload.kubeconfig(), A) as client:
            await run.wait_until_second(10)
            with pytest.raises(Unreachable):
                await client.server_version()
            await run.wait_until_second(60)
            await client.server_version()
        assert messages(run) == [
            "cluster a/prod cannot be reached by its management cluster for 1m",
            "cluster a/prod can be reached again",
        ]


async def test_a_kubeconfig_can_be_rotated(clock: Clock) -> None:
    async with running_scenario(clock, "  - {at: 5s, rotateKubeconfig: {cluster: a/prod}}", base=BASE) as run:
        workload = run.scenario_cluster.workload_cluster_manager.registry.get(A)
        assert workload is not None
        async with run.scenario_cluster.workload_cluster_manager.registry.connect(workload.kubeconfig(), A) as client:
            await client.server_version()
            await run.wait_until_second(10)
            with pytest.raises(Unauthorized):
                await client.server_version()
        assert messages(run) == ["the kubeconfig of cluster a/prod is another: the token before is refused from now on"]


async def test_a_selection_without_a_match_is_reported(clock: Clock) -> None:
    base = BASE.replace("count: 2", "count: 0")
    async with running_scenario(clock, "  - {at: 1s, deleteMachines: {cluster: a/prod}}", base=base) as run:
        await run.wait_until_second(5)
        assert messages(run) == ["deleted of a/prod: no Machine fits"]


async def test_changes_of_hosts_are_reported(clock: Clock) -> None:
    annotation = "metadata: {annotations: {reboot.metal3.io/me: ''}}"
    line = f"  - {{at: 1s, patch: {{kind: BareMetalHost, name: rack-01, namespace: b, patch: {{{annotation}}}}}}}"
    async with running_scenario(clock, line, base=BASE) as run:
        await run.wait_until_second(60)
        assert messages(run) == ["patched: BareMetalHost b/rack-01", "host b/rack-01 is off"]
