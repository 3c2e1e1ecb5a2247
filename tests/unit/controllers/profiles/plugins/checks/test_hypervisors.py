"""Checks of the Hypervisor of a node."""

from typing import Any

import pytest

from haulout.api.objects import RawObject
from haulout.controllers.profiles.plugin import Check, CheckResult
from haulout.controllers.profiles.plugins.checks.check_hypervisor import CheckHypervisor
from haulout.controllers.profiles.plugins.checks.hypervisor_condition import HypervisorCondition
from haulout.controllers.profiles.view import topics
from support.builders.objects import a_node
from support.fakes.cluster_view import FakeClusterView

STATUS = {"evicted": True, "numInstances": 2, "libVirtVersion": "10.9", "traits": ["A", "B"]}


def a_hypervisor(**status: Any) -> RawObject:
    return {"metadata": {"name": "n1"}, "status": status}


def evaluate(check: Check, **status: Any) -> CheckResult:
    return check.evaluate(FakeClusterView(a_node("n1"), hypervisors=[a_hypervisor(**status)]).plugin_context())


@pytest.mark.parametrize(
    ("fields", "passed"),
    [
        ({}, True),
        ({"evicted": True}, True),
        ({"evicted": False}, False),
        ({"numInstances": 2}, True),
        ({"numInstances": 3}, False),
        ({"libVirtVersion": "10.9"}, True),
        ({"libVirtVersion": "11.0"}, False),
        ({"traits": ["B", "A"]}, True),
        ({"traits": ["A"]}, False),
        ({"evicted": True, "numInstances": 3}, False),
        ({"specHash": ""}, True),
        ({"serviceId": "x"}, False),
    ],
)
def test_all_fields_must_be_equal(fields: RawObject, *, passed: bool) -> None:
    """I07."""
    check = CheckHypervisor(fields=fields)
    assert not list(check.problems())
    assert evaluate(check, **STATUS).passed is passed


def test_missing_field_counts_as_false_or_zero() -> None:
    assert evaluate(CheckHypervisor(fields={"evicted": False, "numInstances": 0, "traits": []})).passed


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"evictd": True}, "a hypervisor's status has no such field that can be compared; did you mean evicted?"),
        ({"conditions": []}, "a hypervisor's status has no such field that can be compared"),
        ({"evicted": "true"}, "found 'true', expected true or false"),
        ({"evicted": 1}, "found 1, expected true or false"),
        ({"numInstances": True}, "found True, expected a whole number"),
        ({"numInstances": "0"}, "found '0', expected a whole number"),
        ({"libVirtVersion": 10.9}, "found 10.9, expected a text"),
        ({"traits": "A"}, "found 'A', expected a list of texts"),
        ({"traits": ["A", 1]}, "found ['A', 1], expected a list of texts"),
    ],
)
def test_unknown_field_and_wrong_type_are_refused(fields: RawObject, problem: str) -> None:
    """I07; and if it came so far, it is an error and not a crash."""
    check = CheckHypervisor(fields=fields)
    assert list(check.problems()) == [(next(iter(fields)), problem)]
    assert evaluate(check, **STATUS).error


def test_status_of_the_wrong_type_is_an_error() -> None:
    result = evaluate(CheckHypervisor(fields={"evicted": True}), evicted="yes")
    assert result.error == "field evicted of hypervisor n1 is 'yes', which cannot be compared with True"


@pytest.mark.parametrize("check", [CheckHypervisor(fields={}), HypervisorCondition(condition="Ready", status="True")])
def test_missing_hypervisor_is_unknown(check: Check) -> None:
    """I07, I08, where the check does not pass and says why."""
    result = check.evaluate(FakeClusterView(a_node("n1")).plugin_context())
    assert (result.passed, result.error) == (None, "")
    assert result.reason.startswith("Hypervisor n1 (hypervisors.kvm.cloud.sap) does not exist")
    assert check.topics("n1") == (topics.hypervisor("n1"),)


@pytest.mark.parametrize(
    ("kind", "status", "passed"), [("Ready", "True", True), ("Ready", "False", False), ("Evicting", "True", False)]
)
def test_hypervisor_condition_must_have_the_status(kind: str, status: str, *, passed: bool) -> None:
    """I08."""
    check = HypervisorCondition(condition=kind, status=status)
    result = evaluate(check, conditions=[{"type": "Ready", "status": "True"}])
    assert result.passed is passed
    expected = {"current": "True", "expected": status} if kind == "Ready" else {"reason": result.reason}
    assert result.info == expected


@pytest.mark.parametrize("conditions", [None, "garbage", ["garbage"], [{}]])
def test_malformed_conditions_are_ignored(conditions: Any) -> None:
    assert evaluate(HypervisorCondition(condition="Ready", status="True"), conditions=conditions).passed is False


def test_hypervisor_without_a_status_does_not_pass() -> None:
    cluster = FakeClusterView(a_node("n1"), hypervisors=[{"metadata": {"name": "n1"}}])
    assert CheckHypervisor(fields={"evicted": True}).evaluate(cluster.plugin_context()).passed is False
