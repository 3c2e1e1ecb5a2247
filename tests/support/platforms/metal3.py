"""Bare-metal Machines and their nodes on a bare API server, sandbox or real, and the Metal3 controller.

cluster = await a_bare_metal_cluster(client, namespace="metal3")
await cluster.create(a_host(), a_machine())
async with cluster.running_controller(client):
    await cluster.approve()
    await cluster.eventually(cluster.is_powered_off)
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from haulout.api import clusterapi
from haulout.api.clusterapi import (
    BARE_METAL_HOSTS,
    ENABLED,
    MAINTENANCE,
    METAL3_MACHINE_KIND,
    OUR_REBOOT_ANNOTATION,
    REBOOT_ANNOTATION_PREFIX,
    Machine,
)
from haulout.api.objects import Node, RawObject
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES, Resource
from haulout.controllers.clusterapi import metal3
from haulout.controllers.clusterapi.host_power import Metal3Settings
from haulout.controllers.clusterapi.metal3 import Metal3Controller
from haulout.core.clock import Clock
from haulout.errors import AlreadyExists
from haulout.kube import rbac
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import merge_patch
from haulout.kube.rbac import Permission
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from support.builders.objects import a_node
from support.expectations.eventually import eventually

Program = Callable[[Client], Coroutine[Any, Any, None]]

MACHINES = clusterapi.machine_resource("v1beta2")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True, model=RawObject)
FOREIGN_REBOOT = f"{REBOOT_ANNOTATION_PREFIX}somebody"
HOST, MACHINE, NODE = "rack7-u12", "m1", "rack7-n1"
# What the hub has beside: it follows Machines and nodes, and tells people.
_HUB_PERMISSIONS = (
    Permission(("list", "watch"), clusterapi.GROUP, "machines", None, "see Machines"),
    Permission(("list", "watch"), "", "nodes", None, "watch nodes"),
    Permission(("create", "patch"), "events.k8s.io", "events", None, "record events"),
)
PERMISSIONS = rbac.without_redundant((*metal3.permissions(), *_HUB_PERMISSIONS))


class BareMetalCluster:
    """The cluster, from the view of a user."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.clock: Clock = client.clock
        self.namespace = namespace

    # Actions of a user

    async def create(self, *objects: RawObject) -> None:
        """Create hosts and Machines."""
        for obj in objects:
            resource: Resource[Any] = BARE_METAL_HOSTS if obj["kind"] == BARE_METAL_HOSTS.kind else MACHINES
            body = obj | {"metadata": obj["metadata"] | {"namespace": self.namespace}}
            if "providerID" in body.get("spec", {}):
                body["spec"] |= {"providerID": body["spec"]["providerID"].replace("NAMESPACE", self.namespace)}
            if "consumerRef" in body["spec"]:
                body["spec"]["consumerRef"] |= {"namespace": self.namespace}
            await self.client.create(resource, body, namespace=self.namespace)

    async def label(self, value: str | None, *, machine: str = MACHINE, key: str = MAINTENANCE) -> None:
        """Label a Machine, by default with its maintenance state."""
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

    # Reads

    async def annotations(self, host: str = HOST) -> dict[str, str]:
        """Return what is on a host."""
        return (await self.client.get(BARE_METAL_HOSTS, host, namespace=self.namespace)).metadata.annotations

    async def is_powered_off(self, host: str = HOST) -> bool:
        """Return whether our annotation powers a host off."""
        return OUR_REBOOT_ANNOTATION in await self.annotations(host)

    async def event_notes(self, reason: str = "") -> list[str]:
        """Return the notes of Events about Machines in order, each with its repetitions."""
        events = (await self.client.list(EVENTS, namespace=self.namespace)).items
        machine_events = [
            event for event in events if event["regarding"]["kind"] == MACHINES.kind and reason in ("", event["reason"])
        ]
        times = [
            (event["note"], event.get("series", {}).get("count", 1))
            for event in sorted(machine_events, key=_event_time)
        ]
        return [note for note, count in times for _ in range(count)]

    async def eventually(self, probe: Callable[[], Any], **more: Any) -> Any:
        """Wait until a condition holds."""
        return await eventually(self.clock, probe, **more)

    # The controller

    @asynccontextmanager
    async def running_controller(self, client: Client, settings: Metal3Settings | None = None) -> AsyncIterator[None]:
        """Run the Metal3 controller until the context ends."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(metal3_controller(settings)(client))
            try:
                yield
            finally:
                task.cancel()


def _event_time(event: RawObject) -> str:
    return str(event["eventTime"])


async def a_bare_metal_cluster(client: Client, namespace: str) -> BareMetalCluster:
    """Return a cluster that knows Machines and hosts, and has a node."""
    for definition in (a_crd(MACHINES), a_crd(BARE_METAL_HOSTS)):
        with suppress(AlreadyExists):
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    with suppress(AlreadyExists):
        await client.create(NODES, a_node(NODE))
    cluster = BareMetalCluster(client, namespace)
    await cluster.cordon(is_cordoned=False)
    for resource in (MACHINES, BARE_METAL_HOSTS):
        await cluster.eventually(partial(_is_served, client, resource))
    return cluster


def roles(account: str, subject: RawObject) -> list[RawObject]:
    """Return roles with exactly the declared permissions."""
    return rbac.roles(account, PERMISSIONS, subject)


async def _is_served(client: Client, resource: Resource[Any]) -> bool:
    with suppress(Exception):
        await client.list(resource)
        return True
    return False


def metal3_controller(settings: Metal3Settings | None = None) -> Program:
    """Return the controller as a program, with nodes of the same cluster."""

    async def operate(client: Client) -> None:
        events = EventRecorder(client, instance="test", controller="Metal3")
        machines: Informer[Machine] = Informer(client, ListWatch(MACHINES), transform=as_is)
        nodes: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
        hosts = Metal3Controller(
            client, machines, node_of=lambda component: nodes.get(component.node), events=events, settings=settings
        )
        nodes.subscribe(lambda *_: hosts.enqueue_waiting())
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(component.run()) for component in (events, machines, nodes)]
            try:
                await hosts.run()
            finally:
                for task in tasks:
                    task.cancel()

    return operate


def a_crd(resource: Resource[Any]) -> RawObject:
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
    consumer = {"consumerRef": {"kind": METAL3_MACHINE_KIND, "name": used_by}} if used_by else {}
    return {
        "apiVersion": BARE_METAL_HOSTS.api_version,
        "kind": BARE_METAL_HOSTS.kind,
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
            "infrastructureRef": {"kind": METAL3_MACHINE_KIND, "name": name},
            "providerID": f"metal3://NAMESPACE/{host}/{name}",
            **more,
        },
        "status": {"nodeRef": {"name": node}} if node else {},
    }
