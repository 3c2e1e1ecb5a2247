"""A cluster whose API server asks our webhook about NodeMaintenances: in this process on the sandbox, else over HTTPS.

    async with hooked(cluster) as world:
        await world.order("n1")

The webhook looks things up as the operator's service account, with the roles that we ship and nothing else.

Objects that are in no namespace have the cluster's prefix, which `world.named` puts before a name. What the tests put
into namespaces that all share (`kube-system`) is deleted in the end.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from haulout.drain.budgets import BUDGETS
from haulout.errors import Forbidden, NotFound, ServerFailure
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES, PODS, Resource
from haulout.maintenance.quorum import KUBE_SYSTEM
from haulout.maintenance.resource import NODE_MAINTENANCES, NodeMaintenance, definition
from haulout.web import registration
from haulout.web.injection import CONFIGURATIONS
from haulout.web.webhook import Webhook
from haulout.web.wishes import SelfMade, WebhookSettings
from haulout_sandbox.apiserver.rbac import account_user
from haulout_sandbox.apiserver.webhook_callers import service_url
from support import defining
from support.backends import Cluster, Sandbox
from support.builders import a_node, a_pod
from support.clusters import ACCOUNT, granted
from support.eventually import eventually
from support.maintaining import RIGHTS

CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}
_AT_ONCE = timedelta()
_READY = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}


@dataclass
class Hooked:
    """What tests do in such a cluster."""

    cluster: Cluster
    client: Client
    webhook: Webhook
    _left: list[tuple[Resource[Any], str, str | None]] = field(default_factory=list)

    def named(self, name: str) -> str:
        """Return a name that no other test uses."""
        return f"{self.cluster.prefix}-{name}"

    async def node(self, name: str, *, labels: Mapping[str, str] | None = None, ready: bool = True) -> str:
        """Make a node; return its name."""
        await self.make(NODES, a_node(self.named(name), labels=labels))
        if ready:
            await self.client.patch(NODES, self.named(name), merge_patch(_READY), subresource="status")
        return self.named(name)

    async def member(
        self, node: str, *, namespace: str = KUBE_SYSTEM, labels: Mapping[str, str] | None = None, ready: str = "True"
    ) -> None:
        """Make a pod of etcd on a node."""
        pod = a_pod(f"etcd-{node}", labels=labels or {"component": "etcd"}, on=node, serviceAccountName="default")
        await self.make(PODS, pod, namespace=namespace)
        status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}}
        await self.client.patch(PODS, f"etcd-{node}", merge_patch(status), namespace=namespace, subresource="status")

    async def budget(self, budget: RawObject, *, namespace: str, allowed: int = 0) -> None:
        """Make a disruption budget that allows so many."""
        await self.make(BUDGETS, budget, namespace=namespace)
        status = {"status": {"disruptionsAllowed": allowed, "observedGeneration": 1}}
        name = budget["metadata"]["name"]
        await self.client.patch(BUDGETS, name, merge_patch(status), namespace=namespace, subresource="status")

    async def order(self, node: str, *, name: str = "", dry_run: bool = False, **spec: Any) -> NodeMaintenance:
        """Order the maintenance of a node, by an object that is named after it."""
        body = an_order(name or node, node, **spec)
        if not dry_run:
            self._left.append((NODE_MAINTENANCES, name or node, None))
        return await self.client.create(NODE_MAINTENANCES, body, dry_run=dry_run)

    async def refusal(self, node: str, **more: Any) -> str:
        """Return in which words an order is refused; empty if it is not."""
        try:
            await self.order(node, **more)
        except Forbidden as error:
            return error.message
        return ""

    async def make(self, resource: Resource[Any], body: RawObject, *, namespace: str | None = None) -> None:
        """Create something that is deleted in the end."""
        await self.client.create(resource, body, namespace=namespace)
        self._left.append((resource, body["metadata"]["name"], namespace))

    async def clean_up(self) -> None:
        """Delete what was made, the last first."""
        for resource, name, namespace in reversed(self._left):
            with suppress(NotFound):
                grace = _AT_ONCE if resource is PODS else None
                await self.client.delete(resource, name, namespace=namespace, grace=grace)


def an_order(name: str, node: str, **spec: Any) -> RawObject:
    """Return a NodeMaintenance."""
    return {
        "apiVersion": NODE_MAINTENANCES.api_version,
        "kind": NODE_MAINTENANCES.kind,
        "metadata": {"name": name},
        "spec": {"nodeName": node, **spec},
    }


@asynccontextmanager
async def hooked(cluster: Cluster, *, guard_quorum: bool = True) -> AsyncIterator[Hooked]:
    """Have such a cluster while the context lasts."""
    client = await cluster.client()
    await define(cluster, client)
    await granted(client, RIGHTS)
    settings = webhook_settings(guard_quorum=guard_quorum)
    world = Hooked(cluster, client, Webhook(await cluster.client_of(account_user(*ACCOUNT)), settings))
    try:
        async with _registered(world, settings):
            await eventually(cluster.clock, lambda: _in_force(world))
            yield world
    finally:
        await world.clean_up()
        await eventually(cluster.clock, lambda: _in_force(world), becomes=False)


@asynccontextmanager
async def _registered(world: Hooked, settings: WebhookSettings) -> AsyncIterator[None]:
    cluster, name = world.cluster, settings.configuration
    if isinstance(cluster, Sandbox):
        url = service_url(settings.namespace, settings.service, path=registration.PATH)
        cluster.cluster.webhooks.serve(url, world.webhook.validator.review)
        await world.make(CONFIGURATIONS, registration.configuration(name=name, namespace=settings.namespace))
        yield
        return
    async with asyncio.TaskGroup() as group:
        running = group.create_task(world.webhook.run())
        port = await eventually(cluster.clock, lambda: world.webhook.port)
        await world.make(CONFIGURATIONS, registration.configuration(name=name, url=f"https://127.0.0.1:{port}"))
        try:
            yield
        finally:
            running.cancel()


def webhook_settings(*, guard_quorum: bool = True) -> WebhookSettings:
    """Return how the webhook runs beside a cluster: as it is installed, but on this machine."""
    return WebhookSettings(
        host="127.0.0.1",
        port=0,
        namespace=ACCOUNT[0],
        more_hosts=("127.0.0.1",),
        certificate=SelfMade(),
        guard_quorum=guard_quorum,
    )


async def define(cluster: Cluster, client: Client) -> None:
    """Have the cluster serve NodeMaintenances."""
    await defining.define(cluster, client, NODE_MAINTENANCES, definition())


async def _in_force(world: Hooked) -> bool:
    try:
        return "no node with name" in await world.refusal("never-there", dry_run=True)
    except (NotFound, ServerFailure):  # the kind is not served everywhere yet, or the webhook is not trusted yet
        return False
