"""The stand-in for OpenShift's Machine API does what the real one does, as far as maintenance depends on it."""

from haulout.kinds.openshift import DELETE_FIRST, MACHINE_NAMESPACE
from support.clusters import Plans
from support.live import LiveCluster
from support.looking import condition
from support.openshift import (
    PATIENCE,
    leaving,
    machine,
    machine_api,
    machines,
    node_of,
    openshift,
    ready,
    with_machine_set,
)


async def delete(cluster: LiveCluster, name: str) -> None:
    await cluster.delete("machines", f"{MACHINE_NAMESPACE}/{name}")


async def test_a_machine_set_makes_machines_that_become_nodes(a_cluster: Plans) -> None:
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        first, second = await with_machine_set(cluster, "workers", replicas=2)
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


async def test_a_machine_that_is_deleted_is_emptied_ended_and_replaced(a_cluster: Plans) -> None:
    plan = openshift(a_cluster())
    async with plan.running() as cluster, machine_api(cluster):
        first, second = await with_machine_set(cluster, "workers", replicas=2)
        node = node_of(cluster, first)
        await delete(cluster, first)
        await cluster.eventually(lambda: first not in machines(cluster))
        assert not cluster.has("nodes", node)
        await cluster.eventually(lambda: len(ready(cluster, "workers")), becomes=2, within=PATIENCE)
        assert second in ready(cluster, "workers")


async def test_a_hook_holds_the_deletion_before_anything_leaves(a_cluster: Plans) -> None:
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        hooks = {"preDrain": [{"name": "MaintenanceHold", "owner": "somebody"}]}
        await cluster.change("machines", f"{MACHINE_NAMESPACE}/{name}", spec={"lifecycleHooks": hooks})
        await delete(cluster, name)
        await cluster.eventually(
            lambda: condition(machine(cluster, name), "Drainable"), becomes=("False", "HookPresent")
        )
        assert not cluster.get("nodes", node_of(cluster, name))["spec"].get("unschedulable")
        await cluster.change("machines", f"{MACHINE_NAMESPACE}/{name}", spec={"lifecycleHooks": {"preDrain": None}})
        await cluster.eventually(lambda: name not in machines(cluster))


async def test_the_marked_machine_goes_first_when_there_are_too_many(a_cluster: Plans) -> None:
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        first, second, third = await with_machine_set(cluster, "workers", replicas=3)
        marked = f"{MACHINE_NAMESPACE}/{second}"
        await cluster.change("machines", marked, metadata={"annotations": {DELETE_FIRST: "true"}})
        await cluster.eventually(lambda: DELETE_FIRST in machine(cluster, second)["metadata"].get("annotations", {}))
        await cluster.change("machinesets", f"{MACHINE_NAMESPACE}/workers", spec={"replicas": 2})
        await cluster.eventually(lambda: machines(cluster, "workers"), becomes=sorted([first, third]))
        assert leaving(cluster) == []
