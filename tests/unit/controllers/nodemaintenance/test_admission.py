"""Admission of NodeMaintenances, and the messages of refusals."""

from typing import Any

import pytest

from haulout.api.objects import Node, ObjectMeta
from haulout.controllers.nodemaintenance import admission
from haulout.controllers.nodemaintenance.admission import AdmissionObservation, AdmissionResult, LookupFailure
from haulout.controllers.nodemaintenance.etcd_quorum import QuorumResult

NODE = Node(metadata=ObjectMeta(name="n1"))


def an_order(node: Any = "n1", **spec: Any) -> dict[str, Any]:
    return {"kind": "NodeMaintenance", "metadata": {"name": "m"}, "spec": {"nodeName": node, **spec}}


def facts(**known: Any) -> AdmissionObservation:
    usual: dict[str, Any] = {"node": NODE, "nodes_in_maintenance": {"n2": "other"}}
    return AdmissionObservation(**usual | known)


def test_valid_node_maintenance_is_admitted() -> None:
    assert admission.validate_create(an_order(), facts()) == AdmissionResult()


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ({"node": None}, "invalid nodeName, no node with name n1 found"),
        (
            {"node": LookupFailure("getting nodes n1: timed out")},
            (
                "could not get node for validating spec.NodeName, please try again: could not get node: "
                "getting nodes n1: timed out"
            ),
        ),
        ({"nodes_in_maintenance": {"n1": "other"}}, "invalid nodeName, a NodeMaintenance for node n1 already exists"),
        (
            {"nodes_in_maintenance": LookupFailure("it is down")},
            "could not list NodeMaintenances for validating spec.NodeName, please try again: it is down",
        ),
        (
            {"quorum": QuorumResult(False, "etcd has 1 member")},
            (
                "can not put master/control-plane node into maintenance at this moment, disrupting node n1 will "
                "violate etcd quorum: etcd has 1 member"
            ),
        ),
        ({"quorum": LookupFailure("raw text")}, "raw text"),
        ({"node": None, "nodes_in_maintenance": {"n1": "other"}}, "invalid nodeName, no node with name n1 found"),
    ],
)
def test_validation_rules_have_a_fixed_order_and_message(known: dict[str, Any], text: str) -> None:
    assert admission.validate_create(an_order(), facts(**known)) == AdmissionResult(text)


def test_refusal_on_openshift_puts_the_reason_into_a_warning() -> None:
    result = admission.validate_create(
        an_order(), facts(quorum=QuorumResult(False, "the guard is up", is_fixed_text=True))
    )
    assert result == AdmissionResult(
        "can not put master/control-plane node into maintenance at this moment, disrupting node n1 will violate "
        "etcd quorum",
        ("the guard is up",),
    )


def test_unknown_etcd_quorum_is_a_warning() -> None:
    assert admission.validate_create(an_order(), facts(quorum=QuorumResult(True, "who knows"))) == AdmissionResult(
        None, ("who knows",)
    )


@pytest.mark.parametrize("name", ["", "..", "a/b", "N1", "n1\n", "n" * 254, "é", None, 7])
def test_invalid_node_name_is_refused_without_a_lookup(name: Any) -> None:
    refusal = admission.problem_without_lookup(an_order(name))
    assert refusal == f"invalid nodeName, no node with name {name if isinstance(name, str) else ''} found"


def test_node_maintenance_without_a_spec_is_refused() -> None:
    assert admission.problem_without_lookup({"kind": "NodeMaintenance"}) == "invalid nodeName, no node with name  found"


def test_invalid_drain_policy_is_refused_with_all_problems() -> None:
    refusal = admission.problem_without_lookup(an_order(drain={"timeuot": "1h", "parallel": 0}))
    assert refusal is not None
    assert refusal.startswith("invalid drain policy, ")
    assert "spec.drain.parallel: found 0" in refusal
    assert "spec.drain.timeuot: unknown, did you mean timeout?" in refusal
    assert admission.problem_without_lookup(an_order(drain={"timeout": "1h", "evictionTimeout": "5m"})) is None


def test_node_name_is_immutable() -> None:
    refused = AdmissionResult("updating spec.NodeName isn't allowed")
    assert admission.validate_update(an_order(), an_order("n2")) == refused
    assert admission.validate_update(an_order(), {"kind": "NodeMaintenance"}) == refused


def test_reason_is_mutable() -> None:
    assert admission.validate_update(an_order(), an_order(reason="disk")) == AdmissionResult()


def test_drain_policy_is_validated_only_when_it_changes() -> None:
    nonsense = {"parallel": 0}
    assert admission.validate_update(an_order(), an_order(drain=nonsense)).refusal is not None
    assert (
        admission.validate_update(an_order(drain=nonsense), an_order(drain=nonsense, reason="disk"))
        == AdmissionResult()
    )


@pytest.mark.parametrize("odd", [{}, {"spec": None}, {"spec": "odd"}, an_order(7), an_order(drain="odd")])
def test_update_without_a_spec_change_is_admitted_however_invalid(odd: dict[str, Any]) -> None:
    assert admission.validate_update(odd, {**odd, "metadata": {"finalizers": []}}) == AdmissionResult()


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        ({"kind": "Pod"}, "expected a NodeMaintenance but got a Pod"),
        ({}, "expected a NodeMaintenance but got a None"),
        (None, "expected a NodeMaintenance but got a NoneType"),
        ("odd", "expected a NodeMaintenance but got a str"),
    ],
)
def test_object_of_another_kind_is_refused(obj: Any, text: str) -> None:
    assert admission.type_problem(obj) == text
    assert admission.type_problem(an_order()) is None
