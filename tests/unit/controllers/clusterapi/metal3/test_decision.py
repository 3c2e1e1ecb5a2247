"""The power decision for hosts."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from haulout.api.clusterapi import (
    ENABLED,
    MAINTENANCE,
    OUR_REBOOT_ANNOTATION,
    REBOOT_ANNOTATION_PREFIX,
    BareMetalHost,
    Machine,
)
from haulout.api.objects import Node, NodeSpec, ObjectMeta
from haulout.controllers.clusterapi.host_power import (
    MalformedProviderID,
    Metal3Settings,
    PowerDecision,
    decide_power,
    host_key,
)
from support.platforms import metal3

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
APPROVED = {ENABLED: "true", MAINTENANCE: "approved"}
UNGUARDED = Metal3Settings(unguarded=True)


def a_host(**more: Any) -> BareMetalHost:
    return msgspec.convert(metal3.a_host(**more), BareMetalHost)


def a_powered_off_host(**more: Any) -> BareMetalHost:
    return a_host(meta={"annotations": {OUR_REBOOT_ANNOTATION: ""}}, **more)


def a_machine(name: str = "m1", *, labels: dict[str, str] = APPROVED, leaving: bool = False, **more: Any) -> Machine:
    meta = {"namespace": "metal3"} | ({"deletionTimestamp": NOW} if leaving else {})
    return msgspec.convert(metal3.a_machine(name, labels=labels, meta=meta, **more), Machine)


def decision_for(
    host: BareMetalHost, *machines: Machine, cordoned: bool | None = True, settings: Metal3Settings | None = None
) -> PowerDecision:
    node = None if cordoned is None else Node(metadata=ObjectMeta(name="n1"), spec=NodeSpec(unschedulable=cordoned))
    return decide_power(host, machines, node_of=lambda _: node, settings=settings)


@pytest.mark.parametrize(
    ("provider_id", "host"),
    [
        ("metal3://metal3-prod/rack7-u12/worker-3", "metal3-prod/rack7-u12"),
        ("metal3://metal3-prod/rack7-u12", "metal3-prod/rack7-u12"),
        ("metal3://a/b/c/d", "a/b"),
        ("aws:///eu-central-1a/i-0123", ""),
        ("metal3", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_provider_id_names_the_host(provider_id: str | None, host: str) -> None:
    assert host_key(provider_id) == host


@pytest.mark.parametrize(
    "odd", ["metal3:", "metal3://", "metal3://8f2a", "metal3:///b/c", "metal3://a//c", "metal3:/x/a/b"]
)
def test_malformed_metal3_provider_id_is_refused(odd: str) -> None:
    with pytest.raises(MalformedProviderID, match=r"expected metal3://NAMESPACE/HOST/NAME"):
        host_key(odd)


def test_host_is_powered_off_while_its_machine_is_approved() -> None:
    assert decision_for(a_host(), a_machine()).should_be_off
    assert decision_for(a_powered_off_host(), a_machine()).should_be_off
    for value in ("requested", "Approved", ""):
        found = decision_for(a_powered_off_host(), a_machine(labels=APPROVED | {MAINTENANCE: value}))
        assert (found.should_be_off, found.message) == (False, "Machine metal3/m1 is not approved for maintenance")


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (a_machine(labels={MAINTENANCE: "approved"}), "Machine metal3/m1 is not enabled"),
        (a_machine(labels=APPROVED | {ENABLED: "True"}), "Machine metal3/m1 is not enabled"),
        (a_machine(leaving=True), "Machine metal3/m1 is being deleted"),
    ],
)
def test_host_of_a_disabled_or_deleted_machine_is_on_and_released(machine: Machine, why: str) -> None:
    for host in (a_host(), a_powered_off_host()):
        assert (decision_for(host, machine).should_be_off, decision_for(host, machine).message) == (False, why)
        assert decision_for(host, machine, cordoned=None, settings=UNGUARDED).should_be_off, "as it was before"


@pytest.mark.parametrize(
    ("host", "machine", "cordoned", "why"),
    [
        (a_host(), a_machine(), False, "node n1 of Machine metal3/m1 is not cordoned"),
        (a_host(), a_machine(), None, "node rack7-n1 of Machine metal3/m1 cannot be read now"),
        (a_host(), a_machine(node=""), True, "Machine metal3/m1 has no node"),
        (
            a_host(state="deprovisioning"),
            a_machine(),
            True,
            "it is deprovisioning, and is powered off only when it is provisioned or externally provisioned",
        ),
        (
            a_host(disablePowerOff=True),
            a_machine(),
            True,
            "it has spec.disablePowerOff, and would be rebooted again and again",
        ),
    ],
)
def test_unmet_precondition_keeps_a_host_on_but_does_not_power_on_a_host_that_is_off(
    host: BareMetalHost,
    machine: Machine,
    *,
    cordoned: bool | None,
    why: str,
) -> None:
    found = decision_for(host, machine, cordoned=cordoned)
    assert (found.should_be_off, found.is_waiting, found.message) == (False, True, why)
    marked = msgspec.structs.replace(host, metadata=ObjectMeta(annotations={OUR_REBOOT_ANNOTATION: ""}))
    assert decision_for(marked, machine, cordoned=cordoned).should_be_off
    assert decision_for(host, machine, cordoned=cordoned, settings=UNGUARDED).should_be_off


def test_host_is_powered_off_only_in_provisioned_states() -> None:
    assert all(
        decision_for(a_host(state=state), a_machine()).should_be_off
        for state in ("provisioned", "externally provisioned", "")
    )


def test_host_used_by_another_machine_is_released_whatever_the_settings() -> None:
    for settings in (None, UNGUARDED):
        found = decision_for(a_powered_off_host(used_by="m2"), a_machine(), settings=settings)
        assert (found.should_be_off, found.message) == (
            False,
            "it is used by Metal3Machine m2, not by Machine metal3/m1",
        )
        assert decision_for(a_powered_off_host(used_by="m1"), a_machine(), settings=settings).should_be_off
        assert decision_for(
            a_powered_off_host(used_by="m2"),
            a_machine(infrastructureRef={"kind": "Odd", "name": "m1"}),
            settings=settings,
        ).should_be_off


def test_one_approved_machine_of_several_is_enough() -> None:
    """The old Machine is still terminating when the next one exists."""
    found = decision_for(a_host(used_by="m2"), a_machine("m1", leaving=True), a_machine("m2"))
    assert (found.should_be_off, found.machine and found.machine.name) == (True, "m2")


def test_host_without_a_machine_is_released() -> None:
    assert decision_for(a_powered_off_host()) == PowerDecision(False, "no Machine uses it any more")
    assert not decision_for(a_host(meta={"annotations": {f"{REBOOT_ANNOTATION_PREFIX}other": ""}})).should_be_off
