"""Scheduling simulation, compared with the sandbox's scheduler and with brute force."""

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


# Requirements of a pod


def test_requests_sum_up_sidecars_and_containers_and_take_the_largest_init_container() -> None:
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
def test_malformed_pod_spec_has_no_requirements(spec: RawObject) -> None:
    assert requirements_of(spec) == PodRequirements()


@pytest.mark.parametrize("values", [[], ["x"], ["1", "2"]])
def test_comparison_with_a_non_number_never_matches(values: list[str]) -> None:
    pod = a_pod("p", affinity=required({"key": "size", "operator": "Gt", "values": values}))
    assert rejected(pod, labels={"size": "4"}) == "the node affinity does not match"


# Node filters


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
def test_rejection_reason_of_a_node(pod: RawObject, node: dict[str, Any], why: str | None) -> None:
    assert rejected(pod, **node) == why


def test_host_port_can_be_used_once_per_node() -> None:
    pod = a_pod("p", containers=[{"name": "c", "ports": [{"hostPort": 80}]}])
    assert rejected(pod) is None
    assert rejected(pod, pods=[pod]) == "a host port is in use"
    assert set(
        place_pods([pending_pod(pod), pending_pod(pod | {"metadata": {"name": "q"}})], [capacity()]).unschedulable
    ) == {"q"}


def test_unschedulable_reason_counts_nodes() -> None:
    capacities = [
        capacity("n1", unschedulable=True),
        capacity("n2", has={"pods": "5"}),
        capacity("n3", has={"pods": "5"}),
    ]
    pending_pods = [pending_pod(a_pod("shop/p", cpu="1"))]
    assert place_pods(pending_pods, capacities).unschedulable == {
        "shop/p": "too little cpu (2 of 3 nodes), it is cordoned (1 of 3 nodes)"
    }
    assert place_pods(pending_pods, []).unschedulable == {"shop/p": "there is no other schedulable node"}


def test_node_takes_at_most_its_number_of_pods() -> None:
    found = place_pods([pending_pod(a_pod(name)) for name in ("a", "b", "c")], [capacity(has={"pods": "2"})])
    assert found.assignments == {"a": "n1", "b": "n1"}
    assert found.unschedulable == {"c": "it has too many pods (1 of 1 nodes)"}


def test_largest_pod_is_placed_first() -> None:
    """In name order, the small pods would occupy the node of the large one."""
    capacities = [capacity("n1", has={"cpu": "2", "pods": "9"}), capacity("n2", has={"cpu": "3", "pods": "9"})]
    pending_pods = [pending_pod(a_pod(name, cpu=cpu)) for name, cpu in (("a", "1"), ("b", "1"), ("c", "3"))]
    assert place_pods(pending_pods, capacities) == Placement({"c": "n2", "a": "n1", "b": "n1"}, {})


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
def test_pod_fits_if_the_scheduler_finds_a_node(pod: RawObject, nodes: list[dict[str, Any]], there: list[str]) -> None:
    others = [a_pod(f"other-{number}", cpu=cpu) for number, cpu in enumerate(there)]
    views: list[NodeView] = []
    capacities: list[NodeCapacity] = []
    for number, node in enumerate(nodes):
        name, of_spec = f"n{number}", {key: node[key] for key in ("labels", "taints", "unschedulable")}
        views.append(node_view(name, cpu=node["cpu"], pods=node["pods"], **of_spec))
        has = {"cpu": node["cpu"], "memory": "4Gi", "pods": str(node["pods"])}
        capacities.append(capacity(name, has=has, pods=others if number == 0 else (), **of_spec))
    occupancy = SchedulerCache()
    for other in others:
        occupancy.add_pod(pod_view(other), "n0")
    found = schedule_pod(pod_view(pod), NodeSnapshot(views), occupancy).node
    assert bool(place_pods([pending_pod(pod)], capacities).assignments) is (found is not None)


# Several pods at once

REQUIREMENTS = st.builds(
    lambda cpu, memory, selector: PodRequirements(requests=(("cpu", cpu), ("memory", memory)), selector=selector),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([(), (), (("disk", "ssd"),)]),
)
CAPACITIES = st.builds(
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


def is_possible(pending_pods: Sequence[PendingPod], places: Sequence[str], capacities: Sequence[NodeCapacity]) -> bool:
    """Tell whether the pods can all run on these nodes, by adding up requests."""
    for capacity in capacities:
        here = [want.requirements for want, name in zip(pending_pods, places, strict=True) if name == capacity.name]
        taken = {key: sum(dict(requirements.requests)[key] for requirements in here) for key in ("cpu", "memory")}
        if len(here) > capacity.free["pods"] or any(taken[key] > capacity.free[key] for key in taken if here):
            return False
        if any(capacity.labels.get(key) != value for requirements in here for key, value in requirements.selector):
            return False
    return True


@given(st.lists(REQUIREMENTS, max_size=5), st.lists(CAPACITIES, max_size=3))
def test_placed_pods_can_run_at_the_same_time(
    requirement_list: list[PodRequirements], drawn: list[tuple[int, int, int, dict[str, str]]]
) -> None:
    pending_pods, capacities = (
        [PendingPod(f"p{number}", requirements) for number, requirements in enumerate(requirement_list)],
        capacities_of(drawn),
    )
    found = place_pods(pending_pods, capacities)
    assert {*found.assignments, *found.unschedulable} == {want.name for want in pending_pods}
    assert not {*found.assignments} & {*found.unschedulable}
    placed = [want for want in pending_pods if want.name in found.assignments]
    assert is_possible(placed, [found.assignments[want.name] for want in placed], capacities)


@given(st.lists(REQUIREMENTS, max_size=4), st.lists(CAPACITIES, max_size=3))
def test_pods_are_placed_only_if_a_placement_exists(
    requirement_list: list[PodRequirements], drawn: list[tuple[int, int, int, dict[str, str]]]
) -> None:
    """And a single pod, or pods that are all alike, are placed whenever that is possible."""
    pending_pods, capacities = (
        [PendingPod(f"p{number}", requirements) for number, requirements in enumerate(requirement_list)],
        capacities_of(drawn),
    )
    ways = product([capacity.name for capacity in capacities], repeat=len(pending_pods))
    possible = any(is_possible(pending_pods, way, capacities) for way in ways)
    everything_fits = not place_pods(pending_pods, capacities).unschedulable
    assert not everything_fits or possible
    if len(set(requirement_list)) <= 1:
        assert everything_fits is possible


@given(st.lists(REQUIREMENTS, max_size=5), st.lists(CAPACITIES, max_size=3), st.randoms(use_true_random=False))
def test_placement_is_independent_of_the_pod_order(
    requirement_list: list[PodRequirements], drawn: list[tuple[int, int, int, dict[str, str]]], random: Any
) -> None:
    pending_pods, capacities = (
        [PendingPod(f"p{number}", requirements) for number, requirements in enumerate(requirement_list)],
        capacities_of(drawn),
    )
    shuffled = random.sample(pending_pods, len(pending_pods))
    assert place_pods(shuffled, capacities) == place_pods(pending_pods, capacities)


def test_unschedulable_taint_is_not_counted_twice() -> None:
    node = msgspec.convert(a_node("n1", unschedulable=True).tainted("node.kubernetes.io/unschedulable"), Node)
    assert len(capacity_of(node, {}, ()).taints) == 1
