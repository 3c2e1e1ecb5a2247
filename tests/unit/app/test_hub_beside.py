"""What goes with a hub, as a whole: from a rule and a request in the management cluster to a node and a host."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec
import pytest

from haulout.app.hub import HubOperation, run_hub
from haulout.app.hub_vitals import HubVitals
from haulout.core.clock import Clock
from haulout.hub import tallies
from haulout.hub.settings import HubSettings
from haulout.kinds.clusterapi import DRAIN_RULES, drain_rules
from haulout.kinds.metal3 import HOSTS, REBOOT_OURS
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import DEFINITIONS, NODES, Resource
from haulout.kube.transport import Transport
from support.bare_metal import a_definition, a_host
from support.hubs import Side, World

RULES: Resource[Any] = drain_rules("v1beta2").of(RawObject)
SPACE, HOST = "team-a", "rack7-u12"


@pytest.fixture
async def world(clock: Clock) -> World:
    found = await World(clock).begin()
    for resource in (RULES, HOSTS):
        await found.me.create(DEFINITIONS, a_definition(resource))
    return found


@pytest.fixture
async def prod(world: World) -> Side:
    return await world.add_cluster(SPACE, "prod")


@asynccontextmanager
async def running(world: World, *, line: Transport | None = None, **settings: Any) -> AsyncIterator[HubVitals]:
    client = Client(line or world.api.transport("hub"), clock=world.clock, random=Random("hub"))
    operation = HubOperation(namespace="haulout", identity="hub", elects=False, hub=HubSettings(**settings))
    vitals = HubVitals()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run_hub(client, operation, connect=world.connect(1), vitals=vitals))
        try:
            yield vitals
        finally:
            task.cancel()


def said(world: World, side: Side, machine: str) -> list[str]:
    """Return the rules that a node was told of, by name."""
    text = world.node(side, machine)["metadata"].get("annotations", {}).get(DRAIN_RULES)
    return [] if text is None else [it["name"] for it in msgspec.json.decode(text)["rules"]]


def hosts_in_numbers(vitals: HubVitals) -> dict[str, float]:
    found = next(it for it in vitals.tallies() if it.metric is tallies.HOSTS)
    return {dict(it.labels)["state"]: it.number for it in found.samples()}


async def write_rule(world: World, name: str, **spec: Any) -> None:
    metadata = {"name": name, "namespace": SPACE}
    body = {"apiVersion": RULES.api_version, "kind": RULES.kind, "metadata": metadata}
    await world.me.create(RULES, body | {"spec": {"drain": {"behavior": "Skip"}, **spec}}, namespace=SPACE)


async def test_a_node_carries_the_rules_that_hold_for_its_machine_as_long_as_they_do(world: World, prod: Side) -> None:
    machine = await world.add_machine(prod, "m1")
    await write_rule(world, "all")
    async with running(world):
        await world.eventually(lambda: said(world, prod, machine), becomes=["all"])
        await write_rule(world, "of-linux", machines=[{"selector": {"matchLabels": {"os": "linux"}}}])
        await write_rule(world, "staged", machines=[{"clusterSelector": {"matchLabels": {"stage": "prod"}}}])
        await world.stays(lambda: said(world, prod, machine) == ["all"], seconds=5)
        await world.change(machine, metadata={"labels": {"os": "linux"}})
        await world.eventually(lambda: said(world, prod, machine), becomes=["all", "of-linux"])
        staged = merge_patch({"metadata": {"labels": {"stage": "prod"}}})
        await world.me.patch(world.clusters, "prod", staged, namespace=SPACE)
        await world.eventually(lambda: said(world, prod, machine), becomes=["all", "of-linux", "staged"])
        for name in ("all", "of-linux", "staged"):
            await world.me.delete(RULES, name, namespace=SPACE)
        await world.eventually(lambda: said(world, prod, machine), becomes=[])
        await world.label(machine, enabled=None)


async def test_a_node_whose_machine_opts_out_carries_no_rules_any_more(world: World, prod: Side) -> None:
    machine = await world.add_machine(prod, "m1")
    await write_rule(world, "all")
    async with running(world):
        await world.eventually(lambda: said(world, prod, machine), becomes=["all"])
        await world.label(machine, enabled=None)
        await world.eventually(lambda: said(world, prod, machine), becomes=[])


async def test_a_host_is_off_when_the_profile_has_approved_and_cordoned_and_not_before(
    world: World, prod: Side
) -> None:
    machine = await world.add_machine(prod, "m1")
    await world.change(machine, spec={"providerID": f"metal3://{SPACE}/{HOST}/m1"})
    host = a_host()
    await world.me.create(HOSTS, host | {"metadata": {"name": HOST, "namespace": SPACE}}, namespace=SPACE)

    def is_off() -> bool:
        return REBOOT_OURS in world.api.get(HOSTS.plural, HOST, SPACE)["metadata"].get("annotations", {})

    async with running(world, metal3=True) as vitals:
        await world.label(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintained(prod, machine))
        await world.mark(prod, machine, approve_maintenance="true")
        await world.eventually(lambda: "HostNotPoweredOff" in world.told())
        assert not is_off()
        assert hosts_in_numbers(vitals) == {"off": 0, "waiting": 1}
        await prod.client.patch(NODES, "n-m1", merge_patch({"spec": {"unschedulable": True}}))
        await world.eventually(is_off, seconds=5)
        await world.eventually(lambda: hosts_in_numbers(vitals) == {"off": 1, "waiting": 0}, seconds=5)
        prod.go_away()
        await world.stays(is_off, seconds=60)
        prod.come_back()
        await world.label(machine, maintenance=None)
        await world.eventually(lambda: not is_off())
        assert [it for it in vitals.troubles() if "cannot be reached" not in it] == []


async def test_without_the_flag_hosts_are_none_of_its_business(world: World, prod: Side) -> None:
    await world.add_machine(prod, "m1")
    line = world.api.transport("hub")
    async with running(world, line=line):
        await world.eventually(lambda: world.has_hook(f"{SPACE}/m1"))
    assert line.asked(path="machinedrainrules")
    assert not line.asked(path=HOSTS.group)
