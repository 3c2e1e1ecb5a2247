"""Whether etcd keeps its quorum when a control-plane node goes."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from haulout.api.objects import Node, Pod
from haulout.controllers.nodemaintenance import etcd_quorum
from haulout.controllers.nodemaintenance.etcd_quorum import QuorumUnknown
from haulout.drain.pdb_simulation import PodDisruptionBudget

GUARD = {"app": "guard"}
ETCD = {"component": "etcd", "tier": "control-plane"}


def a_pod(node: str, *, ready: str = "True", labels: Mapping[str, str] = ETCD, **meta: Any) -> Pod:
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    name = meta.pop("name", f"etcd-{node}")
    metadata = {"name": name, "namespace": "kube-system", "uid": f"uid-{name}", "labels": dict(labels)} | meta
    return msgspec.convert(
        {"metadata": metadata, "spec": {"nodeName": node}, "status": {"conditions": conditions}}, Pod
    )


def a_node(name: str, *, ready: str = "True", labels: Mapping[str, str] | None = None) -> Node:
    conditions = [{"type": "Ready", "status": ready}]
    return msgspec.convert(
        {"metadata": {"name": name, "labels": dict(labels or {})}, "status": {"conditions": conditions}}, Node
    )


def a_budget(*, allowed: int = 0, name: str = "etcd-guard-pdb", selector: Any = None) -> PodDisruptionBudget:
    meta = {"name": name, "namespace": "openshift-etcd"}
    spec = {"selector": {"matchLabels": GUARD} if selector is None else selector}
    return msgspec.convert(
        {"metadata": meta, "spec": spec, "status": {"disruptionsAllowed": allowed}}, PodDisruptionBudget
    )


def a_guard(node: str, ready: str = "True") -> Pod:
    return a_pod(node, ready=ready, labels=GUARD, name=f"guard-{node}", namespace="openshift-etcd")


def test_control_plane_node_is_recognized_by_either_label() -> None:
    assert etcd_quorum.is_control_plane(a_node("n", labels={"node-role.kubernetes.io/master": ""}))
    assert etcd_quorum.is_control_plane(a_node("n", labels={"node-role.kubernetes.io/control-plane": "false"}))
    assert not etcd_quorum.is_control_plane(a_node("n", labels={"node-role.kubernetes.io/worker": ""}))


# OpenShift


@pytest.mark.parametrize(
    ("budgets", "pods", "allowed"),
    [
        ([a_budget()], [a_guard("n1")], False),
        ([a_budget()], [a_guard("n1", "Unknown")], False),
        ([a_budget()], [a_guard("n1", "False")], True),
        ([a_budget()], [a_guard("n1", "")], True),
        ([a_budget()], [a_guard("n2")], True),
        ([a_budget(allowed=1)], [a_guard("n1")], True),
        ([a_budget(name="etcd-quorum-guard")], [a_guard("n1")], False),
        ([], [], False),
        ([a_budget(), a_budget(allowed=1, name="other")], [], False),
        ([a_budget(selector={})], [a_pod("n1", labels={"any": "pod"})], False),
        ([a_budget(selector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["guard"]}]})],
         [a_guard("n1")], False),
    ],
)  # fmt: skip
def test_openshift_quorum_depends_on_guards_and_their_pdb(
    budgets: list[PodDisruptionBudget], pods: list[Pod], *, allowed: bool
) -> None:
    result = etcd_quorum.check_openshift("n1", budgets, pods)
    assert result.allowed is allowed
    assert bool(result.reason) is not allowed


def test_unsupported_guard_selector_is_an_error_only_when_it_matters() -> None:
    expression = {"key": "app", "operator": "In", "values": ["guard", "other"]}
    budget = a_budget(selector={"matchExpressions": [expression]})
    with pytest.raises(QuorumUnknown, match="openshift-etcd/etcd-guard-pdb selects its pods by more than labels"):
        etcd_quorum.check_openshift("n1", [budget], [])
    generous = a_budget(allowed=1, selector={"matchExpressions": [expression]})
    assert etcd_quorum.check_openshift("n1", [generous], []).allowed


def test_recently_admitted_node_uses_up_the_openshift_guard_pdb() -> None:
    guards = [a_guard(name) for name in ("n1", "n2", "n3")]
    result = etcd_quorum.check_openshift(
        "n1", [a_budget(allowed=1)], guards, nodes_in_maintenance={"n2": "m2", "w1": "m3"}
    )
    assert result.reason == (
        "PodDisruptionBudget openshift-etcd/etcd-guard-pdb allows 1 disruption, which n2 in maintenance will use, "
        "and pod openshift-etcd/guard-n1 is up"
    )
    gone = [a_guard("n1"), a_guard("n2", "False"), a_guard("n3")]
    assert etcd_quorum.check_openshift("n1", [a_budget(allowed=1)], gone, nodes_in_maintenance={"n2": "m2"}).allowed


# Elsewhere

NAMES = ("n1", "n2", "n3")
NODES = {name: a_node(name) for name in NAMES}
MEMBERS = [a_pod(name) for name in NAMES]


def test_one_of_three_members_can_go() -> None:
    assert etcd_quorum.check_members("n1", MEMBERS, NODES) == etcd_quorum.QuorumResult(True)


@pytest.mark.parametrize(
    ("members", "nodes", "maintained", "why"),
    [
        ([*MEMBERS[:2], a_pod("n3", ready="False")], NODES, {}, "n3 has etcd-n3, which is not ready"),
        ([*MEMBERS[:2], a_pod("n3", ready="")], NODES, {}, "n3 has etcd-n3, which is not ready"),
        ([*MEMBERS[:2], a_pod("n3", deletionTimestamp="2026-01-05T09:00:00Z")], NODES, {}, "which is terminating"),
        (MEMBERS, NODES | {"n3": a_node("n3", ready="Unknown")}, {}, "n3 is not ready"),
        (MEMBERS, NODES | {"n3": None}, {}, "n3 does not exist"),
        (MEMBERS, NODES, {"n3": "disk"}, "n3 is in maintenance by NodeMaintenance disk"),
    ],
)
def test_no_member_can_go_when_another_is_down(
    members: list[Pod], nodes: dict[str, Node | None], maintained: dict[str, str], why: str
) -> None:
    result = etcd_quorum.check_members("n1", members, nodes, nodes_in_maintenance=maintained)
    assert not result.allowed
    assert result.reason.startswith("etcd has 3 members and needs 2, without n1 it would have 1 (n2 is up; n3 ")
    assert why in result.reason


def test_member_that_is_down_can_go() -> None:
    members = [a_pod("n1", ready="False"), *MEMBERS[1:]]
    assert etcd_quorum.check_members("n1", members, NODES, nodes_in_maintenance={"n2": "disk"}).allowed


def test_single_member_and_one_of_two_must_stay() -> None:
    assert (
        etcd_quorum.check_members("n1", MEMBERS[:1], NODES).reason
        == "etcd has 1 member and needs 1, without n1 it would have 0"
    )
    assert not etcd_quorum.check_members("n1", MEMBERS[:2], NODES).allowed


@pytest.mark.parametrize(("count", "down", "allowed"), [(4, 0, True), (4, 1, False), (5, 1, True), (5, 2, False)])
def test_majority_of_all_members_must_remain(count: int, down: int, *, allowed: bool) -> None:
    names = [f"n{number}" for number in range(1, count + 1)]
    maintained = dict.fromkeys(names[-down:], "m") if down else {}
    nodes = {name: a_node(name) for name in names}
    assert (
        etcd_quorum.check_members("n1", [a_pod(it) for it in names], nodes, nodes_in_maintenance=maintained).allowed
        is allowed
    )


def test_node_without_a_member_can_go() -> None:
    assert etcd_quorum.check_members("n9", MEMBERS, NODES, nodes_in_maintenance={"n2": "a", "n3": "b"}).allowed


def test_each_etcd_cluster_is_counted_separately() -> None:
    """Like kops: one cluster for events, one for everything else."""
    both = [
        a_pod(name, labels={"k8s-app": f"etcd-manager-{of}"}, name=f"{of}-{name}", ready=ready)
        for name in NAMES
        for of, ready in (("main", "True"), ("events", "False" if name == "n3" else "True"))
    ]
    result = etcd_quorum.check_members("n1", both, NODES)
    assert result.reason.startswith("etcd-manager-events has 3 members")
    assert etcd_quorum.check_members("n3", both, NODES).allowed


def test_duplicate_pod_counts_as_one_member() -> None:
    assert "1 member " in etcd_quorum.check_members("n1", [MEMBERS[0], MEMBERS[0]], NODES).reason


def test_missing_etcd_pods_allow_with_a_reason() -> None:
    result = etcd_quorum.check_members("n1", [], NODES)
    assert result.allowed
    assert result.reason == "no etcd pods found in kube-system: cannot tell whether etcd keeps its quorum without n1"


def test_etcd_selectors_finds_pdbs_of_etcd_pods() -> None:
    chosen = [
        a_budget(selector={"matchLabels": {"app": "etcd", "role": "member"}}),
        a_budget(selector={"matchLabels": {"app": "cilium-etcd"}}),
        a_budget(selector={}),
        a_budget(selector={"matchExpressions": "odd"}),
        a_budget(selector={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["etcd"]}]}),
    ]
    assert [str(it) for it in etcd_quorum.etcd_selectors(chosen)] == ["app=etcd,role=member"]
