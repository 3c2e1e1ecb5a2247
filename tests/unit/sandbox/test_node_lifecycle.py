"""Who looks after nodes: what falls silent is noticed in time, and pods leave when they must, not before."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.kube.objects import RawObject, Taint
from haulout_sandbox.event_loops.virtual import EPOCH
from haulout_sandbox.nodes import Kubelets
from haulout_sandbox.nodes.health import leaves_at
from haulout_sandbox.nodes.specs import Toleration
from support.builders import a_pod
from support.nodes import HOUR, MINUTE, SECOND, World, a_world

UNREACHABLE = {"unreachable:NoSchedule", "unreachable:NoExecute"}
FOREVER = [{"operator": "Exists"}]


def for_seconds(seconds: int) -> list[RawObject]:
    """Return the tolerations that admission gives every pod."""
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds} for key in keys]


async def watched(world: World, *names: str, **options: Any) -> Kubelets:
    """Start kubelets, and who looks after them."""
    view = world.start(world.view())
    kubelets: Kubelets = world.start(world.kubelets(view, *names, **options))
    world.start(world.lifecycle(view))
    await world.pass_time(15 * SECOND)
    return kubelets


def leaving(world: World) -> set[str]:
    return {pod["metadata"]["name"] for pod in world.api.objects("pods") if "deletionTimestamp" in pod["metadata"]}


async def taint(world: World, name: str, **what: str) -> None:
    node = world.api.get("nodes", name)
    node["spec"]["taints"] = [*node["spec"].get("taints", []), what]
    world.create(node)
    await world.pass_time(SECOND)


async def test_a_kubelet_that_falls_silent_is_noticed_and_one_that_speaks_again_too(clock: Clock) -> None:
    async with a_world(clock) as world:
        kubelets = await watched(world, "n1", "n2")
        world.create(a_pod("p", on="n1", tolerations=FOREVER))
        await world.pass_time(SECOND)
        kubelets.kill("n1")
        assert 40 <= await world.until(lambda: world.node_ready("n1") == "Unknown") <= 51
        ready = world.condition("nodes", "n1", "Ready")
        assert (ready["reason"], ready["message"]) == ("NodeStatusUnknown", "Kubelet stopped posting node status.")
        await world.pass_time(SECOND)
        assert world.taints("n1") == UNREACHABLE
        assert not world.is_ready("p")
        assert (world.node_ready("n2"), world.taints("n2")) == ("True", set())
        kubelets.revive("n1")
        await world.pass_time(2 * SECOND)
        assert (world.node_ready("n1"), world.taints("n1")) == ("True", set())
        assert world.is_ready("p")


async def test_a_node_that_lives_is_never_taken_for_dead(clock: Clock) -> None:
    async with a_world(clock) as world:
        await watched(world, "n1", "n2", heartbeat=3 * MINUTE, status_every=HOUR)
        await world.pass_time(24 * HOUR)
        assert not [it for it in world.api.history if it.who == "lifecycle"]


@pytest.mark.parametrize(("heartbeat", "least", "most"), [(MINUTE, 240, 300), (SECOND, 4, 5.2)])
async def test_the_grace_is_in_proportion_to_the_heartbeat(
    clock: Clock, heartbeat: timedelta, least: float, most: float
) -> None:
    async with a_world(clock) as world:
        kubelets = await watched(world, "n1", "n2", heartbeat=heartbeat)
        kubelets.kill("n1")
        assert least <= await world.until(lambda: world.node_ready("n1") == "Unknown", within=HOUR) <= most


async def test_a_node_that_nobody_ever_spoke_for_is_noticed_too(clock: Clock) -> None:
    async with a_world(clock) as world:
        await watched(world, "n1")
        world.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stray"}, "spec": {}, "status": {}})
        assert 59 <= await world.until(lambda: world.node_ready("stray") == "Unknown", within=HOUR) <= 61
        assert world.condition("nodes", "stray", "Ready")["reason"] == "NodeStatusNeverUpdated"


async def test_pods_leave_a_silent_node_after_the_time_they_tolerate(clock: Clock) -> None:
    async with a_world(clock) as world:
        kubelets = await watched(world, "n1", "n2")
        world.create(
            a_pod("at-once", on="n1"),
            a_pod("patient", on="n1", tolerations=for_seconds(300)),
            a_pod("quick", on="n1", tolerations=for_seconds(30)),
            a_pod("daemon", on="n1", tolerations=FOREVER),
            a_pod("elsewhere", on="n2"),
        )
        await world.pass_time(SECOND)
        kubelets.kill("n1")
        await world.until(lambda: "unreachable:NoExecute" in world.taints("n1"))
        await world.pass_time(2 * SECOND)
        assert leaving(world) == {"at-once"}
        marked = world.condition("pods", "at-once", "DisruptionTarget")
        assert (marked["status"], marked["reason"]) == ("True", "DeletionByTaintManager")
        await world.pass_time(30 * SECOND)
        assert leaving(world) == {"at-once", "quick"}
        await world.pass_time(265 * SECOND)
        assert leaving(world) == {"at-once", "quick"}
        await world.pass_time(5 * SECOND)
        assert leaving(world) == {"at-once", "quick", "patient"}
        await world.pass_time(HOUR)
        assert leaving(world) == {"at-once", "quick", "patient"}
        kubelets.revive("n1")
        await world.pass_time(5 * SECOND)
        assert set(world.where()) == {"daemon", "elsewhere"}


async def test_a_node_that_is_back_in_time_keeps_its_pods(clock: Clock) -> None:
    async with a_world(clock) as world:
        kubelets = await watched(world, "n1", "n2")
        world.create(a_pod("p", on="n1", tolerations=for_seconds(300)))
        kubelets.kill("n1")
        await world.pass_time(5 * MINUTE)
        kubelets.revive("n1")
        await world.pass_time(HOUR)
        assert not leaving(world)


async def test_a_node_that_is_not_ready_is_tainted_as_such(clock: Clock) -> None:
    async with a_world(clock) as world:
        kubelets = await watched(world, "n1", "n2")
        kubelets.ail("n1", "the disk is on fire")
        await world.pass_time(SECOND)
        assert world.taints("n1") == {"not-ready:NoSchedule", "not-ready:NoExecute"}
        kubelets.kill("n1")
        await world.pass_time(MINUTE)
        assert world.taints("n1") == UNREACHABLE


async def test_when_nobody_is_ready_nobody_is_made_to_leave(clock: Clock) -> None:
    async with a_world(clock) as world:
        kubelets = await watched(world, "n1", "n2")
        world.create(a_pod("p", on="n1", tolerations=for_seconds(60)))
        for name in ("n1", "n2"):
            kubelets.kill(name)
        await world.pass_time(HOUR)
        assert world.taints("n1") == world.taints("n2") == {"unreachable:NoSchedule"}
        assert not leaving(world)
        kubelets.revive("n2")
        await world.pass_time(2 * SECOND)
        assert world.taints("n1") == UNREACHABLE
        await world.pass_time(2 * MINUTE)
        assert leaving(world) == {"p"}


async def test_a_cordon_shows_as_a_taint_and_leaves_other_taints_alone(clock: Clock) -> None:
    async with a_world(clock) as world:
        await watched(world, "n1")
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
    async with a_world(clock) as world:
        await watched(world, "n1")
        await taint(world, "n1", key="node.kubernetes.io/not-ready", effect="NoSchedule")
        assert world.taints("n1") == set()


async def test_a_taint_that_somebody_adds_makes_pods_leave(clock: Clock) -> None:
    async with a_world(clock) as world:
        await watched(world, "n1")
        half_a_minute = {"key": "repair", "operator": "Exists", "tolerationSeconds": 30}
        world.create(a_pod("p", on="n1"), a_pod("q", on="n1", tolerations=[half_a_minute]))
        await taint(world, "n1", key="repair", effect="NoExecute")
        await world.pass_time(5 * SECOND)
        assert set(world.where()) == {"q"}
        world.create(a_pod("late", on="n1"))
        await world.pass_time(2 * SECOND)
        assert set(world.where()) == {"q"}, "one that comes later leaves too"
        await world.pass_time(30 * SECOND)
        assert not world.where()


async def test_a_successor_sees_it_through(clock: Clock) -> None:
    """One dies after each of the writes; taints and evictions come out the same."""
    for crash_after in range(1, 8):
        async with a_world(clock) as world:
            view = world.start(world.view())
            kubelets = world.start(world.kubelets(view, "n1", "n2"))
            world.create(*(a_pod(f"p{number}", on="n1", tolerations=for_seconds(60)) for number in range(2)))
            await world.pass_time(15 * SECOND)
            kubelets.kill("n1")
            with world.running(world.lifecycle(view)):
                await world.until(lambda: _writes(world) >= crash_after, within=HOUR)  # noqa: B023 - used in the loop
            world.start(world.lifecycle(view))
            await world.pass_time(5 * MINUTE)
            assert world.taints("n1") == UNREACHABLE
            assert leaving(world) == {"p0", "p1"}


def _writes(world: World) -> int:
    return sum(write.who == "lifecycle" for write in world.api.history)


@pytest.mark.parametrize("answer", [409, 503])
async def test_trouble_on_the_way_only_takes_time(clock: Clock, answer: int) -> None:
    async with a_world(clock) as world:
        kubelets = await watched(world, "n1", "n2")
        world.create(a_pod("p", on="n1", tolerations=for_seconds(60)))
        faults = world.transports["lifecycle"].faults
        rules = [faults.before(method=method, answer=answer, times=4) for method in ("PATCH", "DELETE")]
        kubelets.kill("n1")
        await world.pass_time(10 * MINUTE)
        assert world.taints("n1") == UNREACHABLE
        assert leaving(world) == {"p"}
        assert [rule.hits for rule in rules] == [4, 4]


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("tolerations", "instant"),
    [
        ([], at(100)),
        ([Toleration(operator="Exists")], None),
        ([Toleration(key="a", operator="Exists", toleration_seconds=60)], at(100)),
        ([Toleration(operator="Exists", toleration_seconds=60)], at(70)),
        (
            [Toleration(key="a", operator="Exists", toleration_seconds=200), Toleration(key="b", operator="Exists")],
            at(210),
        ),
        ([Toleration(operator="Exists", toleration_seconds=-5)], at(10)),
    ],
)
def test_a_pod_leaves_when_the_first_taint_is_no_longer_tolerated(
    tolerations: list[Toleration], instant: datetime | None
) -> None:
    taints = [
        Taint(key="a", effect="NoExecute", time_added=at(10)),
        Taint(key="b", effect="NoExecute"),
        Taint(key="c", effect="NoSchedule"),
    ]
    assert leaves_at(tolerations, taints, seen_at={"b": at(40)}, now=at(100)) == instant
