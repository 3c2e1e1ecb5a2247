"""Machines on bare metal in a bare API server, sandbox or real, that has their nodes as well; and who sees to hosts.

yard = await a_yard(client, namespace="metal3")
await yard.put(a_host(), a_machine())
async with yard.operated(client):
await yard.approve()
await yard.eventually(yard.is_off)
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from haulout.core.clock import Clock
from haulout.errors import AlreadyExists
from haulout.hub import metal3
from haulout.hub.hosts import Metal3Settings
from haulout.hub.metal3 import Metal3
from haulout.kinds import clusterapi
from haulout.kinds.clusterapi import ENABLED, MAINTENANCE, Machine
from haulout.kinds.metal3 import CONSUMER, HOSTS, REBOOT_OURS, REBOOTS
from haulout.kube import access
from haulout.kube.access import Permission
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.follow import Selection
from haulout.kube.objects import Node, RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import DEFINITIONS, NODES, Resource
from support.builders import a_node
from support.eventually import eventually

Program = Callable[[Client], Coroutine[Any, Any, None]]

MACHINES = clusterapi.machines("v1beta2")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True, model=RawObject)
FOREIGN = f"{REBOOTS}somebody"
HOST, MACHINE, NODE = "rack7-u12", "m1", "rack7-n1"
# What the hub has beside: it follows Machines and nodes, and tells people.
_OF_THE_HUB = (
    Permission(("list", "watch"), clusterapi.GROUP, "machines", None, "see Machines"),
    Permission(("list", "watch"), "", "nodes", None, "see nodes"),
    Permission(("create", "patch"), "events.k8s.io", "events", None, "tell people by events"),
)
NEEDED = access.lean((*metal3.permissions(), *_OF_THE_HUB))


class Yard:
    """The cluster, as a person sees it and works in it."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.clock: Clock = client.clock
        self.namespace = namespace

    # What a person does

    async def put(self, *objects: RawObject) -> None:
        """Create hosts and Machines."""
        for obj in objects:
            resource: Resource[Any] = HOSTS if obj["kind"] == HOSTS.kind else MACHINES
            body = obj | {"metadata": obj["metadata"] | {"namespace": self.namespace}}
            if "providerID" in body.get("spec", {}):
                body["spec"] |= {"providerID": body["spec"]["providerID"].replace("NAMESPACE", self.namespace)}
            if "consumerRef" in body["spec"]:
                body["spec"]["consumerRef"] |= {"namespace": self.namespace}
            await self.client.create(resource, body, namespace=self.namespace)

    async def label(self, value: str | None, *, machine: str = MACHINE, key: str = MAINTENANCE) -> None:
        """Label a Machine; without another key: how it stands with its maintenance."""
        await self.change(MACHINES, machine, metadata={"labels": {key: value}})

    async def approve(self, machine: str = MACHINE) -> None:
        """Say that its node is ready for the maintenance."""
        await self.label("approved", machine=machine)

    async def change(self, resource: Resource[Any], name: str, **fields: Any) -> None:
        """Merge fields into a host or a Machine."""
        await self.client.patch(resource, name, merge_patch(fields), namespace=self.namespace)

    async def delete(self, machine: str = MACHINE) -> None:
        """Delete a Machine."""
        await self.client.delete(MACHINES, machine, namespace=self.namespace)

    async def cordon(self, *, is_cordoned: bool = True) -> None:
        """Cordon the node, or uncordon it."""
        await self.client.patch(NODES, NODE, merge_patch({"spec": {"unschedulable": is_cordoned}}))

    # What a person sees

    async def annotations(self, host: str = HOST) -> dict[str, str]:
        """Return what is on a host."""
        return (await self.client.get(HOSTS, host, namespace=self.namespace)).metadata.annotations

    async def is_off(self, host: str = HOST) -> bool:
        """Tell whether a host is to be off because of us."""
        return REBOOT_OURS in await self.annotations(host)

    async def told(self, reason: str = "") -> list[str]:
        """Return what was told about Machines, in the order of time, and each as often as it was told."""
        events = (await self.client.list(EVENTS, namespace=self.namespace)).items
        about = [it for it in events if it["regarding"]["kind"] == MACHINES.kind and reason in ("", it["reason"])]
        times = [(it["note"], it.get("series", {}).get("count", 1)) for it in sorted(about, key=_moment)]
        return [note for note, count in times for _ in range(count)]

    async def eventually(self, look: Callable[[], Any], **more: Any) -> Any:
        """Wait until something is so."""
        return await eventually(self.clock, look, **more)

    # Who sees to hosts

    @asynccontextmanager
    async def operated(self, client: Client, settings: Metal3Settings | None = None) -> AsyncIterator[None]:
        """Have hosts seen to while the context lasts."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(operating(settings)(client))
            try:
                yield
            finally:
                task.cancel()


def _moment(event: RawObject) -> str:
    return str(event["eventTime"])


async def a_yard(client: Client, namespace: str) -> Yard:
    """Return a cluster that knows Machines and hosts, and has a node."""
    for definition in (a_definition(MACHINES), a_definition(HOSTS)):
        with suppress(AlreadyExists):
            await client.create(DEFINITIONS, definition)
    with suppress(AlreadyExists):
        await client.create(NODES, a_node(NODE))
    yard = Yard(client, namespace)
    await yard.cordon(is_cordoned=False)
    for resource in (MACHINES, HOSTS):
        await yard.eventually(partial(_is_served, client, resource))
    return yard


def roles(account: str, subject: RawObject) -> list[RawObject]:
    """Return what grants exactly what is declared."""
    return access.roles(account, NEEDED, subject)


async def _is_served(client: Client, resource: Resource[Any]) -> bool:
    with suppress(Exception):
        await client.list(resource)
        return True
    return False


def operating(settings: Metal3Settings | None = None) -> Program:
    """Return the controller as a program, with nodes of the same cluster."""

    async def operate(client: Client) -> None:
        events = EventRecorder(client, instance="test", controller="Metal3")
        machines: Cache[Machine] = Cache(client, Selection(MACHINES), row=as_is)
        nodes: Cache[Node] = Cache(client, Selection(NODES), row=as_is)
        hosts = Metal3(client, machines, node_of=lambda it: nodes.get(it.node), events=events, settings=settings)
        nodes.subscribe(lambda *_: hosts.nudge())
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(it.run()) for it in (events, machines, nodes)]
            try:
                await hosts.run()
            finally:
                for task in beside:
                    task.cancel()

    return operate


def a_definition(resource: Resource[Any]) -> RawObject:
    """Return a definition that takes anything."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {"name": resource.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in"},
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"plural": resource.plural, "kind": resource.kind},
            "versions": [version],
        },
    }


def a_host(name: str = HOST, *, state: str = "provisioned", used_by: str = "", **more: Any) -> RawObject:
    """Return a host; with `used_by` that Metal3Machine uses it. What else is given is of its spec, `meta` apart."""
    consumer = {"consumerRef": {"kind": CONSUMER, "name": used_by}} if used_by else {}
    return {
        "apiVersion": HOSTS.api_version,
        "kind": HOSTS.kind,
        "metadata": {"name": name, **more.pop("meta", {})},
        "spec": {"online": True, **consumer, **more},
        "status": {"poweredOn": True, "provisioning": {"state": state}} if state else {},
    }


def a_machine(
    name: str = MACHINE, *, host: str = HOST, node: str = NODE, labels: Mapping[str, str] | None = None, **more: Any
) -> RawObject:
    """Return a Machine on a host, enabled unless `labels` say otherwise; the rest is of its spec, `meta` apart."""
    labels = {ENABLED: "true"} if labels is None else labels
    return {
        "apiVersion": MACHINES.api_version,
        "kind": MACHINES.kind,
        "metadata": {"name": name, "labels": labels, **more.pop("meta", {})},
        "spec": {
            "clusterName": "prod",
            "infrastructureRef": {"kind": CONSUMER, "name": name},
            "providerID": f"metal3://NAMESPACE/{host}/{name}",
            **more,
        },
        "status": {"nodeRef": {"name": node}} if node else {},
    }
