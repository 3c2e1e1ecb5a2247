"""What checks see beside nodes: followed as far as it is needed, told by topic, and never taken for empty."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.drain import workloads
from haulout.kube.objects import RawObject
from haulout.kube.sources import NotKnown
from haulout.profiles.plugin import STATE_LABEL, Scene, State
from haulout.profiles.plugins.checks.capacity import Capacity
from haulout.profiles.steps import Sending
from support.builders import a_deployment, a_lease, a_node, a_pod, a_workload
from support.definitions import HYPERVISORS
from support.outside import FakeOutside
from support.scenes import MINUTE, NOW, PROFILE, entry
from support.surrounded import Around, configuration, surrounded

CAPACITY = configuration("capacity")
RECOVERED = configuration("recovered: {workloads: true}")
STAGGER = configuration("stagger: {duration: 1m, leaseName: turn, leaseNamespace: kube-system}")
HYPERVISOR = configuration("checkHypervisor: {evicted: true}")
NOTHING = configuration("hasLabel: {key: a}")
READY = {"type": "Ready", "status": "True"}
PREFERS = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 1,
                "preference": {
                    "matchExpressions": [{"key": STATE_LABEL, "operator": "In", "values": ["operational"]}],
                },
            }
        ]
    }
}


def a_big_node(name: str, *, cpu: str = "4") -> RawObject:
    return a_node(name).with_status(allocatable={"cpu": cpu, "memory": "8Gi", "pods": "10"}, conditions=[READY])


def a_hypervisor(name: str, **status: Any) -> RawObject:
    return {"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": name}, "status": status}


def serving(workload: RawObject, available: int) -> RawObject:
    return {**workload, "status": {"availableReplicas": available, "replicas": available}}


def free_cpu(around: Around) -> int:
    room = around.sights().room("n1")
    return 0 if room is None else room.free["cpu"]


def verdict_of_capacity(around: Around, node: str) -> bool | None:
    sights = around.sights(node)
    sight = around.nodes.get(node)
    assert sight is not None
    scene = Scene(
        now=NOW,
        node=sight.node,
        profile=PROFILE,
        state=State.REQUIRED,
        entry=entry(State.REQUIRED),
        is_in_maintenance=False,
        logs_details=False,
        sights=sights,
        requeue=MINUTE,
    )
    return Capacity().look(scene).passed


# What is followed


@pytest.mark.parametrize(
    ("wanted", "followed"),
    [
        (NOTHING, []),
        (CAPACITY, ["pods"]),
        (STAGGER, ["leases"]),
        (RECOVERED, ["daemonsets", "deployments", "pods", "replicasets", "statefulsets"]),
    ],
)
async def test_nothing_is_followed_that_no_plugin_needs(clock: Clock, wanted: Any, followed: list[str]) -> None:
    async with surrounded(clock, wanted) as around:
        assert around.followed == followed


async def test_an_edit_starts_and_stops_what_is_followed(clock: Clock) -> None:
    async with surrounded(clock, CAPACITY, a_node("n1"), a_pod("shop/a", on="n1")) as around:
        await around.use(STAGGER)
        assert around.followed == ["leases"]
        with pytest.raises(NotKnown, match="pods are not followed"):
            around.sights().pods_on("n1")
        await around.use(CAPACITY)
        assert around.followed == ["pods"]
        assert len(around.sights().pods_on("n1")) == 1


async def test_leases_are_followed_only_where_plugins_look(clock: Clock) -> None:
    async with surrounded(clock, STAGGER, a_lease("kube-system/turn-0"), a_lease("shop/turn-0")) as around:
        assert [path for path in around.spy.open if "leases" in path] == [
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
        ]
        found = around.sights().lease("kube-system", "turn-0")
        assert found is not None
        assert found.spec.holder_identity == "a"
        assert around.sights().lease("kube-system", "turn-1") is None
        around.api.put(a_lease("kube-system/turn-0", holder="b"))
        await around.settle()
        assert around.told == ["lease kube-system/turn-0"]


async def test_what_is_not_known_yet_is_not_taken_for_empty_and_wakes_who_asked(clock: Clock) -> None:
    async with surrounded(clock, NOTHING, a_node("n1"), a_pod("shop/a", on="n1")) as around:
        around.surroundings.use(CAPACITY)  # without waiting for it
        with pytest.raises(NotKnown, match="pods are not known yet"):
            around.sights("n1").pods_on("n1")
        await around.settle()
        assert around.woken == ["n1"]
        assert len(around.sights("n1").pods_on("n1")) == 1


# Pods


async def test_pods_are_known_by_node_and_told_by_node(clock: Clock) -> None:
    async with surrounded(clock, CAPACITY, a_node("n1"), a_node("n2"), a_pod("shop/a", on="n1")) as around:
        assert [it["metadata"]["name"] for it in around.sights().pods_on("n1")] == ["a"]
        assert around.sights().pods_on("n2") == []
        around.api.put(a_pod("shop/b", on="n2"))
        await around.settle()
        assert around.told == ["pods n2"]
        assert [it["metadata"]["name"] for it in around.sights().pods_on("n2")] == ["b"]


async def test_a_pod_shows_what_plugins_look_at_and_nothing_else(clock: Clock) -> None:
    pod = a_pod("shop/a", on="n1", cpu="1", owner="ReplicaSet/a", labels={"app": "a"}, affinity=PREFERS)
    async with surrounded(clock, CAPACITY, pod.annotated({"x": "y"})) as around:
        (seen,) = around.sights().pods_on("n1")
        assert sorted(seen["metadata"]) == ["labels", "name", "namespace", "ownerReferences", "uid"]
        assert seen["spec"]["containers"] == [{"resources": {"requests": {"cpu": "1"}}}]
        assert seen["spec"]["affinity"] == PREFERS
        assert seen["status"]["phase"] == "Pending"


async def test_a_change_of_a_pod_that_no_check_sees_wakes_nobody(clock: Clock) -> None:
    pod = a_pod("shop/a", on="n1")
    async with surrounded(clock, CAPACITY, pod) as around:
        around.api.put(pod.annotated({"x": "y"}))
        await around.settle()
        assert around.told == []


async def test_pods_that_prefer_operational_nodes_are_told_apart(clock: Clock) -> None:
    async with surrounded(clock, CAPACITY, a_node("n1")) as around:
        around.api.put(a_pod("shop/a", on="n1", affinity=PREFERS))
        await around.settle()
        assert "preferring" in around.told


async def test_capacity_is_told_at_most_every_few_seconds_and_the_last_change_too(clock: Clock) -> None:
    async with surrounded(clock, CAPACITY, a_node("n1")) as around:
        for number in range(5):
            around.api.put(a_pod(f"shop/{number}", on="n1"))
            await around.settle()
        assert around.told.count("capacity") == 1
        await around.settle(timedelta(seconds=10))
        assert around.told.count("capacity") == 2


# Room


async def test_room_follows_pods_and_nodes(clock: Clock) -> None:
    async with surrounded(clock, CAPACITY, a_big_node("n1"), a_pod("shop/a", on="n1", cpu="1")) as around:
        room = around.sights().room("n1")
        assert room is not None
        assert (room.free["cpu"], room.free["pods"]) == (3000, 9)
        assert around.sights().room("n1") is room
        around.api.put(a_pod("shop/b", on="n1", cpu="500m"))
        await around.settle()
        assert free_cpu(around) == 2500
        around.api.put(a_big_node("n1", cpu="8"))
        await around.settle()
        assert free_cpu(around) == 6500
        assert around.sights().room("n9") is None


async def test_the_check_of_capacity_sees_what_there_is(clock: Clock) -> None:
    pod = a_pod("shop/a", on="n1", cpu="3", owner="ReplicaSet/a")
    async with surrounded(clock, CAPACITY, a_big_node("n1"), a_big_node("n2"), pod) as around:
        assert verdict_of_capacity(around, "n1") is True
        around.api.put(a_pod("shop/b", on="n2", cpu="2"))
        await around.settle()
        assert verdict_of_capacity(around, "n1") is False


# Hypervisors


async def test_without_their_definition_there_are_no_hypervisors_until_it_is_installed(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with surrounded(clock, HYPERVISOR, a_node("n1")) as around:
        assert around.sights().hypervisor("n1") is None
        assert "hypervisors.kvm.cloud.sap are not installed" in caplog.text
        around.api.put(HYPERVISORS)
        around.api.put(a_hypervisor("n1", evicted=True))
        await around.settle(timedelta(minutes=2))
        found = around.sights().hypervisor("n1")
        assert found is not None
        assert found["status"] == {"evicted": True}
        assert "hypervisor n1" in around.told


# Workloads


async def test_workloads_that_lost_a_pod_on_the_node_are_those_that_were_evicted(clock: Clock) -> None:
    cart = serving(a_deployment("shop/cart", replicas=3), 3)
    replicas = a_workload("ReplicaSet", "shop/cart-1", replicas=3).owned_by(cart)
    other = serving(a_workload("StatefulSet", "shop/db", replicas=1), 1)
    pods = [
        a_pod("shop/cart-1-a", on="n1", owner="ReplicaSet/cart-1"),
        a_pod("shop/db-0", on="n1", owner="StatefulSet/db"),
        a_pod("shop/lonely", on="n1"),
    ]
    async with surrounded(clock, RECOVERED, a_node("n1"), cart, replicas, other, *pods) as around:
        assert around.sights("n1").evicted_from("n1") == ()
        record = around.sights("n1").workloads_on("n1")
        assert [str(it.reference) for it in record.workloads] == ["Deployment shop/cart", "StatefulSet shop/db"]
        around.api.put(a_node("n1").annotated({workloads.ANNOTATION: workloads.write(record)}))
        await around.settle()
        assert around.sights("n1").evicted_from("n1") == ()
        around.told.clear()
        around.api.remove("pods", "cart-1-a", "shop")
        await around.settle()
        assert "pods n1" in around.told
        (lost,) = around.sights("n1").evicted_from("n1")
        assert (lost.name, lost.wanted, lost.available, lost.before) == ("Deployment shop/cart", 3, 3, 3)
        around.told.clear()
        around.api.put(serving(cart, 2))
        await around.settle()
        assert around.told == ["evicted n1"]
        assert next(iter(around.sights("n1").evicted_from("n1"))).available == 2
        around.api.put(a_node("n1"))
        await around.settle()
        assert around.sights("n1").evicted_from("n1") == ()
        around.told.clear()
        around.api.put(serving(cart, 3))
        await around.settle()
        assert around.told == []


# Notifications


async def test_a_notification_shows_the_whole_node_and_its_failure_is_told(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    hook = "{type: slack, name: tell, config: {hook: 'https://hooks.example.com/x', channel: ops, message: "
    text = "'{{ .Node.Name }} runs {{ .Node.Status.NodeInfo.OSImage }}'}, schedule: {type: periodic, config: {}}}"
    wanted = configuration("hasLabel: {key: a}", notify=hook + text)
    outside = FakeOutside()
    node = a_node("n1").with_status(nodeInfo={"osImage": "Flatcar 1"})
    async with surrounded(clock, wanted, node, outside=outside) as around:
        sight = around.nodes.get("n1")
        assert sight is not None
        around.surroundings.post(Sending("tell", "os", State.REQUIRED), sight)
        await around.settle()
        assert [it.json["text"] for it in outside.requests] == ["n1 runs Flatcar 1"]
        around.surroundings.post(Sending("gone", "os", State.REQUIRED), sight)
        around.api.remove("nodes", "n1")
        around.surroundings.post(Sending("tell", "os", State.REQUIRED), sight)
        await around.settle(timedelta(minutes=1))
        assert "notification gone about node n1: the configuration was edited meanwhile" in caplog.text
        assert "notification tell about node n1: its node cannot be read" in caplog.text


@pytest.mark.parametrize(("failures", "sent"), [(4, ["n1"]), (5, [])])
async def test_a_node_is_read_five_times_before_its_notification_is_given_up(
    clock: Clock, caplog: pytest.LogCaptureFixture, failures: int, sent: list[str]
) -> None:
    slack = "{type: slack, name: tell, config: {hook: 'https://hooks.example.com/x', channel: ops, message: "
    text = "'{{ .Node.Name }}'}, schedule: {type: periodic, config: {}}}"
    outside = FakeOutside()
    async with surrounded(clock, configuration(notify=slack + text), a_node("n1"), outside=outside) as around:
        sight = around.nodes.get("n1")
        assert sight is not None
        around.line.faults.before(method="GET", path="/nodes/n1", answer=403, times=failures)
        around.surroundings.post(Sending("tell", "os", State.REQUIRED), sight)
        await around.settle(timedelta(minutes=1))
        assert [it.json["text"] for it in outside.requests] == sent
        assert ("notification tell about node n1: its node cannot be read" in caplog.text) is (not sent)
