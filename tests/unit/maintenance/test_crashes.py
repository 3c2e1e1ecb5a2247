"""From the order to its end the operator is stopped at each write, and its successor brings all to the same end."""

from collections.abc import Awaitable, Callable

import pytest

from haulout.drain.cordon import BACKUP, MARK
from haulout.kube.transport import Request
from haulout_sandbox.nodes import Delays
from support.builders import a_pod
from support.clusters import ClusterPlan, a_cluster
from support.crashes import Stage, is_counted, survives_crashes
from support.invariants import OnlyOurCordonsLifted
from support.live import SandboxCluster
from support.maintaining import (
    DEFINITION,
    EXCLUDE_LABEL,
    LEASES,
    NAME,
    PLURAL,
    a_maintenance,
    begun_by_nmo,
    blocked_on,
    has_lease,
    invariants,
    is_blocked,
    is_given_back,
    is_taken,
    operate,
    order,
    over,
    says,
    status,
    succeeded,
    taints,
)

FREE = (a_pod("shop/free-0", on="n1", act={"stop-seconds": "1"}), a_pod("shop/free-1", on="n1"))


def counts(request: Request) -> bool:
    """Count the writes to the leases of nodes, too."""
    return is_counted(request) or (request.method != "GET" and f"/namespaces/{LEASES}/leases" in request.path)


def a_plan(stage: Stage) -> ClusterPlan:
    return a_cluster(stage.clock).with_definition(DEFINITION).with_nodes(2).with_delays(Delays.none())


async def held(cluster: SandboxCluster, name: str = NAME) -> None:
    """Wait until the node is empty, and see that it is held."""
    await succeeded(cluster, name)
    assert is_taken(cluster, "n1")
    assert has_lease(cluster, "n1")


async def plain(stage: Stage) -> None:
    """Let two pods leave."""
    async with a_plan(stage).with_objects(*FREE).on_the_sandbox() as cluster:
        stage.begin(cluster.cluster)
        await order(cluster, "n1")
        await held(cluster)
        said = status(cluster)
        assert (said["evictionPods"], said["totalpods"], said["drainProgress"]) == (2, 2, 100)
        assert "lastError" not in said
        await over(cluster)
        assert is_given_back(cluster, "n1")
        assert not has_lease(cluster, "n1")


async def a_budget_that_opens(stage: Stage) -> None:
    """Delete a budget that lets no pod go."""
    plan = blocked_on(a_plan(stage), "n1")
    async with plan.on_the_sandbox() as cluster:
        stage.begin(cluster.cluster)
        await order(cluster, "n1")
        await is_blocked(cluster)
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await held(cluster)
        await over(cluster)
        assert is_given_back(cluster, "n1")
        await cluster.eventually(lambda: cluster.ready("shop/on-n1"), becomes=1)


async def recovers(stage: Stage) -> None:
    """Wait in the end for a workload that can run nowhere else."""
    pods = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    async with a_plan(stage).with_deployment("shop/cart", replicas=1, pods=pods).on_the_sandbox() as cluster:
        stage.begin(cluster.cluster)
        await order(cluster, "n1", recovery={"timeout": "1h"})
        await held(cluster)
        await over(cluster)
        assert cluster.ready("shop/cart") == 1
        assert is_given_back(cluster, "n1")
        assert not has_lease(cluster, "n1")


async def cordoned_before(stage: Stage) -> None:
    """Cordon the node by hand before."""
    async with a_plan(stage).with_objects(FREE[0]).on_the_sandbox() as cluster:
        await cluster.cordon("n1")
        await cluster.pass_time(seconds=1)
        stage.begin(cluster.cluster)
        await order(cluster, "n1")
        await held(cluster)
        await over(cluster)
        assert cluster.get("nodes", "n1")["spec"]["unschedulable"]


async def two_for_one_node(stage: Stage) -> None:
    """Order two maintenances of the same node."""
    async with a_plan(stage).with_objects(FREE[0]).on_the_sandbox() as cluster:
        await cluster.create(a_maintenance("n1", name="a"), a_maintenance("n1", name="b"))
        stage.begin(cluster.cluster)
        await held(cluster, "a")
        await cluster.eventually(lambda: says(cluster, "Cordoned", "b")[0], becomes="True")
        await over(cluster, "a")
        await held(cluster, "b")
        await over(cluster, "b")
        assert is_given_back(cluster, "n1")
        assert not has_lease(cluster, "n1")


async def edited(stage: Stage) -> None:
    """Let the pod stay that may not go, by an edit."""
    plan = blocked_on(a_plan(stage), "n1")
    async with plan.on_the_sandbox() as cluster:
        stage.begin(cluster.cluster)
        await order(cluster, "n1")
        await is_blocked(cluster)
        rules = [{"name": "stay", "behavior": "Skip", "podSelector": {"matchLabels": {"app": "on-n1"}}}]
        await cluster.change(PLURAL, NAME, spec={"drain": {"rules": rules}})
        await held(cluster)
        await over(cluster)
        assert is_given_back(cluster, "n1")


async def deleted_while_it_drains(stage: Stage) -> None:
    """Withdraw the order while a pod is held and another leaves."""
    slow = a_pod("shop/slow", on="n1", act={"stop-seconds": "5"})
    plan = blocked_on(a_plan(stage), "n1")
    async with plan.with_objects(slow).on_the_sandbox() as cluster:
        stage.begin(cluster.cluster)
        await order(cluster, "n1")
        await cluster.eventually(lambda: is_taken(cluster, "n1"))
        await cluster.pass_time(seconds=3)
        await over(cluster)
        assert is_given_back(cluster, "n1")
        assert cluster.ready("shop/on-n1") == 1


async def renamed(stage: Stage) -> None:
    """Name another node, as no webhook is there to refuse it."""
    async with a_plan(stage).with_objects(FREE[0]).on_the_sandbox() as cluster:
        stage.begin(cluster.cluster)
        await order(cluster, "n1")
        await held(cluster)
        await cluster.change(PLURAL, NAME, spec={"nodeName": "n2"})
        await cluster.eventually(lambda: is_taken(cluster, "n2"))
        await succeeded(cluster)
        assert is_given_back(cluster, "n1")
        assert not has_lease(cluster, "n1")
        await over(cluster)
        assert is_given_back(cluster, "n2")
        assert not has_lease(cluster, "n2")


async def tampered_with(stage: Stage) -> None:
    """Remove both of our annotations from a node that a person had cordoned."""
    async with a_plan(stage).with_objects(FREE[0]).on_the_sandbox() as cluster:
        await cluster.cordon("n1")
        await cluster.pass_time(seconds=1)
        stage.begin(cluster.cluster)
        await order(cluster, "n1")
        await held(cluster)
        await cluster.change("nodes", "n1", metadata={"annotations": {MARK: None, BACKUP: None}})
        await cluster.eventually(lambda: MARK in cluster.get("nodes", "n1")["metadata"]["annotations"])
        await cluster.pass_time(minutes=1)
        assert is_taken(cluster, "n1")
        assert status(cluster)["nodeBefore"]["unschedulable"] is True
        await cluster.change("nodes", "n1", metadata={"annotations": {MARK: "{}", BACKUP: "{}"}})
        await over(cluster)
        node = cluster.get("nodes", "n1")
        assert node["spec"]["unschedulable"]
        assert not {MARK, BACKUP} & node["metadata"].get("annotations", {}).keys()
        assert EXCLUDE_LABEL not in node["metadata"].get("labels", {})
        assert "medik8s.io/drain:NoSchedule" not in taints(cluster, "n1")
        assert not has_lease(cluster, "n1")


async def taken_over(stage: Stage) -> None:
    """Go on with what the Node Maintenance Operator has begun, and end it."""
    async with a_plan(stage).with_objects(FREE[0]).on_the_sandbox() as cluster:
        await begun_by_nmo(cluster, "n1", phase="Running", drainProgress=50, evictionPods=2, totalpods=2)
        stage.begin(cluster.cluster)
        await held(cluster)
        assert status(cluster)["evictionPods"] == 2
        await over(cluster)
        assert is_given_back(cluster, "n1")
        assert not has_lease(cluster, "n1")


STORIES: tuple[Callable[[Stage], Awaitable[None]], ...] = (
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
def test_a_maintenance_survives_a_crash_at_any_write(story: Callable[[Stage], Awaitable[None]]) -> None:
    writes = survives_crashes(story, operator=operate, invariants=invariants(), counts=counts, inward=True)
    assert writes >= 10


def test_what_another_operator_has_begun_survives_a_crash_at_any_write() -> None:
    theirs = [it for it in invariants() if not isinstance(it, OnlyOurCordonsLifted)]  # it was not we who cordoned
    assert survives_crashes(taken_over, operator=operate, invariants=theirs, counts=counts, inward=True) >= 8
