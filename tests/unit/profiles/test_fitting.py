"""Whether pods would fit on nodes; compared with the sandbox's scheduler, and with all ways to place them."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.kube.objects import Node, RawObject
from haulout.profiles.fitting import Fit, Room, Want, Wish, fit, refusal, room_of, want_of, wish_of
from haulout_sandbox.nodes.occupancy import Occupancy
from haulout_sandbox.nodes.placement import Fleet, place
from haulout_sandbox.nodes.view import NodeView
from support.builders import a_node, a_pod
from support.nodes import node_view, pod_view

MANY = {"cpu": "2", "memory": "4Gi", "pods": "20"}


def room(name: str = "n1", *, has: dict[str, str] | None = None, pods: Sequence[RawObject] = (), **more: Any) -> Room:
    """Return a node; `more` is its labels, unschedulable and taints, as for `node_view`."""
    labels = {"kubernetes.io/hostname": name, **more.pop("labels", {})}
    node = msgspec.convert({"metadata": {"name": name, "labels": labels}, "spec": more}, Node)
    return room_of(node, MANY if has is None else has, pods)


def refused(pod: RawObject, **more: Any) -> str | None:
    return refusal(want_of(pod).wish, room(**more))


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
    assert dict(wish_of(spec).requests) == {"cpu": 1050, "memory": 1 << 20}
    spec["initContainers"] = spec["initContainers"][1:]
    assert dict(wish_of(spec).requests)["cpu"] == 800
    spec["resources"] = {"requests": {"cpu": "2"}}
    assert dict(wish_of(spec).requests)["cpu"] == 2050


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
    assert wish_of(spec) == Wish()


@pytest.mark.parametrize("values", [[], ["x"], ["1", "2"]])
def test_a_comparison_with_something_else_than_a_number_is_never_met(values: list[str]) -> None:
    pod = a_pod("p", affinity=required({"key": "size", "operator": "Gt", "values": values}))
    assert refused(pod, labels={"size": "4"}) == "the node affinity does not match"


# Where it may go


@pytest.mark.parametrize(
    ("pod", "node", "why"),
    [
        (a_pod("p", cpu="2"), {}, None),
        (a_pod("p", cpu="2001m"), {}, "too little cpu"),
        (a_pod("p", memory="5Gi"), {}, "too little memory"),
        (a_pod("p", cpu="1"), {"pods": [a_pod("q", cpu="1001m")]}, "too little cpu"),
        (a_pod("p", cpu="1"), {"pods": [a_pod("q", cpu="2").with_status(phase="Succeeded")]}, None),
        (a_pod("p"), {"has": {"pods": "1"}, "pods": [a_pod("q")]}, "it has no place for another pod"),
        (a_pod("p"), {"has": {}}, "it has no place for another pod"),
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
    assert refused(pod, **node) == why


def test_a_host_port_can_be_taken_once() -> None:
    pod = a_pod("p", containers=[{"name": "c", "ports": [{"hostPort": 80}]}])
    assert refused(pod) is None
    assert refused(pod, pods=[pod]) == "a host port is taken"
    assert set(fit([want_of(pod), want_of(pod | {"metadata": {"name": "q"}})], [room()]).homeless) == {"q"}


def test_why_nothing_fits_is_told_in_numbers() -> None:
    rooms = [room("n1", unschedulable=True), room("n2", has={"pods": "5"}), room("n3", has={"pods": "5"})]
    wants = [want_of(a_pod("shop/p", cpu="1"))]
    assert fit(wants, rooms).homeless == {"shop/p": "too little cpu (2 of 3 nodes), it is cordoned (1 of 3 nodes)"}
    assert fit(wants, []).homeless == {"shop/p": "there is no other node that takes pods"}


def test_a_node_takes_as_many_pods_as_it_has_places() -> None:
    found = fit([want_of(a_pod(name)) for name in ("a", "b", "c")], [room(has={"pods": "2"})])
    assert found.places == {"a": "n1", "b": "n1"}
    assert found.homeless == {"c": "it has no place for another pod (1 of 1 nodes)"}


def test_the_largest_goes_first() -> None:
    """In the order of their names, the small ones would take the place of the large one."""
    rooms = [room("n1", has={"cpu": "2", "pods": "9"}), room("n2", has={"cpu": "3", "pods": "9"})]
    wants = [want_of(a_pod(name, cpu=cpu)) for name, cpu in (("a", "1"), ("b", "1"), ("c", "3"))]
    assert fit(wants, rooms) == Fit({"c": "n2", "a": "n1", "b": "n1"}, {})


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
    rooms: list[Room] = []
    for number, node in enumerate(nodes):
        name, of_spec = f"n{number}", {key: node[key] for key in ("labels", "taints", "unschedulable")}
        views.append(node_view(name, cpu=node["cpu"], pods=node["pods"], **of_spec))
        has = {"cpu": node["cpu"], "memory": "4Gi", "pods": str(node["pods"])}
        rooms.append(room(name, has=has, pods=others if number == 0 else (), **of_spec))
    occupancy = Occupancy()
    for other in others:
        occupancy.put(pod_view(other), "n0")
    found = place(pod_view(pod), Fleet(views), occupancy).node
    assert bool(fit([want_of(pod)], rooms).places) is (found is not None)


# Several pods at once

WISHES = st.builds(
    lambda cpu, memory, selector: Wish(requests=(("cpu", cpu), ("memory", memory)), selector=selector),
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


def rooms_of(drawn: Sequence[tuple[int, int, int, dict[str, str]]]) -> list[Room]:
    return [
        Room(name=f"n{number}", labels=labels, free={"cpu": cpu, "memory": memory, "pods": pods})
        for number, (cpu, memory, pods, labels) in enumerate(drawn)
    ]


def is_possible(wants: Sequence[Want], places: Sequence[str], rooms: Sequence[Room]) -> bool:
    """Tell whether the pods can all run at these places, by adding up."""
    for it in rooms:
        here = [want.wish for want, name in zip(wants, places, strict=True) if name == it.name]
        taken = {key: sum(dict(wish.requests)[key] for wish in here) for key in ("cpu", "memory")}
        if len(here) > it.free["pods"] or any(taken[key] > it.free[key] for key in taken if here):
            return False
        if any(it.labels.get(key) != value for wish in here for key, value in wish.selector):
            return False
    return True


@given(st.lists(WISHES, max_size=5), st.lists(ROOMS, max_size=3))
def test_what_is_placed_can_run_at_the_same_time(
    wishes: list[Wish], drawn: list[tuple[int, int, int, dict[str, str]]]
) -> None:
    wants, rooms = [Want(f"p{number}", wish) for number, wish in enumerate(wishes)], rooms_of(drawn)
    found = fit(wants, rooms)
    assert {*found.places, *found.homeless} == {want.name for want in wants}
    assert not {*found.places} & {*found.homeless}
    placed = [want for want in wants if want.name in found.places]
    assert is_possible(placed, [found.places[want.name] for want in placed], rooms)


@given(st.lists(WISHES, max_size=4), st.lists(ROOMS, max_size=3))
def test_what_no_order_could_place_is_not_placed(
    wishes: list[Wish], drawn: list[tuple[int, int, int, dict[str, str]]]
) -> None:
    """And a single pod, or pods that are all alike, are placed whenever that is possible."""
    wants, rooms = [Want(f"p{number}", wish) for number, wish in enumerate(wishes)], rooms_of(drawn)
    ways = product([it.name for it in rooms], repeat=len(wants))
    possible = any(is_possible(wants, way, rooms) for way in ways)
    everything_fits = not fit(wants, rooms).homeless
    assert not everything_fits or possible
    if len(set(wishes)) <= 1:
        assert everything_fits is possible


@given(st.lists(WISHES, max_size=5), st.lists(ROOMS, max_size=3), st.randoms(use_true_random=False))
def test_the_order_of_the_pods_does_not_matter(
    wishes: list[Wish], drawn: list[tuple[int, int, int, dict[str, str]]], random: Any
) -> None:
    wants, rooms = [Want(f"p{number}", wish) for number, wish in enumerate(wishes)], rooms_of(drawn)
    shuffled = random.sample(wants, len(wants))
    assert fit(shuffled, rooms) == fit(wants, rooms)


def test_a_node_as_it_comes() -> None:
    node = msgspec.convert(a_node("n1", unschedulable=True).tainted("node.kubernetes.io/unschedulable"), Node)
    assert len(room_of(node, {}, ()).taints) == 1
