"""The scheduler: every pod gets the right node, once, whatever happens on the way."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from haulout.api.objects import RawObject
from haulout.core.clock import Clock
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from haulout_sandbox.nodes import Machine
from haulout_sandbox.nodes.informers import NodeView
from haulout_sandbox.nodes.scheduler import scheduler
from haulout_sandbox.nodes.scheduler.cache import SchedulerCache
from haulout_sandbox.nodes.scheduler.framework import NodeSnapshot, ScheduleResult, schedule_pod
from support.builders.objects import a_pod
from support.clusters.node_cluster import (
    HOUR,
    MINUTE,
    NAMESPACE,
    SECOND,
    NodeCluster,
    a_node_cluster,
    node_view,
    pod_view,
)

TOLERATE_ALL = [{"operator": "Exists"}]
APP = {"app": "cart"}


def a_taint(key: str = "dedicated", value: str = "", effect: str = "NoSchedule") -> RawObject:
    return {"key": key, "value": value, "effect": effect}


def required(*expressions: RawObject, fields: list[RawObject] | None = None) -> RawObject:
    """Return a node affinity with one term."""
    term = {"matchExpressions": list(expressions), "matchFields": fields or []}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def other_pods(kind: str, *, key: str = "kubernetes.io/hostname", app: str = "cart") -> RawObject:
    """Return a required affinity or anti-affinity to the pods of an app."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread_over(key: str, *, skew: int = 1, **more: Any) -> list[RawObject]:
    constraint = {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", **more}
    return [constraint | {"labelSelector": {"matchLabels": APP}}]


def schedule(
    pod: RawObject, *nodes: NodeView, existing: Mapping[str, Sequence[RawObject]] | None = None
) -> ScheduleResult:
    """Return the decision for a pod, with other pods on nodes already."""
    cache = SchedulerCache()
    for node, existing_pods in (existing or {}).items():
        for existing_pod in existing_pods:
            cache.add_pod(pod_view(existing_pod), node)
    return schedule_pod(pod_view(pod), NodeSnapshot(nodes), cache)


# Where a pod may go


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "size", "operator": "In", "values": ["3", "4"]}, True),
        ({"key": "size", "operator": "In", "values": ["5"]}, False),
        ({"key": "size", "operator": "NotIn", "values": ["5"]}, True),
        ({"key": "none", "operator": "NotIn", "values": ["5"]}, True),
        ({"key": "size", "operator": "NotIn", "values": ["4"]}, False),
        ({"key": "size", "operator": "Exists"}, True),
        ({"key": "none", "operator": "Exists"}, False),
        ({"key": "none", "operator": "DoesNotExist"}, True),
        ({"key": "size", "operator": "DoesNotExist"}, False),
        ({"key": "size", "operator": "Gt", "values": ["3"]}, True),
        ({"key": "size", "operator": "Gt", "values": ["4"]}, False),
        ({"key": "size", "operator": "Lt", "values": ["5"]}, True),
        ({"key": "none", "operator": "Lt", "values": ["5"]}, False),
    ],
)
def test_node_affinity_means_what_kubernetes_means_by_it(expression: RawObject, fits: bool) -> None:  # noqa: FBT001
    decision = schedule(a_pod("p", affinity=required(expression)), node_view("n1", labels={"size": "4"}))
    assert (decision.node == "n1") is fits


def test_a_pod_can_name_its_node() -> None:
    by_name = [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]
    nodes = [node_view(name) for name in ("n1", "n2", "n3")]
    assert schedule(a_pod("p", affinity=required(fields=by_name)), *nodes).node == "n2"
    gone = schedule(a_pod("p", affinity=required(fields=by_name)), nodes[0], nodes[2])
    assert "2 node(s) didn't satisfy plugin(s) [NodeAffinity]." in gone.failure_message


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"key": "dedicated", "operator": "Equal", "value": "gpu"}, True),
        ({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "dedicated", "operator": "Equal", "value": "db"}, False),
        ({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_a_taint_keeps_pods_off_that_do_not_tolerate_it(toleration: RawObject, fits: bool) -> None:  # noqa: FBT001
    node = node_view("n1", taints=[a_taint(value="gpu")])
    assert (schedule(a_pod("p", tolerations=[toleration]), node).node == "n1") is fits
    assert schedule(a_pod("p"), node).node is None


def test_an_unschedulable_node_gets_only_pods_that_tolerate_it() -> None:
    cordoned = node_view("n1", unschedulable=True)
    assert schedule(a_pod("p"), cordoned).node is None
    assert schedule(a_pod("p", tolerations=TOLERATE_ALL), cordoned).node == "n1"


def test_a_reluctant_node_is_the_last_choice_and_a_preferred_one_the_first() -> None:
    reluctant = node_view("n1", taints=[a_taint(effect="PreferNoSchedule")])
    assert schedule(a_pod("p"), reluctant, node_view("n2")).node == "n2"
    assert schedule(a_pod("p"), reluctant).node == "n1"
    term = {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
    likes = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    nodes = node_view("n1"), node_view("n2"), node_view("n3", labels={"disk": "ssd"})
    assert schedule(a_pod("p", affinity=likes), *nodes).node == "n3"


def test_requests_are_held_against_what_a_node_can_give() -> None:
    full = {"n1": [a_pod("other", cpu="1500m", memory="1Gi")]}
    assert schedule(a_pod("p", cpu="500m"), node_view("n1"), existing=full).node == "n1"
    assert schedule(a_pod("p", cpu="501m"), node_view("n1"), existing=full).node is None
    assert schedule(a_pod("p", memory="3Gi"), node_view("n1"), existing=full).node == "n1"
    assert schedule(a_pod("p", memory="3073Mi"), node_view("n1"), existing=full).node is None
    assert schedule(a_pod("p"), node_view("n1", pods=1), existing=full).failure_message.startswith(
        "0/1 nodes are available: 1 Too many pods."
    )


def test_an_init_container_counts_if_it_needs_more_than_all_others_and_a_sidecar_always() -> None:
    def a_container(cpu: str, **more: Any) -> RawObject:
        return {"name": f"c{cpu}", "image": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    assert pod_view(a_pod("p", cpu="1", initContainers=[a_container("3")])).requests == {"cpu": 3000}
    assert pod_view(a_pod("p", cpu="1", initContainers=[a_container("500m")])).requests == {"cpu": 1000}
    sidecar = a_container("250m", restartPolicy="Always")
    assert pod_view(a_pod("p", cpu="1", initContainers=[sidecar])).requests == {"cpu": 1250}
    assert pod_view(a_pod("p", cpu="1", initContainers=[sidecar, a_container("2")])).requests == {"cpu": 2250}
    assert pod_view(a_pod("p", cpu="1", overhead={"cpu": "10m"})).requests == {"cpu": 1010}


def test_a_port_of_a_node_is_taken_once() -> None:
    ports = {"name": "main", "image": "m", "ports": [{"containerPort": 80, "hostPort": 80}]}
    pod = a_pod("p") | {"spec": {"containers": [ports]}}
    taken = {"n1": [a_pod("other") | {"spec": {"containers": [ports]}}]}
    assert schedule(pod, node_view("n1"), node_view("n2"), existing=taken).node == "n2"
    assert "1 node(s) didn't have free ports" in schedule(pod, node_view("n1"), existing=taken).failure_message


def test_pods_that_avoid_each_other_do_not_share_a_domain() -> None:
    nodes = [node_view("n1", zone="a"), node_view("n2", zone="a"), node_view("n3", zone="b")]
    zone = "topology.kubernetes.io/zone"
    shy = a_pod("p", labels=APP, affinity=other_pods("podAntiAffinity", key=zone))
    existing = {"n1": [a_pod("other", labels=APP)]}
    assert schedule(shy, *nodes, existing=existing).node == "n3"
    assert (
        "2 node(s) didn't match pod anti-affinity rules" in schedule(shy, *nodes[:2], existing=existing).failure_message
    )
    # The rule of a pod that is there counts as much as that of the one that comes.
    existing_with_rule = {"n1": [a_pod("other", affinity=other_pods("podAntiAffinity", key=zone))]}
    assert schedule(a_pod("p", labels=APP), *nodes, existing=existing_with_rule).node == "n3"


def test_pods_that_belong_together_share_a_domain_and_the_first_goes_anywhere() -> None:
    nodes = [node_view("n1"), node_view("n2")]
    fond = a_pod("p", labels=APP, affinity=other_pods("podAffinity"))
    assert schedule(fond, *nodes, existing={"n2": [a_pod("other", labels=APP)]}).node == "n2"
    assert schedule(fond, *nodes).node is not None
    alone = a_pod("p", affinity=other_pods("podAffinity"))
    assert "2 node(s) didn't match pod affinity rules" in schedule(alone, *nodes).failure_message
    other_namespace = a_pod("other", labels=APP) | {"metadata": {"name": "o", "namespace": "else", "labels": APP}}
    assert schedule(alone, *nodes, existing={"n1": [other_namespace]}).node is None


def test_pods_are_spread_over_domains_as_evenly_as_they_ask() -> None:
    zone = "topology.kubernetes.io/zone"
    nodes = [node_view("n1", zone="a"), node_view("n2", zone="b"), node_view("n3")]
    pod = a_pod("p", labels=APP, topologySpreadConstraints=spread_over(zone))
    uneven = {"n1": [a_pod("o1", labels=APP)]}
    assert schedule(pod, *nodes, existing=uneven).node == "n2"
    full = node_view("n2", zone="b", cpu="0", pods=0)
    refused = schedule(pod, nodes[0], full, nodes[2], existing=uneven)
    assert "1 node(s) didn't match pod topology spread constraints," in refused.failure_message
    assert "1 node(s) didn't match pod topology spread constraints (missing required label)" in refused.failure_message
    even = uneven | {"n2": [a_pod("o2", labels=APP)]}
    assert schedule(pod, *nodes, existing=even).node in ("n1", "n2"), "what counts is the difference"
    looser = a_pod("p", labels=APP, topologySpreadConstraints=spread_over(zone, skew=2))
    assert schedule(looser, nodes[0], full, existing=uneven).node == "n1"
    three = a_pod("p", labels=APP, topologySpreadConstraints=spread_over(zone, minDomains=3))
    assert (
        schedule(three, *nodes[:2], existing={"n1": [a_pod("o1", labels=APP)], "n2": [a_pod("o2", labels=APP)]}).node
        is None
    )


def test_replicas_go_where_there_are_fewest_of_them() -> None:
    nodes = [node_view(f"n{number}", zone=f"z{number % 2}") for number in range(4)]
    existing = {"n0": [a_pod("r0", owner="ReplicaSet/r")], "n1": [a_pod("busy", cpu="1")]}
    assert schedule(a_pod("r1", owner="ReplicaSet/r"), *nodes, existing=existing).node == "n3"


def test_the_next_best_node_is_taken_if_the_best_is_full() -> None:
    nodes = [node_view("n1", cpu="1"), node_view("n2", cpu="2")]
    existing = {"n1": [a_pod("busy", cpu="1")], "n2": [a_pod("r0", owner="ReplicaSet/r", cpu="1")]}
    assert schedule(a_pod("r1", owner="ReplicaSet/r", cpu="1"), *nodes, existing=existing).node == "n2"


def test_the_one_node_of_many_that_has_room_is_found() -> None:
    nodes = [node_view(f"n{number}", cpu="1") for number in range(250)]
    existing = {node.key: [a_pod(f"on-{node.key}", cpu="1")] for node in nodes if node.key != "n170"}
    assert schedule(a_pod("p", cpu="1"), *nodes, existing=existing).node == "n170"


def test_what_replicas_take_and_give_back_counts_for_the_next() -> None:
    snapshot, cache = NodeSnapshot([node_view("n1", cpu="1")]), SchedulerCache()
    one, other = (pod_view(a_pod(name, cpu="600m")) for name in ("one", "other"))
    assert schedule_pod(one, snapshot, cache).node == "n1"
    cache.add_pod(one, "n1")
    assert schedule_pod(other, snapshot, cache).node is None
    cache.remove_pod(one.key)
    assert schedule_pod(other, snapshot, cache).node == "n1"


def test_siblings_are_counted_in_zones_as_they_come_and_go_and_as_nodes_move() -> None:
    cache = SchedulerCache()
    pods = [pod_view(a_pod(f"r{number}", owner="ReplicaSet/r")) for number in range(3)]
    owner, zones = pods[0].owner_uid, {"n1": "a", "n2": "b"}
    cache.add_pod(pods[0], "n1")
    assert cache.pods_per_zone(owner, zones) == {"a": 1}
    cache.add_pod(pods[1], "n2")
    cache.add_pod(pods[2], "n2")
    cache.add_pod(pods[0], "n2")
    assert cache.pods_per_zone(owner, zones) == {"a": 0, "b": 3}
    assert cache.pods_per_zone(owner, {"n1": "a", "n2": "c"}) == {"c": 3}
    for pod in pods:
        cache.remove_pod(pod.key)
    cache.add_pod(pods[0], "n1")
    assert cache.pods_per_zone(owner, zones) == {"a": 1}


def test_an_unschedulable_pod_gets_the_message_of_kube_scheduler() -> None:
    nodes = [node_view("n1", unschedulable=True), node_view("n2", cpu="1"), node_view("n3", cpu="1")]
    existing = {"n2": [a_pod("o", cpu="500m")]}
    assert schedule(a_pod("p", cpu="1"), nodes[0], nodes[1], existing=existing).failure_message == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. no new claims to "
        "deallocate, preemption: 0/2 nodes are "
        "available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    )
    assert schedule(a_pod("p", cpu="4"), *nodes).failure_message == (
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. no new claims to "
        "deallocate, preemption: 0/3 nodes are "
        "available: 3 Preemption is not helpful for scheduling."
    )
    assert schedule(a_pod("p")).failure_message == "no nodes available to schedule pods"


# The controller


def requested_per_node(world: NodeCluster) -> Counter[str]:
    """Return how many thousandths of cpu the pods on each node ask for."""
    total: Counter[str] = Counter()
    for pod in world.api.objects("pods"):
        total[pod["spec"].get("nodeName", "")] += pod_view(pod).requests.get("cpu", 0)
    return total


async def test_pods_are_bound_and_spread(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1", "n2", "n3"))
        world.start(world.scheduler(view))
        world.create(*(a_pod(f"p{number}", cpu="100m", owner="ReplicaSet/r") for number in range(6)))
        await world.wait_until(lambda: all(world.pod_nodes().values()))
        assert Counter(world.pod_nodes().values()) == {"n1": 2, "n2": 2, "n3": 2}
        assert world.condition("pods", "p0", "PodScheduled")["status"] == "True"


async def test_an_unschedulable_pod_gets_a_condition_and_is_bound_as_soon_as_it_fits(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        kubelets = world.start(world.kubelets(view, "n1"))
        await world.pass_time(SECOND)
        world.start(world.scheduler(view, events=True))
        world.create(a_pod("big", cpu="3"))
        await world.pass_time(5 * SECOND)
        message = world.condition("pods", "big", "PodScheduled")
        assert (message["status"], message["reason"]) == ("False", "Unschedulable")
        assert message["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
        (event,) = world.api.objects("events.events.k8s.io")
        assert (event["reason"], event["note"], event["type"]) == ("FailedScheduling", message["message"], "Warning")
        asked = len(world.transports["scheduler"].requests)
        await world.pass_time(HOUR)
        assert len(world.transports["scheduler"].requests) == asked, "waiting costs nothing"
        kubelets.add(Machine(name="n2", cpu="4"))
        assert await world.wait_until(lambda: world.node_of("big") == "n2") < 3


@pytest.mark.parametrize("helps", ["a pod leaves", "a pod ends", "uncordoned", "untainted", "relabelled"])
async def test_what_may_help_a_waiting_pod_has_it_tried_again(clock: Clock, helps: str) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        await world.pass_time(SECOND)
        node = world.api.get("nodes", "n1")
        spec: RawObject = {}
        match helps:
            case "a pod leaves" | "a pod ends":
                world.create(a_pod("first", cpu="2", on="n1", restartPolicy="Never"))
            case "uncordoned":
                world.create(node | {"spec": {"unschedulable": True}})
            case "untainted":
                world.create(node | {"spec": {"taints": [a_taint()]}})
            case "relabelled":
                spec = {"nodeSelector": {"disk": "ssd"}}
        world.start(world.scheduler(view))
        world.create(a_pod("p", cpu="1", **spec))
        await world.pass_time(MINUTE)
        assert world.node_of("p") == ""
        if helps == "a pod leaves":
            world.api.remove("pods", "first", NAMESPACE)
        elif helps == "a pod ends":
            world.create(world.get_pod("first") | {"status": {"phase": "Succeeded"}})
        elif helps == "relabelled":
            metadata = node["metadata"]
            world.create(node | {"metadata": metadata | {"labels": {**metadata["labels"], "disk": "ssd"}}})
        else:
            world.create(node | {"spec": {}})
        assert await world.wait_until(lambda: world.node_of("p") == "n1") < 1


async def test_the_important_go_first(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.create(
            a_pod("b-low", cpu="2"), a_pod("c-high", cpu="2", priority=9), a_pod("a-lower", cpu="2", priority=-1)
        )
        world.start(world.scheduler(view))
        await world.pass_time(SECOND)
        world.start(world.kubelets(view, "n1"))
        await world.pass_time(10 * SECOND)
        assert world.pod_nodes() == {"a-lower": "", "b-low": "", "c-high": "n1"}


async def test_pods_of_other_schedulers_and_gated_ones_are_left_alone(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        world.start(world.scheduler(view))
        gated = a_pod("gated", schedulingGates=[{"name": "wait"}])
        world.create(a_pod("theirs", schedulerName="other"), gated)
        await world.pass_time(MINUTE)
        assert world.pod_nodes() == {"gated": "", "theirs": ""}
        ungated = world.get_pod("gated")
        del ungated["spec"]["schedulingGates"]
        world.create(ungated)
        await world.wait_until(lambda: world.node_of("gated") == "n1")


async def test_what_was_decided_counts_before_the_cluster_shows_it(clock: Clock) -> None:
    """Every event about a pod comes half a minute late: a scheduler that believed its copy would overbook."""
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1", "n2"))
        world.start(world.scheduler(view))
        await world.pass_time(5 * SECOND)
        world.transports["view"].faults.delay_event(30 * SECOND, path="pods", times=None, skip=8)
        for number in range(8):
            world.create(a_pod(f"p{number}", cpu="500m"))
            await world.pass_time(SECOND / 10)
        await world.wait_until(lambda: all(world.pod_nodes().values()), within=HOUR)
        assert requested_per_node(world) == {"n1": 2000, "n2": 2000}


@pytest.mark.parametrize("fault", ["answer lost", "refused", "unavailable", "hangs"])
async def test_a_binding_of_unknown_outcome_neither_loses_nor_doubles_a_place(clock: Clock, fault: str) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1", "n2"))
        world.start(world.scheduler(view))
        await world.pass_time(SECOND)
        faults = world.transports["scheduler"].faults
        if fault == "answer lost":
            rule = faults.fail_after_effect(path="binding", times=5)
        elif fault == "refused":
            rule = faults.fail_before_effect(path="binding", times=5, response=409)
        elif fault == "unavailable":
            rule = faults.fail_before_effect(path="binding", times=5, response=503)
        else:
            rule = faults.hang(path="binding", takes_effect=True, times=2)
        world.create(*(a_pod(f"p{number}", cpu="500m") for number in range(9)))
        await world.wait_until(
            lambda: len([item for item in world.pod_nodes().values() if item]) == 8, within=5 * MINUTE
        )
        await world.pass_time(5 * MINUTE)
        assert rule.hits
        assert requested_per_node(world) == {"n1": 2000, "n2": 2000, "": 500}


async def test_a_pod_that_is_replaced_while_it_is_bound_is_not_mistaken_for_the_other(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1", "n2"))
        world.start(world.scheduler(view))
        await world.pass_time(SECOND)
        world.transports["scheduler"].faults.delay(SECOND, path="binding", times=1)
        world.create(a_pod("p", cpu="2", nodeSelector={"kubernetes.io/hostname": "n1"}))
        await world.pass_time(SECOND / 2)
        world.api.remove("pods", "p", NAMESPACE)
        world.create(a_pod("p", cpu="1", nodeSelector={"kubernetes.io/hostname": "n2"}))
        await world.wait_until(lambda: world.node_of("p") != "")
        assert world.node_of("p") == "n2"
        world.create(a_pod("q", cpu="2"), a_pod("r", cpu="1"))
        await world.wait_until(lambda: all(world.pod_nodes().values()))


async def test_a_pod_that_is_deleted_while_it_is_bound_leaves_its_place_free(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        world.start(world.scheduler(view))
        await world.pass_time(SECOND)
        world.transports["view"].faults.delay_event(10 * SECOND, path="pods", skip=1)  # its end is heard of late
        world.transports["scheduler"].faults.delay(SECOND, path="binding", times=1)
        world.create(a_pod("p", cpu="2"))
        await world.pass_time(SECOND / 2)
        world.api.remove("pods", "p", NAMESPACE)
        await world.pass_time(2 * SECOND)
        world.create(a_pod("q", cpu="2"))
        await world.wait_until(lambda: world.node_of("q") == "n1")


@pytest.mark.parametrize("crash_after", range(1, 9))
async def test_a_scheduler_that_dies_after_any_write_is_followed_by_one_that_goes_on(
    clock: Clock, crash_after: int
) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1", "n2"))
        await world.pass_time(SECOND)
        world.create(*(a_pod(f"p{number}", cpu="500m") for number in range(10)))
        with world.running(world.scheduler(view)):
            await world.wait_until(lambda: _write_log(world, "scheduler") >= crash_after)
        world.start(world.scheduler(view))
        await world.wait_until(lambda: len([item for item in world.pod_nodes().values() if item]) == 8)
        await world.pass_time(MINUTE)
        assert requested_per_node(world) == {"n1": 2000, "n2": 2000, "": 1000}


def _write_log(world: NodeCluster, client: str) -> int:
    return sum(write.username == client for write in world.api.history)


async def test_a_thousand_pods_that_fit_nowhere_are_looked_at_once(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[str] = []

    def counted(pod: Any, *args: Any, **kwargs: Any) -> ScheduleResult:
        attempts.append(pod.key)
        return schedule_pod(pod, *args, **kwargs)

    monkeypatch.setattr(scheduler, "schedule_pod", counted)
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        await world.pass_time(SECOND)
        world.create(*(a_pod(f"p{number}", cpu="4", owner="ReplicaSet/r") for number in range(1000)))
        world.start(world.scheduler(view))
        await world.wait_until(lambda: world.condition("pods", "p999", "PodScheduled")["status"] == "False")
        assert len(attempts) == 1


def test_the_same_seed_gives_the_same_history_byte_for_byte() -> None:
    async def story() -> list[Any]:
        clock = VirtualClock()
        async with a_node_cluster(clock) as world:
            view = world.start(world.view())
            world.start(world.kubelets(view, *(f"n{number}" for number in range(5))))
            world.start(world.scheduler(view))
            world.start(world.lifecycle(view))
            world.create(*(a_pod(f"p{number}", cpu="300m") for number in range(40)))
            await world.pass_time(timedelta(minutes=3))
            return [(item.written_at, item.username, item.verb, item.key, item.after) for item in world.api.history]

    assert run_virtual(story()) == run_virtual(story())
