"""The stand-in for OpenShift's Machine API does what the real one does, as far as maintenance depends on it."""

from haulout.api.openshift import DELETE_MACHINE, MACHINE_NAMESPACE
from support.clusters.cluster_plan import PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.expectations.objects import condition_status
from support.platforms.openshift import (
    TIMEOUT,
    create_machine_set,
    machine,
    machine_api,
    machines,
    node_of,
    ready_machines,
    terminating_machines,
    with_openshift,
)


async def delete(cluster: LiveCluster, name: str) -> None:
    await cluster.delete("machines", f"{MACHINE_NAMESPACE}/{name}")


async def test_machine_set_creates_machines_that_become_nodes(a_cluster: PlanFactory) -> None:
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        first, second = await create_machine_set(cluster, "workers", replicas=2)
        found = machine(cluster, first)
        assert found["status"]["phase"] == "Running"
        assert found["metadata"]["labels"]["machine.openshift.io/cluster-api-machine-role"] == "worker"
        node = cluster.get("nodes", node_of(cluster, first))
        assert (
            node["spec"]["providerID"] == found["spec"]["providerID"] != machine(cluster, second)["spec"]["providerID"]
        )
        await cluster.eventually(
            lambda: cluster.get("nodes", node_of(cluster, first))["metadata"]["annotations"].get(
                "machine.openshift.io/machine"
            ),
            becomes=f"openshift-machine-api/{first}",
        )


async def test_deleted_machine_is_drained_terminated_and_replaced(a_cluster: PlanFactory) -> None:
    plan = with_openshift(a_cluster())
    async with plan.running() as cluster, machine_api(cluster):
        first, second = await create_machine_set(cluster, "workers", replicas=2)
        node = node_of(cluster, first)
        await delete(cluster, first)
        await cluster.eventually(lambda: first not in machines(cluster))
        assert not cluster.has("nodes", node)
        await cluster.eventually(lambda: len(ready_machines(cluster, "workers")), becomes=2, within=TIMEOUT)
        assert second in ready_machines(cluster, "workers")


async def test_lifecycle_hook_delays_deletion_before_the_drain(a_cluster: PlanFactory) -> None:
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        hooks = {"preDrain": [{"name": "MaintenanceHold", "owner": "somebody"}]}
        await cluster.patch("machines", f"{MACHINE_NAMESPACE}/{name}", spec={"lifecycleHooks": hooks})
        await delete(cluster, name)
        await cluster.eventually(
            lambda: condition_status(machine(cluster, name), "Drainable"), becomes=("False", "HookPresent")
        )
        assert not cluster.get("nodes", node_of(cluster, name))["spec"].get("unschedulable")
        await cluster.patch("machines", f"{MACHINE_NAMESPACE}/{name}", spec={"lifecycleHooks": {"preDrain": None}})
        await cluster.eventually(lambda: name not in machines(cluster))


async def test_marked_machine_is_deleted_first_on_scale_down(a_cluster: PlanFactory) -> None:
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        first, second, third = await create_machine_set(cluster, "workers", replicas=3)
        marked = f"{MACHINE_NAMESPACE}/{second}"
        await cluster.patch("machines", marked, metadata={"annotations": {DELETE_MACHINE: "true"}})
        await cluster.eventually(lambda: DELETE_MACHINE in machine(cluster, second)["metadata"].get("annotations", {}))
        await cluster.patch("machinesets", f"{MACHINE_NAMESPACE}/workers", spec={"replicas": 2})
        await cluster.eventually(lambda: machines(cluster, "workers"), becomes=sorted([first, third]))
        assert terminating_machines(cluster) == []
