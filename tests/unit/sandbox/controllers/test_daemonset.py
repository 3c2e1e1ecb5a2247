"""What a daemon set promises: a pod on each node where it belongs, cordoned or not, and updates node by node."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.api.objects import NodeSpec, Taint
from haulout.core.clock import Clock
from haulout.kube.patches import merge_patch
from haulout_sandbox.controllers.daemonset.controller import DaemonSetController
from haulout_sandbox.controllers.daemonset.node_eligibility import node_should_run, scheduling_spec_of
from haulout_sandbox.controllers.objects import DAEMON_SETS, NODES, PODS, DaemonSet, DaemonSetSpec, Node, ObjectMeta
from support.builders.objects import SHOP, a_node, a_template, a_workload
from support.clusters.controller_cluster import ControllerCluster
from support.expectations.objects import count_ready_pods


@pytest.fixture
async def world(clock: Clock) -> ControllerCluster:
    world = ControllerCluster(clock, kinds=(DaemonSetController,))
    for name in ("n1", "n2", "n3"):
        world.cluster.put(a_node(name, labels={"pool": "a"}))
    return world


async def create(world: ControllerCluster, **spec: Any) -> None:
    await world.client.create(DAEMON_SETS, a_workload("DaemonSet", "logs", **spec), namespace=SHOP)


async def update(world: ControllerCluster, image: str) -> None:
    await world.patch(DAEMON_SETS, "logs", spec={"template": a_template({"app": "logs"}, image=image)})


def nodes(world: ControllerCluster) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "") for pod in world.pods())


def images(world: ControllerCluster) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in world.pods()}


async def test_each_node_has_one_pod_pinned_by_affinity(world: ControllerCluster) -> None:
    async with world.running():
        await create(world)
        await world.settle()
    assert nodes(world) == ["n1", "n2", "n3"]
    pod = world.pods()[0]
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    fields = [{"key": "metadata.name", "operator": "In", "values": [pod["spec"]["nodeName"]]}]
    assert required == {"nodeSelectorTerms": [{"matchFields": fields}]}
    assert {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"} in pod["spec"][
        "tolerations"
    ]
    assert world.status("daemonsets", "logs") == {
        "observedGeneration": 1,
        "desiredNumberScheduled": 3,
        "currentNumberScheduled": 3,
        "numberMisscheduled": 0,
        "numberReady": 3,
        "updatedNumberScheduled": 3,
        "numberAvailable": 3,
    }


async def test_a_cordoned_node_keeps_its_daemon_and_gets_a_new_one(world: ControllerCluster) -> None:
    async with world.running():
        await create(world)
        await world.settle()
        taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        await world.client.patch(NODES, "n1", merge_patch({"spec": {"unschedulable": True, "taints": [taint]}}))
        await world.settle()
        assert nodes(world) == ["n1", "n2", "n3"]
        on_n1 = next(pod for pod in world.pods() if pod["spec"]["nodeName"] == "n1")
        await world.delete(PODS, on_n1["metadata"]["name"])
        await world.settle()
    assert nodes(world) == ["n1", "n2", "n3"]


async def test_a_node_that_comes_gets_its_daemon(world: ControllerCluster) -> None:
    async with world.running():
        await create(world)
        await world.settle()
        world.cluster.put(a_node("n4"))
        await world.settle()
    assert nodes(world) == ["n1", "n2", "n3", "n4"]


async def test_a_pod_that_waits_for_a_node_that_is_gone_is_deleted(world: ControllerCluster) -> None:
    async def never(*_: object) -> None:
        return

    world.kubelets._bind = never
    async with world.running():
        await create(world)
        await world.settle()
        assert len(world.pods()) == 3
        world.cluster.remove("nodes", "n2")
        await world.settle()
    assert len(world.all_pods()) == 2
    assert world.status("daemonsets", "logs")["desiredNumberScheduled"] == 2


async def test_selectors_and_taints_choose_the_nodes(world: ControllerCluster) -> None:
    world.cluster.put(a_node("b1", labels={"pool": "b"}))
    world.cluster.put(a_node("b2", labels={"pool": "b"}, taints=[{"key": "gpu", "effect": "NoSchedule"}]))
    async with world.running():
        await create(world, template=a_template({"app": "logs"}, nodeSelector={"pool": "b"}))
        await world.settle()
        assert nodes(world) == ["b1"]
        await world.client.patch(NODES, "n1", merge_patch({"metadata": {"labels": {"pool": "b"}}}))
        await world.settle()
        assert nodes(world) == ["b1", "n1"]
        taint = {"key": "broken", "effect": "NoExecute"}
        await world.client.patch(NODES, "b1", merge_patch({"spec": {"taints": [taint]}}))
        await world.settle()
    assert nodes(world) == ["n1"]


async def test_an_untolerated_taint_prevents_new_pods_and_keeps_running_ones(world: ControllerCluster) -> None:
    async with world.running():
        await create(world)
        await world.settle()
        await world.client.patch(
            NODES, "n1", merge_patch({"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}})
        )
        await world.settle()
        assert nodes(world) == ["n1", "n2", "n3"]
        assert world.status("daemonsets", "logs")["numberMisscheduled"] == 1
        on_n1 = next(pod for pod in world.pods() if pod["spec"]["nodeName"] == "n1")
        await world.delete(PODS, on_n1["metadata"]["name"])
        await world.settle()
    assert nodes(world) == ["n2", "n3"]


async def test_an_update_goes_node_by_node(world: ControllerCluster) -> None:
    async with world.running():
        await create(world)
        await world.settle()
        since = world.cluster.revision
        await update(world, "example/main:2")
        await world.settle(120)
    assert images(world) == {"example/main:2"}
    assert world.min_over_history(count_ready_pods, since=since) == 2
    assert world.max_over_history(len) == 3
    assert world.status("daemonsets", "logs")["updatedNumberScheduled"] == 3


async def test_with_a_surge_the_new_pod_is_ready_before_the_old_one_goes(world: ControllerCluster) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    async with world.running():
        await create(world, updateStrategy=strategy)
        await world.settle()
        since = world.cluster.revision
        await update(world, "example/main:2")
        await world.settle(120)
    assert images(world) == {"example/main:2"}
    assert nodes(world) == ["n1", "n2", "n3"]
    assert world.min_over_history(count_ready_pods, since=since) == 3


async def test_on_delete_nothing_is_replaced_by_itself(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, updateStrategy={"type": "OnDelete"})
        await world.settle()
        await update(world, "example/main:2")
        await world.settle()
    assert images(world) == {"example/main:1"}


async def test_a_pod_that_keeps_failing_is_replaced_ever_more_slowly(world: ControllerCluster) -> None:
    world.kubelets.outcome = lambda pod: "Failed" if pod.spec.node_name == "n1" else ""
    world.kubelets.job_duration = timedelta(seconds=0.1)
    async with world.running():
        await create(world)
        await world.settle(120)
    assert 5 <= len(world.created_pods()) <= 12


async def test_a_heartbeat_of_a_node_triggers_no_reconcile(world: ControllerCluster) -> None:
    async with world.running():
        await create(world)
        await world.settle()
        queue = world.controllers.controllers[0].queue
        runs = queue.stats().succeeded
        await world.client.patch(NODES, "n1", merge_patch({"status": {"phase": "x"}}), subresource="status")
        await world.settle()
        assert queue.stats().succeeded == runs


# Where pods belong


def a_daemon_set(**spec: Any) -> DaemonSet:
    return DaemonSet(metadata=ObjectMeta(name="logs"), spec=DaemonSetSpec(template=a_template({"app": "logs"}, **spec)))


def node(name: str = "n1", *, labels: dict[str, str] | None = None, taints: tuple[Taint, ...] = ()) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels=labels or {}), spec=NodeSpec(taints=taints))


def node_affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def match_expression(operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "zone", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "where", "expected"),
    [
        ({}, node(), (True, True)),
        ({"nodeName": "n2"}, node(), (False, False)),
        ({"affinity": node_affinity(match_expression("In", "a"))}, node(labels={"zone": "a"}), (True, True)),
        ({"affinity": node_affinity(match_expression("In", "a"))}, node(labels={"zone": "b"}), (False, False)),
        ({"affinity": node_affinity(match_expression("NotIn", "a"), match_expression("Exists"))}, node(), (True, True)),
        ({"affinity": node_affinity({})}, node(), (False, False)),
        ({"affinity": node_affinity(match_expression("Gt", "3"))}, node(labels={"zone": "4"}), (True, True)),
        ({}, node(taints=(Taint(key="node.kubernetes.io/not-ready", effect="NoExecute"),)), (True, True)),
        ({}, node(taints=(Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule"),)), (False, True)),
        ({}, node(taints=(Taint(key="x", effect="NoSchedule"),)), (False, True)),
        ({}, node(taints=(Taint(key="x", effect="NoExecute"),)), (False, False)),
        ({}, node(taints=(Taint(key="x", effect="PreferNoSchedule"),)), (True, True)),
        ({"tolerations": [{"operator": "Exists"}]}, node(taints=(Taint(key="x", effect="NoExecute"),)), (True, True)),
        (
            {"tolerations": [{"key": "x", "value": "1"}]},
            node(taints=(Taint(key="x", value="2", effect="NoSchedule"),)),
            (False, True),
        ),
    ],
)
def test_where_a_pod_belongs(spec: dict[str, Any], where: Node, expected: tuple[bool, bool]) -> None:
    assert node_should_run(scheduling_spec_of(a_daemon_set(**spec)), where) == expected
