"""Whether pods would fit on nodes; compared with the sandbox's scheduler, and with all ways to place them."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.objects import Node, RawObject
from haulout.controllers.profiles.view.scheduling import (
    NodeCapacity,
    PendingPod,
    Placement,
    PodRequirements,
    capacity_of,
    pending_pod,
    place_pods,
    rejection_reason,
    requirements_of,
)
from haulout_sandbox.nodes.informers import NodeView
from haulout_sandbox.nodes.scheduler.cache import SchedulerCache
from haulout_sandbox.nodes.scheduler.framework import NodeSnapshot, schedule_pod
from support.builders.objects import a_node, a_pod
from support.clusters.node_cluster import node_view, pod_view

MANY = {"cpu": "2", "memory": "4Gi", "pods": "20"}


def capacity(
    name: str = "n1", *, has: dict[str, str] | None = None, pods: Sequence[RawObject] = (), **more: Any
) -> NodeCapacity:
    """Return a node; `more` is its labels, unschedulable and taints, as for `node_view`."""
    labels = {"kubernetes.io/hostname": name, **more.pop("labels", {})}
    node = msgspec.convert({"metadata": {"name": name, "labels": labels}, "spec": more}, Node)
    return capacity_of(node, MANY if has is None else has, pods)


def rejected(pod: RawObject, **more: Any) -> str | None:
    return rejection_reason(pending_pod(pod).requirements, capacity(**more))


def required(*expressions: RawObject, fields: Sequence[RawObject] = ()) -> RawObject:
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


# What a pod asks for


def test_sidecars_count_with_the_containers_and_init_containers_by_the_largest() -> None:
    def asking(cpu: str, **more: Any) -> RawObject:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    spec: dict[str, Any] = {
        "initContainers": [asking("1"), asking("100m", restartPolicy="Always"), asking("650m")],
        "containers": [asking("200m"), asking("300m")],
        "overhead": {"cpu": "50m", "memory": "1Mi"},
    }
    assert dict(requirements_of(spec).requests) == {"cpu": 1050, "memory": 1 << 20}
    spec["initContainers"] = spec["initContainers"][1:]
    assert dict(requirements_of(spec).requests)["cpu"] == 800
    spec["resources"] = {"requests": {"cpu": "2"}}
    assert dict(requirements_of(spec).requests)["cpu"] == 2050


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"containers": None, "tolerations": None, "affinity": None, "nodeSelector": None},
        {"containers": "x", "tolerations": [1], "affinity": {"nodeAffinity": 3}, "nodeSelector": []},
        {"containers": [{"resources": {"requests": {"cpu": "much"}}, "ports": [{"hostPort": "http"}]}]},
    ],
)
def test_what_makes_no_sense_counts_as_not_there(spec: RawObject) -> None:
    assert requirements_of(spec) == PodRequirements()


@pytest.mark.parametrize("values", [[], ["x"], ["1", "2"]])
def test_a_comparison_with_something_else_than_a_number_is_never_met(values: list[str]) -> None:
    pod = a_pod("p", affinity=required({"key": "size", "operator": "Gt", "values": values}))
    assert rejected(pod, labels={"size": "4"}) == "the node affinity does not match"


# Where it may go


@pytest.mark.parametrize(
    ("pod", "node", "why"),
    [
        (a_pod("p", cpu="2"), {}, None),
        (a_pod("p", cpu="2001m"), {}, "too little cpu"),
        (a_pod("p", memory="5Gi"), {}, "too little memory"),
        (a_pod("p", cpu="1"), {"pods": [a_pod("q", cpu="1001m")]}, "too little cpu"),
        (a_pod("p", cpu="1"), {"pods": [a_pod("q", cpu="2").with_status(phase="Succeeded")]}, None),
        (a_pod("p"), {"has": {"pods": "1"}, "pods": [a_pod("q")]}, "it has too many pods"),
        (a_pod("p"), {"has": {}}, "it has too many pods"),
        (a_pod("p"), {"unschedulable": True}, "it is cordoned"),
        (a_pod("p", tolerations=[{"operator": "Exists"}]), {"unschedulable": True}, None),
        (a_pod("p"), {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, "its taint gpu is not tolerated"),
        (a_pod("p"), {"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]}, None),
        (a_pod("p", tolerations=[{"key": "gpu"}]), {"taints": [{"key": "gpu", "effect": "NoExecute"}]}, None),
        (a_pod("p", nodeSelector={"disk": "ssd"}), {}, "the node selector does not match"),
        (a_pod("p", nodeSelector={"disk": "ssd"}), {"labels": {"disk": "ssd"}}, None),
        (a_pod("p", affinity=required()), {}, "the node affinity does not match"),
    ],
)
def test_why_a_node_does_not_take_a_pod(pod: RawObject, node: dict[str, Any], why: str | None) -> None:
    assert rejected(pod, **node) == why


def test_a_host_port_can_be_taken_once() -> None:
    pod = a_pod("p", containers=[{"name": "c", "ports": [{"hostPort": 80}]}])
    assert rejected(pod) is None
    assert rejected(pod, pods=[pod]) == "a host port is in use"
    assert set(
        place_pods([pending_pod(pod), pending_pod(pod | {"metadata": {"name": "q"}})], [capacity()]).unschedulable
    ) == {"q"}


def test_why_nothing_fits_is_told_in_numbers() -> None:
    rooms = [capacity("n1", unschedulable=True), capacity("n2", has={"pods": "5"}), capacity("n3", has={"pods": "5"})]
    wants = [pending_pod(a_pod("shop/p", cpu="1"))]
    assert place_pods(wants, rooms).unschedulable == {
        "shop/p": "too little cpu (2 of 3 nodes), it is cordoned (1 of 3 nodes)"
    }
    assert place_pods(wants, []).unschedulable == {"shop/p": "there is no other schedulable node"}


def test_a_node_takes_as_many_pods_as_it_has_places() -> None:
    found = place_pods([pending_pod(a_pod(name)) for name in ("a", "b", "c")], [capacity(has={"pods": "2"})])
    assert found.assignments == {"a": "n1", "b": "n1"}
    assert found.unschedulable == {"c": "it has too many pods (1 of 1 nodes)"}


def test_the_largest_goes_first() -> None:
    """In the order of their names, the small ones would take the place of the large one."""
    rooms = [capacity("n1", has={"cpu": "2", "pods": "9"}), capacity("n2", has={"cpu": "3", "pods": "9"})]
    wants = [pending_pod(a_pod(name, cpu=cpu)) for name, cpu in (("a", "1"), ("b", "1"), ("c", "3"))]
    assert place_pods(wants, rooms) == Placement({"c": "n2", "a": "n1", "b": "n1"}, {})


# Against the sandbox's scheduler

KEYS = st.sampled_from(["zone", "disk"])
VALUES = st.sampled_from(["1", "2", "x"])
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
TAINTS = st.lists(st.builds(lambda k, v, e: {"key": k, "value": v, "effect": e}, KEYS, VALUES, EFFECTS), max_size=2)
TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {"operator": st.sampled_from(["Exists", "Equal"])},
        optional={"key": KEYS, "value": VALUES, "effect": EFFECTS},
    ),
    max_size=2,
)
EXPRESSIONS = st.lists(
    st.one_of(
        st.builds(
            lambda key, operator, values: {"key": key, "operator": operator, "values": values},
            KEYS,
            st.sampled_from(["In", "NotIn"]),
            st.lists(VALUES, min_size=1, max_size=2),
        ),
        st.builds(lambda key, operator: {"key": key, "operator": operator}, KEYS, st.sampled_from(["Exists"])),
        st.builds(lambda key, value: {"key": key, "operator": "Gt", "values": [value]}, KEYS, VALUES),
    ),
    max_size=2,
)
AMOUNTS = st.sampled_from(["", "1", "1500m", "2", "3"])


def drawn_pod(cpu: str, tolerations: Any, selector: Any, terms: Any) -> RawObject:
    more: dict[str, Any] = {"affinity": required(*terms)} if terms else {}
    return a_pod("p", cpu=cpu, tolerations=tolerations, nodeSelector=selector, **more)


PODS = st.builds(
    drawn_pod,
    AMOUNTS,
    TOLERATIONS,
    st.dictionaries(KEYS, VALUES, max_size=1),
    EXPRESSIONS,
)
NODES = st.fixed_dictionaries(
    {
        "labels": st.dictionaries(KEYS, VALUES),
        "taints": TAINTS,
        "unschedulable": st.booleans(),
        "cpu": st.sampled_from(["1", "2"]),
        "pods": st.integers(0, 2),
    }
)


@given(PODS, st.lists(NODES, min_size=1, max_size=3), st.lists(AMOUNTS, max_size=2))
def test_a_pod_fits_if_the_scheduler_finds_a_node_for_it(
    pod: RawObject, nodes: list[dict[str, Any]], there: list[str]
) -> None:
    others = [a_pod(f"other-{number}", cpu=cpu) for number, cpu in enumerate(there)]
    views: list[NodeView] = []
    rooms: list[NodeCapacity] = []
    for number, node in enumerate(nodes):
        name, of_spec = f"n{number}", {key: node[key] for key in ("labels", "taints", "unschedulable")}
        views.append(node_view(name, cpu=node["cpu"], pods=node["pods"], **of_spec))
        has = {"cpu": node["cpu"], "memory": "4Gi", "pods": str(node["pods"])}
        rooms.append(capacity(name, has=has, pods=others if number == 0 else (), **of_spec))
    occupancy = SchedulerCache()
    for other in others:
        occupancy.add_pod(pod_view(other), "n0")
    found = schedule_pod(pod_view(pod), NodeSnapshot(views), occupancy).node
    assert bool(place_pods([pending_pod(pod)], rooms).assignments) is (found is not None)


# Several pods at once

WISHES = st.builds(
    lambda cpu, memory, selector: PodRequirements(requests=(("cpu", cpu), ("memory", memory)), selector=selector),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([(), (), (("disk", "ssd"),)]),
)
ROOMS = st.builds(
    lambda cpu, memory, pods, labels: (cpu, memory, pods, labels),
    st.integers(0, 6),
    st.integers(0, 6),
    st.integers(0, 3),
    st.sampled_from([{}, {"disk": "ssd"}]),
)


def capacities_of(drawn: Sequence[tuple[int, int, int, dict[str, str]]]) -> list[NodeCapacity]:
    return [
        NodeCapacity(name=f"n{number}", labels=labels, free={"cpu": cpu, "memory": memory, "pods": pods})
        for number, (cpu, memory, pods, labels) in enumerate(drawn)
    ]


def is_possible(wants: Sequence[PendingPod], places: Sequence[str], rooms: Sequence[NodeCapacity]) -> bool:
    """Tell whether the pods can all run at these places, by adding up."""
    for capacity in rooms:
        here = [want.requirements for want, name in zip(wants, places, strict=True) if name == capacity.name]
        taken = {key: sum(dict(wish.requests)[key] for wish in here) for key in ("cpu", "memory")}
        if len(here) > capacity.free["pods"] or any(taken[key] > capacity.free[key] for key in taken if here):
            return False
        if any(capacity.labels.get(key) != value for wish in here for key, value in wish.selector):
            return False
    return True


@given(st.lists(WISHES, max_size=5), st.lists(ROOMS, max_size=3))
def test_what_is_placed_can_run_at_the_same_time(
    wishes: list[PodRequirements], drawn: list[tuple[int, int, int, dict[str, str]]]
) -> None:
    wants, rooms = [PendingPod(f"p{number}", wish) for number, wish in enumerate(wishes)], capacities_of(drawn)
    found = place_pods(wants, rooms)
    assert {*found.assignments, *found.unschedulable} == {want.name for want in wants}
    assert not {*found.assignments} & {*found.unschedulable}
    placed = [want for want in wants if want.name in found.assignments]
    assert is_possible(placed, [found.assignments[want.name] for want in placed], rooms)


@given(st.lists(WISHES, max_size=4), st.lists(ROOMS, max_size=3))
def test_what_no_order_could_place_is_not_placed(
    wishes: list[PodRequirements], drawn: list[tuple[int, int, int, dict[str, str]]]
) -> None:
    """And a single pod, or pods that are all alike, are placed whenever that is possible."""
    wants, rooms = [PendingPod(f"p{number}", wish) for number, wish in enumerate(wishes)], capacities_of(drawn)
    ways = product([capacity.name for capacity in rooms], repeat=len(wants))
    possible = any(is_possible(wants, way, rooms) for way in ways)
    everything_fits = not place_pods(wants, rooms).unschedulable
    assert not everything_fits or possible
    if len(set(wishes)) <= 1:
        assert everything_fits is possible


@given(st.lists(WISHES, max_size=5), st.lists(ROOMS, max_size=3), st.randoms(use_true_random=False))
def test_the_order_of_the_pods_does_not_matter(
    wishes: list[PodRequirements], drawn: list[tuple[int, int, int, dict[str, str]]], random: Any
) -> None:
    wants, rooms = [PendingPod(f"p{number}", wish) for number, wish in enumerate(wishes)], capacities_of(drawn)
    shuffled = random.sample(wants, len(wants))
    assert place_pods(shuffled, rooms) == place_pods(wants, rooms)


def test_a_node_as_it_comes() -> None:
    node = msgspec.convert(a_node("n1", unschedulable=True).tainted("node.kubernetes.io/unschedulable"), Node)
    assert len(capacity_of(node, {}, ()).taints) == 1
