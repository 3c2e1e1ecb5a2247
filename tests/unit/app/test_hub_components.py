"""Components of a hub as a whole: from rules and requests in the management cluster to nodes and hosts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec
import pytest

from haulout.api.clusterapi import BARE_METAL_HOSTS, DRAIN_RULES, OUR_REBOOT_ANNOTATION, machine_drain_rule_resource
from haulout.api.objects import RawObject
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES, Resource
from haulout.app.hub import HubReplicaSettings, run_hub
from haulout.app.replica import ReplicaStatus
from haulout.controllers.clusterapi import metrics
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.transport import Request, Response, Stream, Transport
from support.platforms.hub import HubClusters, WorkloadCluster
from support.platforms.metal3 import a_crd, a_host

RULES: Resource[Any] = machine_drain_rule_resource("v1beta2").with_model(RawObject)
SPACE, HOST = "team-a", "rack7-u12"


@pytest.fixture
async def world(clock: Clock) -> HubClusters:
    found = await HubClusters(clock).install_crds()
    for resource in (RULES, BARE_METAL_HOSTS):
        await found.admin.create(CUSTOM_RESOURCE_DEFINITIONS, a_crd(resource))
    return found


@pytest.fixture
async def prod(world: HubClusters) -> WorkloadCluster:
    return await world.add_cluster(SPACE, "prod")


@asynccontextmanager
async def running(
    world: HubClusters, *, transport: Transport | None = None, **settings: Any
) -> AsyncIterator[ReplicaStatus]:
    client = Client(transport or world.api.transport("hub"), clock=world.clock, random=Random("hub"))
    operation = HubReplicaSettings(
        namespace="haulout", identity="hub", elects_leader=False, hub=ClusterApiSettings(**settings)
    )
    vitals = ReplicaStatus()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run_hub(client, operation, connect=world.connect(1), status=vitals))
        try:
            yield vitals
        finally:
            task.cancel()


def drain_rules_of(world: HubClusters, side: WorkloadCluster, machine: str) -> list[str]:
    """Return the names of the drain rules in the annotation of a node."""
    text = world.node_of(side, machine)["metadata"].get("annotations", {}).get(DRAIN_RULES)
    return [] if text is None else [it["name"] for it in msgspec.json.decode(text)["rules"]]


def host_metrics(vitals: ReplicaStatus) -> dict[str, float]:
    found = next(it for it in vitals.collect_metrics() if it.metric is metrics.HOSTS)
    return {dict(it.labels)["state"]: it.number for it in found.samples()}


async def write_rule(world: HubClusters, name: str, **spec: Any) -> None:
    metadata = {"name": name, "namespace": SPACE}
    body = {"apiVersion": RULES.api_version, "kind": RULES.kind, "metadata": metadata}
    await world.admin.create(RULES, body | {"spec": {"drain": {"behavior": "Skip"}, **spec}}, namespace=SPACE)


async def test_node_has_the_drain_rules_of_its_machine_while_they_apply(
    world: HubClusters, prod: WorkloadCluster
) -> None:
    machine = await world.add_machine(prod, "m1")
    await write_rule(world, "all")
    async with running(world):
        await world.eventually(lambda: drain_rules_of(world, prod, machine), becomes=["all"])
        await write_rule(world, "of-linux", machines=[{"selector": {"matchLabels": {"os": "linux"}}}])
        await write_rule(world, "staged", machines=[{"clusterSelector": {"matchLabels": {"stage": "prod"}}}])
        await world.assert_stays(lambda: drain_rules_of(world, prod, machine) == ["all"], seconds=5)
        await world.patch_machine(machine, metadata={"labels": {"os": "linux"}})
        await world.eventually(lambda: drain_rules_of(world, prod, machine), becomes=["all", "of-linux"])
        staged = merge_patch({"metadata": {"labels": {"stage": "prod"}}})
        await world.admin.patch(world.clusters, "prod", staged, namespace=SPACE)
        await world.eventually(lambda: drain_rules_of(world, prod, machine), becomes=["all", "of-linux", "staged"])
        for name in ("all", "of-linux", "staged"):
            await world.admin.delete(RULES, name, namespace=SPACE)
        await world.eventually(lambda: drain_rules_of(world, prod, machine), becomes=[])
        await world.label_machine(machine, enabled=None)


async def test_node_of_a_disabled_machine_has_no_drain_rules(world: HubClusters, prod: WorkloadCluster) -> None:
    machine = await world.add_machine(prod, "m1")
    await write_rule(world, "all")
    async with running(world):
        await world.eventually(lambda: drain_rules_of(world, prod, machine), becomes=["all"])
        await world.label_machine(machine, enabled=None)
        await world.eventually(lambda: drain_rules_of(world, prod, machine), becomes=[])


async def test_host_is_powered_off_once_maintenance_is_approved_and_the_node_is_cordoned(
    world: HubClusters, prod: WorkloadCluster
) -> None:
    machine = await world.add_machine(prod, "m1")
    await world.patch_machine(machine, spec={"providerID": f"metal3://{SPACE}/{HOST}/m1"})
    host = a_host()
    await world.admin.create(BARE_METAL_HOSTS, host | {"metadata": {"name": HOST, "namespace": SPACE}}, namespace=SPACE)

    def is_off() -> bool:
        return OUR_REBOOT_ANNOTATION in world.api.get(BARE_METAL_HOSTS.plural, HOST, SPACE)["metadata"].get(
            "annotations", {}
        )

    async with running(world, metal3=True) as vitals:
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine))
        await world.label_node(prod, machine, approve_maintenance="true")
        await world.eventually(lambda: "HostNotPoweredOff" in world.event_reasons())
        assert not is_off()
        assert host_metrics(vitals) == {"off": 0, "waiting": 1}
        await prod.client.patch(NODES, "n-m1", merge_patch({"spec": {"unschedulable": True}}))
        await world.eventually(is_off, seconds=5)
        await world.eventually(lambda: host_metrics(vitals) == {"off": 1, "waiting": 0}, seconds=5)
        prod.become_unreachable()
        await world.assert_stays(is_off, seconds=60)
        prod.recover()
        await world.label_machine(machine, maintenance=None)
        await world.eventually(lambda: not is_off())
        assert [it for it in vitals.troubles() if "cannot be reached" not in it] == []


async def test_hub_without_the_metal3_flag_sends_no_host_requests(world: HubClusters, prod: WorkloadCluster) -> None:
    await world.add_machine(prod, "m1")
    transport = world.api.transport("hub")
    async with running(world, transport=transport):
        await world.eventually(lambda: world.has_hook(f"{SPACE}/m1"))
    assert transport.sent_requests(path="machinedrainrules")
    assert not transport.sent_requests(path=BARE_METAL_HOSTS.group)


class DefectiveTransport:
    """A transport with a defect: requests to `broken_path` raise what no caller expects."""

    def __init__(self, transport: Transport) -> None:
        self.server = transport.server
        self.broken_path = ""
        self._transport = transport

    async def send(self, request: Request) -> Response:
        self._check(request)
        return await self._transport.send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        self._check(request)
        async with self._transport.stream(request) as stream:
            yield stream

    async def close(self) -> None:
        await self._transport.close()

    def _check(self, request: Request) -> None:
        if self.broken_path and request.path.endswith(self.broken_path):
            raise RuntimeError("a defect")


@pytest.mark.parametrize(
    ("path", "title"), [("/machines", "the hub"), ("/machinedrainrules", "MachineDrainRules"), ("hosts", "Metal3")]
)
async def test_failed_component_restarts_and_continues(
    world: HubClusters, prod: WorkloadCluster, path: str, title: str
) -> None:
    """Components that use the Machines of the hub's controller continue with those of the next one."""
    machine = await world.add_machine(prod, "m1")
    inner = world.api.transport("hub")
    transport = DefectiveTransport(inner)
    await write_rule(world, "first")
    world.api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "haulout"}})
    async with running(world, transport=transport, metal3=True) as vitals:
        await world.eventually(lambda: drain_rules_of(world, prod, machine), becomes=["first"])
        transport.broken_path = path
        inner.disconnect()
        await world.eventually(vitals.troubles, seconds=60)
        assert [problem.partition(" failed and restarts")[0] for problem in vitals.troubles()] == [title]
        await world.eventually(lambda: "HubFailed" in world.event_reasons())
        transport.broken_path = ""
        await write_rule(world, "second")
        await world.eventually(lambda: drain_rules_of(world, prod, machine), becomes=["first", "second"], seconds=600)
        other = await world.add_machine(prod, "m2")
        await world.eventually(lambda: world.has_hook(other))
        await world.eventually(lambda: drain_rules_of(world, prod, other), becomes=["first", "second"])
