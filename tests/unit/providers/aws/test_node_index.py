"""Nodes without a provider ID are matched to instances by unique DNS name or address."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.api.maintenancenotice import NoticeCondition, NoticePhase, NoticeStage
from haulout.api.objects import Condition, RawObject
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout_sandbox.clouds.aws.ec2 import address_of
from support.builders.objects import a_node
from support.clouds.aws import AwsWorld, an_aws_world
from support.expectations.eventually import eventually

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


def dns_of(instance: str) -> str:
    return f"{instance}.ec2.internal"


def without_provider_id(name: str, *, addresses: dict[str, str] | None = None, hostname: str = "") -> RawObject:
    node: dict[str, Any] = a_node(name)
    node["spec"].pop("providerID", None)
    if hostname:
        node["metadata"].setdefault("labels", {})["kubernetes.io/hostname"] = hostname
    written = [{"type": kind, "address": item} for kind, item in (addresses or {}).items()]
    node["status"] = {**node.get("status", {}), "addresses": written}
    return node


def by_name(instance: str) -> RawObject:
    return without_provider_id(dns_of(instance))


def by_label(instance: str) -> RawObject:
    return without_provider_id("n1", hostname=dns_of(instance))


def by_dns(instance: str) -> RawObject:
    return without_provider_id("n1", addresses={"InternalDNS": dns_of(instance)})


def by_address(instance: str) -> RawObject:
    return without_provider_id("n1", addresses={"Hostname": "n1", "InternalIP": address_of(instance)})


async def node_found(world: AwsWorld) -> tuple[str, str]:
    found = (await world.only_notice()).status.condition(NoticeCondition.NODE_FOUND) or Condition()
    return found.status, found.message


@pytest.mark.parametrize("make_node", [by_name, by_label, by_dns, by_address])
async def test_node_without_a_provider_id_is_found_by_dns_name_or_address(clock: Clock, make_node: Any) -> None:
    async with an_aws_world(clock) as world:
        instance = world.cloud.launch()
        node = make_node(instance)
        await world.client.create(NODES, node)
        world.start()
        world.cloud.interrupt_spot(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED, phase=NoticePhase.DUE)
        assert (await world.only_notice()).status.node_name == node["metadata"]["name"]


async def test_state_change_of_a_node_without_a_provider_id_is_reported(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = world.cloud.launch()
        await world.client.create(NODES, by_address(instance))
        world.start()
        await clock.sleep(SECOND)
        world.cloud.set_state(instance, "stopping")
        await world.wait_for_stage(NoticeStage.STARTED, phase=NoticePhase.ACTIVE)
        assert (await world.only_notice()).status.node_name == "n1"


async def test_a_node_that_joins_later_without_a_provider_id_is_found(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = world.cloud.launch()
        world.start()
        world.cloud.recommend_rebalance(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await clock.sleep(MINUTE)
        await world.client.create(NODES, by_address(instance))

        async def is_found() -> bool:
            return (await node_found(world))[0] == "True"

        await eventually(clock, is_found, within=6 * MINUTE, every=SECOND)
        assert (await world.only_notice()).status.node_name == "n1"


async def test_ambiguous_address_assigns_no_node_and_keeps_the_lifecycle_action_open(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = world.cloud.launch()
        address = address_of(instance)
        for name in ("a", "b"):
            await world.client.create(NODES, without_provider_id(name, addresses={"InternalIP": address}))
        world.start()
        world.cloud.start_lifecycle_action(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        message = f"nodes a, b all have InternalIP {address}, the address of {instance}"
        await eventually(clock, lambda: node_found(world), becomes=("False", message))
        await clock.sleep(10 * MINUTE)
        assert world.cloud.auto_scaling.completed == []


async def test_node_with_another_provider_id_is_never_matched(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance, other = world.cloud.launch(), world.cloud.launch()
        node = by_address(instance)
        node["spec"] = {"providerID": f"aws:///eu-west-1a/{other}"}
        await world.client.create(NODES, node)
        await world.client.create(NODES, without_provider_id("bare"))
        world.start()
        world.cloud.interrupt_spot(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await clock.sleep(MINUTE)
        assert (await node_found(world))[0] == "False"


@pytest.mark.parametrize("restarts", [False, True])
async def test_lifecycle_action_of_a_node_without_a_provider_id_waits_for_its_drain(
    clock: Clock, *, restarts: bool
) -> None:
    async with an_aws_world(clock) as world:
        instance = world.cloud.launch()
        await world.client.create(NODES, by_address(instance))
        world.start()
        action = world.cloud.start_lifecycle_action(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        if restarts:
            await world.stop()
            world.start()
        await clock.sleep(5 * MINUTE)
        assert world.cloud.auto_scaling.completed == []
        await world.set_condition("n1", "Drained")
        await eventually(clock, lambda: world.cloud.auto_scaling.completed, becomes=[action.token], within=MINUTE)


async def test_lifecycle_action_is_not_completed_while_its_node_is_unknown(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = world.cloud.launch()
        await world.client.create(NODES, by_address(instance))
        refused = world.cloud.faults.fail("DescribeInstances", status=403, code="UnauthorizedOperation", times=None)
        world.start()
        world.cloud.start_lifecycle_action(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await clock.sleep(MINUTE)
        assert world.cloud.auto_scaling.completed == []
        assert world.source is not None
        assert "UnauthorizedOperation" in "".join(world.source.problems())
        world.cloud.faults.remove(refused)
        await clock.sleep(6 * MINUTE)
        assert (await node_found(world))[0] == "True"
        assert world.cloud.auto_scaling.completed == []


async def test_describe_instances_is_not_called_if_each_node_has_a_provider_id(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        await world.join_node("n1")
        world.start()
        world.cloud.interrupt_spot(world.cloud.launch())  # of another cluster
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        assert "DescribeInstances" not in world.cloud.faults.calls
