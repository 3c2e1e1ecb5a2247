"""The operator crashes at each write, and its successor reaches the same end state."""

from collections.abc import Awaitable, Callable

import pytest

from haulout.drain.cordon import CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION
from haulout.kube.transport import Request
from haulout_sandbox.nodes import Delays
from support.builders.objects import a_pod
from support.clusters.cluster_plan import ClusterPlan, a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.faults.crash_test import CrashRun, assert_survives_crashes, counts_as_write
from support.invariants import OnlyOwnCordonsRemoved
from support.operators.nodemaintenance import (
    CRD,
    EXCLUDE_LABEL,
    LEASE_NAMESPACE,
    NAME,
    PLURAL,
    a_maintenance,
    condition_of,
    create_maintenance,
    end_maintenance,
    has_lease,
    has_maintenance_marks,
    invariants,
    is_released,
    run_controller,
    started_by_nmo,
    status,
    taints_of,
    wait_for_success,
    wait_until_blocked,
    with_blocking_pods,
)

FREE = (a_pod("shop/free-0", on="n1", behaviour={"stop-seconds": "1"}), a_pod("shop/free-1", on="n1"))


def counts(request: Request) -> bool:
    """Count the writes to the leases of nodes, too."""
    return counts_as_write(request) or (
        request.method != "GET" and f"/namespaces/{LEASE_NAMESPACE}/leases" in request.path
    )


def a_plan(run: CrashRun) -> ClusterPlan:
    return a_cluster(run.clock).with_crd(CRD).with_nodes(2).with_delays(Delays.zero())


async def wait_until_held(cluster: SandboxCluster, name: str = NAME) -> None:
    """Wait until the node is drained, and check its cordon and lease."""
    await wait_for_success(cluster, name)
    assert has_maintenance_marks(cluster, "n1")
    assert has_lease(cluster, "n1")


async def plain(run: CrashRun) -> None:
    """Let two pods leave."""
    async with a_plan(run).with_objects(*FREE).on_the_sandbox() as cluster:
        run.start_operator(cluster.cluster)
        await create_maintenance(cluster, "n1")
        await wait_until_held(cluster)
        shown = status(cluster)
        assert (shown["evictionPods"], shown["totalpods"], shown["drainProgress"]) == (2, 2, 100)
        assert "lastError" not in shown
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")
        assert not has_lease(cluster, "n1")


async def a_budget_that_opens(run: CrashRun) -> None:
    """Delete a PodDisruptionBudget that blocks the drain."""
    plan = with_blocking_pods(a_plan(run), "n1")
    async with plan.on_the_sandbox() as cluster:
        run.start_operator(cluster.cluster)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await wait_until_held(cluster)
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")
        await cluster.eventually(lambda: cluster.ready_pod_count("shop/on-n1"), becomes=1)


async def recovers(run: CrashRun) -> None:
    """Wait for the recovery of a workload that can run nowhere else."""
    pods = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    async with a_plan(run).with_deployment("shop/cart", replicas=1, pods=pods).on_the_sandbox() as cluster:
        run.start_operator(cluster.cluster)
        await create_maintenance(cluster, "n1", recovery={"timeout": "1h"})
        await wait_until_held(cluster)
        await end_maintenance(cluster)
        assert cluster.ready_pod_count("shop/cart") == 1
        assert is_released(cluster, "n1")
        assert not has_lease(cluster, "n1")


async def cordoned_before(run: CrashRun) -> None:
    """Cordon the node by hand before."""
    async with a_plan(run).with_objects(FREE[0]).on_the_sandbox() as cluster:
        await cluster.cordon("n1")
        await cluster.pass_time(seconds=1)
        run.start_operator(cluster.cluster)
        await create_maintenance(cluster, "n1")
        await wait_until_held(cluster)
        await end_maintenance(cluster)
        assert cluster.get("nodes", "n1")["spec"]["unschedulable"]


async def two_for_one_node(run: CrashRun) -> None:
    """Order two maintenances of the same node."""
    async with a_plan(run).with_objects(FREE[0]).on_the_sandbox() as cluster:
        await cluster.create(a_maintenance("n1", name="a"), a_maintenance("n1", name="b"))
        run.start_operator(cluster.cluster)
        await wait_until_held(cluster, "a")
        await cluster.eventually(lambda: condition_of(cluster, "Cordoned", "b")[0], becomes="True")
        await end_maintenance(cluster, "a")
        await wait_until_held(cluster, "b")
        await end_maintenance(cluster, "b")
        assert is_released(cluster, "n1")
        assert not has_lease(cluster, "n1")


async def edited(run: CrashRun) -> None:
    """Edit the policy so that the blocked pod is skipped."""
    plan = with_blocking_pods(a_plan(run), "n1")
    async with plan.on_the_sandbox() as cluster:
        run.start_operator(cluster.cluster)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        rules = [{"name": "stay", "behavior": "Skip", "podSelector": {"matchLabels": {"app": "on-n1"}}}]
        await cluster.patch(PLURAL, NAME, spec={"drain": {"rules": rules}})
        await wait_until_held(cluster)
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")


async def deleted_while_it_drains(run: CrashRun) -> None:
    """Delete the NodeMaintenance while one pod is blocked and another terminates."""
    slow = a_pod("shop/slow", on="n1", behaviour={"stop-seconds": "5"})
    plan = with_blocking_pods(a_plan(run), "n1")
    async with plan.with_objects(slow).on_the_sandbox() as cluster:
        run.start_operator(cluster.cluster)
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n1"))
        await cluster.pass_time(seconds=3)
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")
        assert cluster.ready_pod_count("shop/on-n1") == 1


async def renamed(run: CrashRun) -> None:
    """Change the node name, as no webhook refuses it."""
    async with a_plan(run).with_objects(FREE[0]).on_the_sandbox() as cluster:
        run.start_operator(cluster.cluster)
        await create_maintenance(cluster, "n1")
        await wait_until_held(cluster)
        await cluster.patch(PLURAL, NAME, spec={"nodeName": "n2"})
        await cluster.eventually(lambda: has_maintenance_marks(cluster, "n2"))
        await wait_for_success(cluster)
        assert is_released(cluster, "n1")
        assert not has_lease(cluster, "n1")
        await end_maintenance(cluster)
        assert is_released(cluster, "n2")
        assert not has_lease(cluster, "n2")


async def tampered_with(run: CrashRun) -> None:
    """Remove both of our annotations from a node that a person had cordoned."""
    async with a_plan(run).with_objects(FREE[0]).on_the_sandbox() as cluster:
        await cluster.cordon("n1")
        await cluster.pass_time(seconds=1)
        run.start_operator(cluster.cluster)
        await create_maintenance(cluster, "n1")
        await wait_until_held(cluster)
        await cluster.patch(
            "nodes", "n1", metadata={"annotations": {CORDON_ANNOTATION: None, CORDON_BACKUP_ANNOTATION: None}}
        )
        await cluster.eventually(lambda: CORDON_ANNOTATION in cluster.get("nodes", "n1")["metadata"]["annotations"])
        await cluster.pass_time(minutes=1)
        assert has_maintenance_marks(cluster, "n1")
        assert status(cluster)["nodeBefore"]["unschedulable"] is True
        await cluster.patch(
            "nodes", "n1", metadata={"annotations": {CORDON_ANNOTATION: "{}", CORDON_BACKUP_ANNOTATION: "{}"}}
        )
        await end_maintenance(cluster)
        node = cluster.get("nodes", "n1")
        assert node["spec"]["unschedulable"]
        assert not {CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION} & node["metadata"].get("annotations", {}).keys()
        assert EXCLUDE_LABEL not in node["metadata"].get("labels", {})
        assert "medik8s.io/drain:NoSchedule" not in taints_of(cluster, "n1")
        assert not has_lease(cluster, "n1")


async def taken_over(run: CrashRun) -> None:
    """Adopt and end a maintenance of the Node Maintenance Operator."""
    async with a_plan(run).with_objects(FREE[0]).on_the_sandbox() as cluster:
        await started_by_nmo(cluster, "n1", phase="Running", drainProgress=50, evictionPods=2, totalpods=2)
        run.start_operator(cluster.cluster)
        await wait_until_held(cluster)
        assert status(cluster)["evictionPods"] == 2
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")
        assert not has_lease(cluster, "n1")


STORIES: tuple[Callable[[CrashRun], Awaitable[None]], ...] = (
    plain,
    a_budget_that_opens,
    recovers,
    cordoned_before,
    two_for_one_node,
    edited,
    deleted_while_it_drains,
    renamed,
    tampered_with,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda it: it.__name__)
def test_maintenance_survives_a_crash_at_any_write(story: Callable[[CrashRun], Awaitable[None]]) -> None:
    writes = assert_survives_crashes(
        story, operator=run_controller, invariants=invariants(), counts=counts, writes_only_to_api=True
    )
    assert writes >= 10


def test_adopted_maintenance_survives_a_crash_at_any_write() -> None:
    theirs = [
        it for it in invariants() if not isinstance(it, OnlyOwnCordonsRemoved)
    ]  # the node was cordoned by another operator
    assert (
        assert_survives_crashes(
            taken_over, operator=run_controller, invariants=theirs, counts=counts, writes_only_to_api=True
        )
        >= 8
    )
