"""The stand-in for Metal3: hosts become nodes, and are off for as long as somebody wants it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise

import pytest

from haulout.api.clusterapi import OUR_REBOOT_ANNOTATION, REBOOT_ANNOTATION, REBOOT_ANNOTATION_PREFIX
from haulout.api.objects import RawObject
from haulout.core.clock import Clock
from haulout_sandbox.metal3.objects import a_host
from support.platforms.clusterapi import ManagementCluster, management_cluster

SPEC = {"infrastructureRef": {"kind": "Metal3MachineTemplate", "name": "workers"}}
SECOND = timedelta(seconds=1)


@asynccontextmanager
async def with_hosts(clock: Clock, *names: str) -> AsyncIterator[ManagementCluster]:
    """Have hosts that nobody uses yet."""
    async with management_cluster(clock, "a/metal") as hub:
        for name in names:
            await hub.create(a_host(name, namespace="a"))
        await hub.eventually(lambda: [state(hub, item) for item in names], becomes=["available"] * len(names))
        yield hub


@asynccontextmanager
async def with_a_node(clock: Clock) -> AsyncIterator[tuple[ManagementCluster, str]]:
    """Have a host that is a node."""
    async with with_hosts(clock, "r1") as hub:
        (machine,) = await hub.create_machines("a/metal", spec=SPEC)
        yield hub, machine


def state(hub: ManagementCluster, host: str) -> str:
    return str(hub.get("baremetalhosts", f"a/{host}")["status"]["provisioning"]["state"])


def is_on(hub: ManagementCluster, host: str = "r1") -> bool:
    return bool(hub.get("baremetalhosts", f"a/{host}")["status"]["poweredOn"])


def annotations(hub: ManagementCluster) -> RawObject:
    host_annotations: RawObject = hub.get("baremetalhosts", "a/r1")["metadata"].get("annotations", {})
    return host_annotations


def ready(hub: ManagementCluster, machine: str) -> str:
    return next(
        str(condition["status"])
        for condition in hub.node(machine)["status"]["conditions"]
        if condition["type"] == "Ready"
    )


def boots(hub: ManagementCluster, machine: str) -> str:
    return str(hub.node(machine)["status"]["nodeInfo"]["bootID"])


async def test_a_machine_takes_a_host_and_gives_it_back(clock: Clock) -> None:
    async with with_hosts(clock, "r1", "r2") as hub:
        (machine,) = await hub.create_machines("a/metal", spec=SPEC)
        name = machine.removeprefix("a/")
        provider_id = f"metal3://a/r1/{name}"
        assert hub.machine(machine)["spec"]["providerID"] == provider_id == hub.node(machine)["spec"]["providerID"]
        consumer = hub.get("baremetalhosts", "a/r1")["spec"]["consumerRef"]
        assert (consumer["kind"], consumer["namespace"], consumer["name"]) == ("Metal3Machine", "a", name)
        assert (state(hub, "r1"), state(hub, "r2"), is_on(hub)) == ("provisioned", "available", True)
        await hub.patch("machinedeployments", "a/workers", spec={"replicas": 0})
        await hub.eventually(lambda: hub.machines("a/metal"), becomes=[])
        assert state(hub, "r1") == "available"
        assert "consumerRef" not in hub.get("baremetalhosts", "a/r1")["spec"]
        assert hub.cluster("a/metal").kubelets.names == ()
        assert hub.cluster("a/metal").api.objects("nodes") == []


async def test_a_machine_for_which_there_is_no_host_waits_for_one(clock: Clock) -> None:
    async with with_a_node(clock) as (hub, _):
        await hub.patch("machinedeployments", "a/workers", spec={"replicas": 2})
        await clock.sleep(60 * SECOND)
        phases = sorted(hub.machine(machine)["status"]["phase"] for machine in hub.machines("a/metal"))
        assert phases == ["Provisioning", "Running"]
        await hub.create(a_host("r2", namespace="a"))
        await hub.eventually(lambda: len(hub.running_machines("a/metal")), becomes=2)


async def test_a_host_is_off_until_all_annotations_with_a_suffix_are_gone(clock: Clock) -> None:
    async with with_a_node(clock) as (hub, machine):
        before, other = boots(hub, machine), f"{REBOOT_ANNOTATION_PREFIX}somebody-else"
        await hub.annotate("baremetalhosts", "a/r1", **{OUR_REBOOT_ANNOTATION: "", other: ""})
        await hub.eventually(lambda: is_on(hub), becomes=False)
        await hub.eventually(lambda: ready(hub, machine), becomes="Unknown")
        await hub.annotate("baremetalhosts", "a/r1", **{OUR_REBOOT_ANNOTATION: None})
        await clock.sleep(timedelta(minutes=5))
        assert (is_on(hub), list(annotations(hub))) == (False, [other])
        await hub.annotate("baremetalhosts", "a/r1", **{other: None})
        await hub.eventually(lambda: ready(hub, machine), becomes="True")
        assert is_on(hub)
        assert boots(hub, machine) != before


async def test_the_plain_annotation_is_one_reboot_and_goes_by_itself(clock: Clock) -> None:
    async with with_a_node(clock) as (hub, machine):
        before = boots(hub, machine)
        await hub.annotate("baremetalhosts", "a/r1", **{REBOOT_ANNOTATION: ""})
        await hub.eventually(lambda: is_on(hub), becomes=False)
        await hub.eventually(lambda: REBOOT_ANNOTATION not in annotations(hub))
        await hub.eventually(lambda: boots(hub, machine) != before)
        await clock.sleep(timedelta(minutes=3))
        history = [
            item.after for item in hub.management.api.history if item.kind.plural == "baremetalhosts" and item.after
        ]
        powers = [bool(item.get("status", {}).get("poweredOn")) for item in history]
        turns = [now for now, then in pairwise(powers) if now != then]
        assert (turns, is_on(hub), ready(hub, machine)) == ([False, True, False], True, "True")


async def test_a_hard_one_is_quicker_than_a_soft_one(clock: Clock) -> None:
    async with with_a_node(clock) as (hub, _):
        took = {}
        for value in ("", '{"mode": "hard"}'):
            started_at = clock.now()
            await hub.annotate("baremetalhosts", "a/r1", **{OUR_REBOOT_ANNOTATION: value})
            await hub.eventually(lambda: is_on(hub), becomes=False)
            took[value] = clock.now() - started_at
            await hub.annotate("baremetalhosts", "a/r1", **{OUR_REBOOT_ANNOTATION: None})
            await hub.eventually(lambda: is_on(hub), becomes=True)
        soft, hard = took.values()
        assert hard < soft


async def test_an_invalid_reboot_value_means_soft_and_is_reported(clock: Clock) -> None:
    async with with_a_node(clock) as (hub, _):
        await hub.annotate("baremetalhosts", "a/r1", **{OUR_REBOOT_ANNOTATION: "hard!"})
        await hub.eventually(lambda: is_on(hub), becomes=False)
        reasons = {event["reason"] for event in hub.management.api.objects("events", namespace="a")}
        assert "InvalidAnnotationValue" in reasons


@pytest.mark.parametrize(("value", "becomes"), [("", True), ('{"force": true}', False)])
async def test_a_host_that_is_not_provisioned_is_only_powered_off_by_force(
    clock: Clock, value: str, *, becomes: bool
) -> None:
    async with with_hosts(clock, "r1") as hub:
        await hub.eventually(lambda: is_on(hub))
        await hub.annotate("baremetalhosts", "a/r1", **{OUR_REBOOT_ANNOTATION: value})
        await clock.sleep(timedelta(minutes=2))
        assert is_on(hub) == becomes


async def test_a_host_that_is_not_to_be_online_is_off_for_good(clock: Clock) -> None:
    async with with_a_node(clock) as (hub, machine):
        await hub.patch("baremetalhosts", "a/r1", spec={"online": False})
        await hub.eventually(lambda: is_on(hub), becomes=False)
        await hub.eventually(lambda: ready(hub, machine), becomes="Unknown")
        await hub.patch("baremetalhosts", "a/r1", spec={"online": True})
        await hub.eventually(lambda: ready(hub, machine), becomes="True")


@pytest.mark.parametrize("mark", ["baremetalhost.metal3.io/paused", "baremetalhost.metal3.io/detached"])
async def test_nothing_is_done_about_a_host_that_is_paused_or_detached(clock: Clock, mark: str) -> None:
    async with with_a_node(clock) as (hub, _):
        await hub.annotate("baremetalhosts", "a/r1", **{mark: "", OUR_REBOOT_ANNOTATION: ""})
        await clock.sleep(timedelta(minutes=3))
        assert is_on(hub)


async def test_an_annotation_that_stays_behind_powers_the_host_of_the_next_machine_off(clock: Clock) -> None:
    """As in life: it is a reason to take it away when a Machine goes."""
    async with with_a_node(clock) as (hub, machine):
        await hub.annotate("baremetalhosts", "a/r1", **{OUR_REBOOT_ANNOTATION: ""})
        await hub.eventually(lambda: is_on(hub), becomes=False)
        await hub.delete("machines", machine)
        await hub.eventually(lambda: not hub.has("machines", machine))
        await hub.eventually(lambda: state(hub, "r1"), becomes="provisioned")
        await clock.sleep(timedelta(minutes=3))
        assert hub.running_machines("a/metal") == []
        assert not is_on(hub)


async def test_a_host_that_cannot_be_powered_off_is_booted_again(clock: Clock) -> None:
    async with with_a_node(clock) as (hub, machine):
        before = boots(hub, machine)
        await hub.patch("baremetalhosts", "a/r1", spec={"disablePowerOff": True})
        await hub.annotate("baremetalhosts", "a/r1", **{REBOOT_ANNOTATION: ""})
        await hub.eventually(lambda: boots(hub, machine) != before)
        await hub.eventually(lambda: REBOOT_ANNOTATION not in annotations(hub))
        await hub.patch("baremetalhosts", "a/r1", spec={"online": False})
        await clock.sleep(timedelta(minutes=2))
        assert is_on(hub)


async def test_machines_that_come_at_once_take_a_host_each(clock: Clock) -> None:
    async with with_hosts(clock, "r1", "r2", "r3") as hub:
        machines = await hub.create_machines("a/metal", replicas=3, spec=SPEC)
        hosts = {hub.machine(machine)["spec"]["providerID"].split("/")[3] for machine in machines}
        assert hosts == {"r1", "r2", "r3"}


async def test_a_machine_whose_host_another_took_takes_the_next(clock: Clock) -> None:
    async with with_hosts(clock, "r1") as hub:
        faults = hub.management.transport("metal3").faults
        faults.fail_before_effect(method="PATCH", where=lambda item: item.path.endswith("/r1"), response=409, times=3)
        await hub.create_machines("a/metal", spec=SPEC)
        assert state(hub, "r1") == "provisioned"
