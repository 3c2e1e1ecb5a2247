"""Which hosts are to be off."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from haulout.hub.hosts import Judgement, MalformedProviderID, Metal3Settings, host_of, judge
from haulout.kinds.clusterapi import ENABLED, MAINTENANCE, Machine
from haulout.kinds.metal3 import REBOOT_OURS, REBOOTS, BareMetalHost
from haulout.kube.objects import Metadata, Node, NodeSpec
from support import bare_metal

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
APPROVED = {ENABLED: "true", MAINTENANCE: "approved"}
UNGUARDED = Metal3Settings(unguarded=True)


def a_host(**more: Any) -> BareMetalHost:
    return msgspec.convert(bare_metal.a_host(**more), BareMetalHost)


def off(**more: Any) -> BareMetalHost:
    return a_host(meta={"annotations": {REBOOT_OURS: ""}}, **more)


def a_machine(name: str = "m1", *, labels: dict[str, str] = APPROVED, leaving: bool = False, **more: Any) -> Machine:
    meta = {"namespace": "metal3"} | ({"deletionTimestamp": NOW} if leaving else {})
    return msgspec.convert(bare_metal.a_machine(name, labels=labels, meta=meta, **more), Machine)


def judged(
    host: BareMetalHost, *machines: Machine, cordoned: bool | None = True, settings: Metal3Settings | None = None
) -> Judgement:
    node = None if cordoned is None else Node(metadata=Metadata(name="n1"), spec=NodeSpec(unschedulable=cordoned))
    return judge(host, machines, node_of=lambda _: node, settings=settings)


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
def test_a_provider_id_says_which_host(provider_id: str | None, host: str) -> None:
    assert host_of(provider_id) == host


@pytest.mark.parametrize(
    "odd", ["metal3:", "metal3://", "metal3://8f2a", "metal3:///b/c", "metal3://a//c", "metal3:/x/a/b"]
)
def test_one_of_metal3_that_names_no_host_is_malformed(odd: str) -> None:
    with pytest.raises(MalformedProviderID, match=r"expected metal3://NAMESPACE/HOST/NAME"):
        host_of(odd)


def test_a_host_is_off_while_its_machine_is_approved() -> None:
    assert judged(a_host(), a_machine()).is_off
    assert judged(off(), a_machine()).is_off
    for value in ("requested", "Approved", ""):
        found = judged(off(), a_machine(labels=APPROVED | {MAINTENANCE: value}))
        assert (found.is_off, found.why) == (False, "Machine metal3/m1 is not approved for maintenance")


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (a_machine(labels={MAINTENANCE: "approved"}), "Machine metal3/m1 is not enabled"),
        (a_machine(labels=APPROVED | {ENABLED: "True"}), "Machine metal3/m1 is not enabled"),
        (a_machine(leaving=True), "Machine metal3/m1 is being deleted"),
    ],
)
def test_machines_that_are_not_ours_to_maintain_have_their_hosts_on_and_given_back(machine: Machine, why: str) -> None:
    for host in (a_host(), off()):
        assert (judged(host, machine).is_off, judged(host, machine).why) == (False, why)
        assert judged(host, machine, cordoned=None, settings=UNGUARDED).is_off, "as it was before"


@pytest.mark.parametrize(
    ("host", "machine", "cordoned", "why"),
    [
        (a_host(), a_machine(), False, "node n1 of Machine metal3/m1 is not cordoned"),
        (a_host(), a_machine(), None, "node rack7-n1 of Machine metal3/m1 cannot be seen now"),
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
def test_what_is_not_as_it_should_be_keeps_a_host_on_but_does_not_bring_it_back(
    host: BareMetalHost,
    machine: Machine,
    *,
    cordoned: bool | None,
    why: str,
) -> None:
    found = judged(host, machine, cordoned=cordoned)
    assert (found.is_off, found.waits, found.why) == (False, True, why)
    marked = msgspec.structs.replace(host, metadata=Metadata(annotations={REBOOT_OURS: ""}))
    assert judged(marked, machine, cordoned=cordoned).is_off
    assert judged(host, machine, cordoned=cordoned, settings=UNGUARDED).is_off


def test_states_in_which_hosts_are_powered_off() -> None:
    assert all(judged(a_host(state=it), a_machine()).is_off for it in ("provisioned", "externally provisioned", ""))


def test_a_host_that_another_uses_is_given_back_whatever_the_settings() -> None:
    for settings in (None, UNGUARDED):
        found = judged(off(used_by="m2"), a_machine(), settings=settings)
        assert (found.is_off, found.why) == (False, "it is used by Metal3Machine m2, not by Machine metal3/m1")
        assert judged(off(used_by="m1"), a_machine(), settings=settings).is_off
        assert judged(
            off(used_by="m2"), a_machine(infrastructureRef={"kind": "Odd", "name": "m1"}), settings=settings
        ).is_off


def test_of_several_machines_one_is_enough() -> None:
    """The old one still leaves when the next is there already."""
    found = judged(a_host(used_by="m2"), a_machine("m1", leaving=True), a_machine("m2"))
    assert (found.is_off, found.machine and found.machine.name) == (True, "m2")


def test_a_host_that_nobody_names_is_given_back() -> None:
    assert judged(off()) == Judgement(False, "no Machine names it any more")
    assert not judged(a_host(meta={"annotations": {f"{REBOOTS}other": ""}})).is_off
