"""Which NodeMaintenances are let in, and in which words the others are refused."""

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


def test_an_order_for_a_node_that_is_there_and_free_is_let_in() -> None:
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
def test_the_rules_come_in_order_and_in_these_words(known: dict[str, Any], text: str) -> None:
    assert admission.validate_create(an_order(), facts(**known)) == AdmissionResult(text)


def test_on_openshift_the_refusal_is_bare_and_the_reason_a_warning() -> None:
    verdict = admission.validate_create(
        an_order(), facts(quorum=QuorumResult(False, "the guard is up", is_fixed_text=True))
    )
    assert verdict == AdmissionResult(
        "can not put master/control-plane node into maintenance at this moment, disrupting node n1 will violate "
        "etcd quorum",
        ("the guard is up",),
    )


def test_what_could_not_be_told_about_etcd_is_a_warning() -> None:
    assert admission.validate_create(an_order(), facts(quorum=QuorumResult(True, "who knows"))) == AdmissionResult(
        None, ("who knows",)
    )


@pytest.mark.parametrize("name", ["", "..", "a/b", "N1", "n1\n", "n" * 254, "é", None, 7])
def test_what_cannot_be_the_name_of_a_node_is_refused_without_a_look(name: Any) -> None:
    refusal = admission.problem_without_lookup(an_order(name))
    assert refusal == f"invalid nodeName, no node with name {name if isinstance(name, str) else ''} found"


def test_an_order_without_a_spec_is_refused() -> None:
    assert admission.problem_without_lookup({"kind": "NodeMaintenance"}) == "invalid nodeName, no node with name  found"


def test_a_drain_policy_that_makes_no_sense_is_refused_with_all_that_is_wrong() -> None:
    refusal = admission.problem_without_lookup(an_order(drain={"timeuot": "1h", "parallel": 0}))
    assert refusal is not None
    assert refusal.startswith("invalid drain policy, ")
    assert "spec.drain.parallel: found 0" in refusal
    assert "spec.drain.timeuot: unknown, did you mean timeout?" in refusal
    assert admission.problem_without_lookup(an_order(drain={"timeout": "1h", "evictionTimeout": "5m"})) is None


def test_the_node_cannot_be_changed() -> None:
    refused = AdmissionResult("updating spec.NodeName isn't allowed")
    assert admission.validate_update(an_order(), an_order("n2")) == refused
    assert admission.validate_update(an_order(), {"kind": "NodeMaintenance"}) == refused


def test_a_reason_can_be_changed() -> None:
    assert admission.validate_update(an_order(), an_order(reason="disk")) == AdmissionResult()


def test_a_policy_is_judged_when_it_changes_and_only_then() -> None:
    nonsense = {"parallel": 0}
    assert admission.validate_update(an_order(), an_order(drain=nonsense)).refusal is not None
    assert (
        admission.validate_update(an_order(drain=nonsense), an_order(drain=nonsense, reason="disk"))
        == AdmissionResult()
    )


@pytest.mark.parametrize("odd", [{}, {"spec": None}, {"spec": "odd"}, an_order(7), an_order(drain="odd")])
def test_what_does_not_change_the_spec_passes_however_odd_it_is(odd: dict[str, Any]) -> None:
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
def test_another_kind_is_told_so(obj: Any, text: str) -> None:
    assert admission.type_problem(obj) == text
    assert admission.type_problem(an_order()) is None
