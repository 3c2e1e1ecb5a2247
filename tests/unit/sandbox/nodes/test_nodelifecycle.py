"""Who looks after nodes: what falls silent is noticed in time, and pods leave when they must, not before."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from haulout.api.objects import RawObject, Taint
from haulout.core.clock import Clock
from haulout_sandbox.event_loops.virtual_time import EPOCH
from haulout_sandbox.nodes import Kubelets
from haulout_sandbox.nodes.nodelifecycle.decision import eviction_time
from haulout_sandbox.nodes.pod_spec import Toleration
from support.builders.objects import a_pod
from support.clusters.node_cluster import HOUR, MINUTE, SECOND, NodeCluster, a_node_cluster

UNREACHABLE = {"unreachable:NoSchedule", "unreachable:NoExecute"}
FOREVER = [{"operator": "Exists"}]


def for_seconds(seconds: int) -> list[RawObject]:
    """Return the tolerations that admission gives every pod."""
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds} for key in keys]


async def start_lifecycle(world: NodeCluster, *names: str, **options: Any) -> Kubelets:
    """Start kubelets, and who looks after them."""
    view = world.start(world.view())
    kubelets: Kubelets = world.start(world.kubelets(view, *names, **options))
    world.start(world.lifecycle(view))
    await world.pass_time(15 * SECOND)
    return kubelets


def pods_being_deleted(world: NodeCluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in world.api.objects("pods") if "deletionTimestamp" in pod["metadata"]}


async def taint(world: NodeCluster, name: str, **field: str) -> None:
    node = world.api.get("nodes", name)
    node["spec"]["taints"] = [*node["spec"].get("taints", []), field]
    world.create(node)
    await world.pass_time(SECOND)


async def test_a_kubelet_that_falls_silent_is_noticed_and_one_that_speaks_again_too(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        kubelets = await start_lifecycle(world, "n1", "n2")
        world.create(a_pod("p", on="n1", tolerations=FOREVER))
        await world.pass_time(SECOND)
        kubelets.kill("n1")
        assert 40 <= await world.wait_until(lambda: world.node_ready("n1") == "Unknown") <= 51
        ready = world.condition("nodes", "n1", "Ready")
        assert (ready["reason"], ready["message"]) == ("NodeStatusUnknown", "Kubelet stopped posting node status.")
        await world.pass_time(SECOND)
        assert world.taints("n1") == UNREACHABLE
        assert not world.is_pod_ready("p")
        assert (world.node_ready("n2"), world.taints("n2")) == ("True", set())
        kubelets.revive("n1")
        await world.pass_time(2 * SECOND)
        assert (world.node_ready("n1"), world.taints("n1")) == ("True", set())
        assert world.is_pod_ready("p")


async def test_a_live_node_never_becomes_unknown(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        await start_lifecycle(world, "n1", "n2", heartbeat=3 * MINUTE, status_interval=HOUR)
        await world.pass_time(24 * HOUR)
        assert not [item for item in world.api.history if item.username == "lifecycle"]


@pytest.mark.parametrize(("heartbeat", "least", "most"), [(MINUTE, 240, 300), (SECOND, 4, 5.2)])
async def test_the_grace_is_in_proportion_to_the_heartbeat(
    clock: Clock, heartbeat: timedelta, least: float, most: float
) -> None:
    async with a_node_cluster(clock) as world:
        kubelets = await start_lifecycle(world, "n1", "n2", heartbeat=heartbeat)
        kubelets.kill("n1")
        assert least <= await world.wait_until(lambda: world.node_ready("n1") == "Unknown", within=HOUR) <= most


async def test_a_node_that_never_reported_a_status_becomes_unknown(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        await start_lifecycle(world, "n1")
        world.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stray"}, "spec": {}, "status": {}})
        assert 59 <= await world.wait_until(lambda: world.node_ready("stray") == "Unknown", within=HOUR) <= 61
        assert world.condition("nodes", "stray", "Ready")["reason"] == "NodeStatusNeverUpdated"


async def test_pods_leave_a_silent_node_after_the_time_they_tolerate(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        kubelets = await start_lifecycle(world, "n1", "n2")
        world.create(
            a_pod("at-once", on="n1"),
            a_pod("patient", on="n1", tolerations=for_seconds(300)),
            a_pod("quick", on="n1", tolerations=for_seconds(30)),
            a_pod("daemon", on="n1", tolerations=FOREVER),
            a_pod("elsewhere", on="n2"),
        )
        await world.pass_time(SECOND)
        kubelets.kill("n1")
        await world.wait_until(lambda: "unreachable:NoExecute" in world.taints("n1"))
        await world.pass_time(2 * SECOND)
        assert pods_being_deleted(world) == {"at-once"}
        marked = world.condition("pods", "at-once", "DisruptionTarget")
        assert (marked["status"], marked["reason"]) == ("True", "DeletionByTaintManager")
        await world.pass_time(30 * SECOND)
        assert pods_being_deleted(world) == {"at-once", "quick"}
        await world.pass_time(265 * SECOND)
        assert pods_being_deleted(world) == {"at-once", "quick"}
        await world.pass_time(5 * SECOND)
        assert pods_being_deleted(world) == {"at-once", "quick", "patient"}
        await world.pass_time(HOUR)
        assert pods_being_deleted(world) == {"at-once", "quick", "patient"}
        kubelets.revive("n1")
        await world.pass_time(5 * SECOND)
        assert set(world.pod_nodes()) == {"daemon", "elsewhere"}


async def test_a_node_that_is_back_in_time_keeps_its_pods(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        kubelets = await start_lifecycle(world, "n1", "n2")
        world.create(a_pod("p", on="n1", tolerations=for_seconds(300)))
        kubelets.kill("n1")
        await world.pass_time(5 * MINUTE)
        kubelets.revive("n1")
        await world.pass_time(HOUR)
        assert not pods_being_deleted(world)


async def test_a_node_that_is_not_ready_is_tainted_as_such(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        kubelets = await start_lifecycle(world, "n1", "n2")
        kubelets.set_not_ready("n1", "the disk is on fire")
        await world.pass_time(SECOND)
        assert world.taints("n1") == {"not-ready:NoSchedule", "not-ready:NoExecute"}
        kubelets.kill("n1")
        await world.pass_time(MINUTE)
        assert world.taints("n1") == UNREACHABLE


async def test_no_pods_are_evicted_if_no_node_is_ready(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        kubelets = await start_lifecycle(world, "n1", "n2")
        world.create(a_pod("p", on="n1", tolerations=for_seconds(60)))
        for name in ("n1", "n2"):
            kubelets.kill(name)
        await world.pass_time(HOUR)
        assert world.taints("n1") == world.taints("n2") == {"unreachable:NoSchedule"}
        assert not pods_being_deleted(world)
        kubelets.revive("n2")
        await world.pass_time(2 * SECOND)
        assert world.taints("n1") == UNREACHABLE
        await world.pass_time(2 * MINUTE)
        assert pods_being_deleted(world) == {"p"}


async def test_a_cordon_shows_as_a_taint_and_leaves_other_taints_alone(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        await start_lifecycle(world, "n1")
        await taint(world, "n1", key="example.com/dedicated", value="gpu", effect="NoSchedule")
        node = world.api.get("nodes", "n1")
        node["spec"]["unschedulable"] = True
        world.create(node)
        await world.pass_time(SECOND)
        assert world.taints("n1") == {"dedicated:NoSchedule", "unschedulable:NoSchedule"}
        node = world.api.get("nodes", "n1")
        del node["spec"]["unschedulable"]
        world.create(node)
        await world.pass_time(SECOND)
        assert world.api.get("nodes", "n1")["spec"]["taints"] == [
            {"key": "example.com/dedicated", "value": "gpu", "effect": "NoSchedule"}
        ]


async def test_the_taint_that_admission_gives_a_new_node_goes_when_it_is_ready(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        await start_lifecycle(world, "n1")
        await taint(world, "n1", key="node.kubernetes.io/not-ready", effect="NoSchedule")
        assert world.taints("n1") == set()


async def test_a_noexecute_taint_evicts_pods(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        await start_lifecycle(world, "n1")
        half_a_minute = {"key": "repair", "operator": "Exists", "tolerationSeconds": 30}
        world.create(a_pod("p", on="n1"), a_pod("q", on="n1", tolerations=[half_a_minute]))
        await taint(world, "n1", key="repair", effect="NoExecute")
        await world.pass_time(5 * SECOND)
        assert set(world.pod_nodes()) == {"q"}
        world.create(a_pod("late", on="n1"))
        await world.pass_time(2 * SECOND)
        assert set(world.pod_nodes()) == {"q"}, "one that comes later leaves too"
        await world.pass_time(30 * SECOND)
        assert not world.pod_nodes()


async def test_a_successor_sees_it_through(clock: Clock) -> None:
    """One dies after each of the writes; taints and evictions come out the same."""
    for crash_after in range(1, 8):
        async with a_node_cluster(clock) as world:
            view = world.start(world.view())
            kubelets = world.start(world.kubelets(view, "n1", "n2"))
            world.create(*(a_pod(f"p{number}", on="n1", tolerations=for_seconds(60)) for number in range(2)))
            await world.pass_time(15 * SECOND)
            kubelets.kill("n1")
            with world.running(world.lifecycle(view)):
                await world.wait_until(lambda: _write_log(world) >= crash_after, within=HOUR)  # noqa: B023 - used in the loop
            world.start(world.lifecycle(view))
            await world.pass_time(5 * MINUTE)
            assert world.taints("n1") == UNREACHABLE
            assert pods_being_deleted(world) == {"p0", "p1"}


def _write_log(world: NodeCluster) -> int:
    return sum(write.username == "lifecycle" for write in world.api.history)


@pytest.mark.parametrize("answer", [409, 503])
async def test_transport_faults_only_delay_the_result(clock: Clock, answer: int) -> None:
    async with a_node_cluster(clock) as world:
        kubelets = await start_lifecycle(world, "n1", "n2")
        world.create(a_pod("p", on="n1", tolerations=for_seconds(60)))
        faults = world.transports["lifecycle"].faults
        rules = [faults.fail_before_effect(method=method, response=answer, times=4) for method in ("PATCH", "DELETE")]
        kubelets.kill("n1")
        await world.pass_time(10 * MINUTE)
        assert world.taints("n1") == UNREACHABLE
        assert pods_being_deleted(world) == {"p"}
        assert [rule.hits for rule in rules] == [4, 4]


def instant_at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("tolerations", "instant"),
    [
        ([], instant_at(100)),
        ([Toleration(operator="Exists")], None),
        ([Toleration(key="a", operator="Exists", toleration_seconds=60)], instant_at(100)),
        ([Toleration(operator="Exists", toleration_seconds=60)], instant_at(70)),
        (
            [Toleration(key="a", operator="Exists", toleration_seconds=200), Toleration(key="b", operator="Exists")],
            instant_at(210),
        ),
        ([Toleration(operator="Exists", toleration_seconds=-5)], instant_at(10)),
    ],
)
def test_a_pod_leaves_when_the_first_taint_is_no_longer_tolerated(
    tolerations: list[Toleration], instant: datetime | None
) -> None:
    taints = [
        Taint(key="a", effect="NoExecute", time_added=instant_at(10)),
        Taint(key="b", effect="NoExecute"),
        Taint(key="c", effect="NoSchedule"),
    ]
    assert eviction_time(tolerations, taints, first_observed_at={"b": instant_at(40)}, now=instant_at(100)) == instant
