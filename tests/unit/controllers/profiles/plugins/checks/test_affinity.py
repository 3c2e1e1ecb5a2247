"""The check affinity: nodes without pods that prefer operational nodes pass first."""

from collections.abc import Mapping
from typing import Any

import pytest

from haulout.api.objects import RawObject
from haulout.controllers.profiles.plugin import STATE_LABEL, CheckResult, State
from haulout.controllers.profiles.plugins.checks.affinity import Affinity
from haulout.controllers.profiles.view import topics
from haulout.controllers.profiles.view.transform import prefers_operational
from support.builders.objects import a_node, a_pod
from support.fakes.cluster_view import PROFILE, FakeClusterView, a_profile_entry


def expression(**changed: Any) -> RawObject:
    return {"key": STATE_LABEL, "operator": "In", "values": ["operational"], **changed}


def preferring(*expressions: RawObject, weight: int = 1) -> RawObject:
    term = {"weight": weight, "preference": {"matchExpressions": list(expressions)}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


def a_sensitive_pod(name: str, on: str) -> RawObject:
    return a_pod(name, on=on, affinity=preferring(expression()))


def evaluate(
    pods: list[RawObject], states: Mapping[str, str], *, least: int = 0, profile: str = PROFILE
) -> CheckResult:
    entries = {name: {profile: a_profile_entry(state)} for name, state in states.items()}
    nodes = [a_node(name) for name in ("n1", "n2", "n3")]
    return Affinity(min_operational=least).evaluate(
        FakeClusterView(*nodes, pods=pods, entries=entries).plugin_context()
    )


BOTH_WAIT = {"n1": State.REQUIRED, "n2": State.REQUIRED}


@pytest.mark.parametrize("pods", [[], [a_pod("cart-0", on="n1")], [a_sensitive_pod("cart-0", on="n2")]])
def test_node_without_pods_that_prefer_operational_nodes_passes(pods: list[RawObject]) -> None:
    """C19, C23."""
    result = evaluate(pods, BOTH_WAIT)
    assert result.passed
    assert result.info == {"reason": result.reason}


def test_node_with_pods_that_prefer_operational_nodes_waits_for_others() -> None:
    """C20."""
    result = evaluate([a_sensitive_pod("cart-0", on="n1")], BOTH_WAIT)
    assert result.passed is False
    assert result.reason == "node n1 has pods that prefer operational nodes, and waits for n2 which has none"


def test_all_pass_if_all_have_pods_that_prefer_operational_nodes() -> None:
    """C21."""
    assert evaluate([a_sensitive_pod("cart-0", on="n1"), a_sensitive_pod("cart-1", on="n2")], BOTH_WAIT).passed


def test_nodes_waiting_for_another_profile_do_not_count() -> None:
    """C24."""
    assert evaluate([a_sensitive_pod("cart-0", on="n1")], BOTH_WAIT, profile="other").passed


@pytest.mark.parametrize(("least", "passed"), [(0, False), (1, True), (2, False)])
def test_enough_operational_nodes_let_all_pass(least: int, *, passed: bool) -> None:
    """C25."""
    states = {**BOTH_WAIT, "n3": State.OPERATIONAL}
    assert evaluate([a_sensitive_pod("cart-0", on="n1")], states, least=least).passed is passed


@pytest.mark.parametrize("state", [State.OPERATIONAL, State.IN_MAINTENANCE])
def test_affinity_is_an_error_outside_of_maintenance_required(state: State) -> None:
    """C22."""
    result = Affinity().evaluate(FakeClusterView(a_node("n1")).plugin_context(state=state))
    assert result.passed is None
    assert result.error == f"affinity compares nodes in maintenance-required, and cannot be used in {state}"
    assert list(Affinity().problems_in(state)) == [result.error]


def test_affinity_has_no_problem_in_maintenance_required() -> None:
    """I01."""
    assert Affinity().min_operational == 0
    assert not list(Affinity().problems_in(State.REQUIRED))
    assert Affinity().topics("n1") == (topics.STATES, topics.POD_PREFERENCE)


@pytest.mark.parametrize(
    ("affinity", "is_delicate"),
    [
        (preferring(expression()), True),
        (preferring({"key": "disk", "operator": "Exists"}, expression(), weight=100), True),
        (preferring(expression(operator="NotIn")), False),
        (preferring(expression(values=["operational", "maintenance-required"])), False),
        (preferring(expression(key="other")), False),
        ({}, False),
        (None, False),
        ("garbage", False),
        (
            {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [expression()]}]
                    }
                }
            },
            False,
        ),
    ],
)
def test_prefers_operational_recognizes_the_preferred_node_affinity(affinity: Any, *, is_delicate: bool) -> None:
    assert prefers_operational(a_pod("cart-0", affinity=affinity)) is is_delicate
