"""A cluster with Haulout's admission webhook for NodeMaintenances: in-process on the sandbox, otherwise over HTTPS.

    async with webhook_cluster(backend) as cluster:
        await cluster.create_maintenance("n1")

The webhook reads objects as the operator's service account, with exactly the shipped roles.

Cluster-scoped objects have a prefix in their names, which `unique_name` adds. Objects that tests create in shared
namespaces (`kube-system`) are deleted at the end.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from haulout.api.nodemaintenance import NODE_MAINTENANCES, NodeMaintenance, custom_resource_definition
from haulout.api.objects import RawObject
from haulout.api.resources import NODES, PODS, Resource
from haulout.controllers.nodemaintenance.etcd_quorum import KUBE_SYSTEM
from haulout.drain.pdb_simulation import POD_DISRUPTION_BUDGETS
from haulout.errors import Forbidden, NotFound, ServerFailure
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.webhook import registration
from haulout.webhook.ca_bundle_injection import CONFIGURATIONS
from haulout.webhook.component import Webhook
from haulout.webhook.settings import SelfSigned, WebhookSettings
from haulout_sandbox.apiserver.admission.webhook_client import service_url
from haulout_sandbox.apiserver.auth.rbac import service_account_user
from support.builders.objects import a_node, a_pod
from support.clusters import crd_installation
from support.clusters.backends import ClusterBackend, SandboxBackend
from support.clusters.cluster_plan import SERVICE_ACCOUNT, apply_rbac
from support.expectations.eventually import eventually
from support.operators.nodemaintenance import OPERATOR_RBAC

CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}
_NO_GRACE = timedelta()
_READY = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}


@dataclass
class WebhookCluster:
    """A cluster with the webhook, and helpers to create objects in it."""

    cluster: ClusterBackend
    client: Client
    webhook: Webhook
    _created: list[tuple[Resource[Any], str, str | None]] = field(default_factory=list)

    def unique_name(self, name: str) -> str:
        """Return a name that no other test uses."""
        return f"{self.cluster.prefix}-{name}"

    async def create_node(self, name: str, *, labels: Mapping[str, str] | None = None, ready: bool = True) -> str:
        """Create a node; return its name."""
        await self.create(NODES, a_node(self.unique_name(name), labels=labels))
        if ready:
            await self.client.patch(NODES, self.unique_name(name), merge_patch(_READY), subresource="status")
        return self.unique_name(name)

    async def create_etcd_member(
        self, node: str, *, namespace: str = KUBE_SYSTEM, labels: Mapping[str, str] | None = None, ready: str = "True"
    ) -> None:
        """Create an etcd pod on a node."""
        pod = a_pod(f"etcd-{node}", labels=labels or {"component": "etcd"}, on=node, serviceAccountName="default")
        await self.create(PODS, pod, namespace=namespace)
        status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}}
        await self.client.patch(PODS, f"etcd-{node}", merge_patch(status), namespace=namespace, subresource="status")

    async def create_pdb(self, pdb: RawObject, *, namespace: str, allowed: int = 0) -> None:
        """Create a disruption budget that allows that many disruptions."""
        await self.create(POD_DISRUPTION_BUDGETS, pdb, namespace=namespace)
        status = {"status": {"disruptionsAllowed": allowed, "observedGeneration": 1}}
        name = pdb["metadata"]["name"]
        await self.client.patch(
            POD_DISRUPTION_BUDGETS, name, merge_patch(status), namespace=namespace, subresource="status"
        )

    async def create_maintenance(
        self, node: str, *, name: str = "", dry_run: bool = False, **spec: Any
    ) -> NodeMaintenance:
        """Create a NodeMaintenance that is named after its node."""
        body = a_nodemaintenance(name or node, node, **spec)
        if not dry_run:
            self._created.append((NODE_MAINTENANCES, name or node, None))
        return await self.client.create(NODE_MAINTENANCES, body, dry_run=dry_run)

    async def denial_message(self, node: str, **more: Any) -> str:
        """Return the denial message of a NodeMaintenance; empty if it is admitted."""
        try:
            await self.create_maintenance(node, **more)
        except Forbidden as error:
            return error.message
        return ""

    async def create(self, resource: Resource[Any], body: RawObject, *, namespace: str | None = None) -> None:
        """Create an object that is deleted at the end."""
        await self.client.create(resource, body, namespace=namespace)
        self._created.append((resource, body["metadata"]["name"], namespace))

    async def clean_up(self) -> None:
        """Delete the created objects, the last one first."""
        for resource, name, namespace in reversed(self._created):
            with suppress(NotFound):
                grace = _NO_GRACE if resource is PODS else None
                await self.client.delete(resource, name, namespace=namespace, grace=grace)


def a_nodemaintenance(name: str, node: str, **spec: Any) -> RawObject:
    """Return a NodeMaintenance."""
    return {
        "apiVersion": NODE_MAINTENANCES.api_version,
        "kind": NODE_MAINTENANCES.kind,
        "metadata": {"name": name},
        "spec": {"nodeName": node, **spec},
    }


@asynccontextmanager
async def webhook_cluster(cluster: ClusterBackend, *, guard_quorum: bool = True) -> AsyncIterator[WebhookCluster]:
    """Run such a cluster until the context ends."""
    client = await cluster.client()
    await install_nodemaintenance_crd(cluster, client)
    await apply_rbac(client, OPERATOR_RBAC)
    settings = webhook_settings(guard_quorum=guard_quorum)
    test_cluster = WebhookCluster(
        cluster, client, Webhook(await cluster.client_of(service_account_user(*SERVICE_ACCOUNT)), settings)
    )
    try:
        async with _registered_webhook(test_cluster, settings):
            await eventually(cluster.clock, lambda: _is_webhook_active(test_cluster))
            yield test_cluster
    finally:
        await test_cluster.clean_up()
        await eventually(cluster.clock, lambda: _is_webhook_active(test_cluster), becomes=False)


@asynccontextmanager
async def _registered_webhook(test_cluster: WebhookCluster, settings: WebhookSettings) -> AsyncIterator[None]:
    cluster, name = test_cluster.cluster, settings.configuration
    if isinstance(cluster, SandboxBackend):
        url = service_url(settings.namespace, settings.service, path=registration.PATH)
        cluster.api_server.webhooks.serve(url, test_cluster.webhook.validator.review)
        await test_cluster.create(CONFIGURATIONS, registration.configuration(name=name, namespace=settings.namespace))
        yield
        return
    async with asyncio.TaskGroup() as group:
        running = group.create_task(test_cluster.webhook.serve(test_cluster.client))
        port = await eventually(cluster.clock, lambda: test_cluster.webhook.port)
        await test_cluster.create(
            CONFIGURATIONS, registration.configuration(name=name, url=f"https://127.0.0.1:{port}")
        )
        try:
            yield
        finally:
            running.cancel()


def webhook_settings(*, guard_quorum: bool = True) -> WebhookSettings:
    """Return how the webhook runs beside a cluster: as it is installed, but on this machine."""
    return WebhookSettings(
        host="127.0.0.1",
        port=0,
        namespace=SERVICE_ACCOUNT[0],
        more_hosts=("127.0.0.1",),
        certificate=SelfSigned(),
        guard_quorum=guard_quorum,
    )


async def install_nodemaintenance_crd(cluster: ClusterBackend, client: Client) -> None:
    """Install the definition of NodeMaintenance."""
    await crd_installation.install_crd(cluster, client, NODE_MAINTENANCES, custom_resource_definition())


async def _is_webhook_active(test_cluster: WebhookCluster) -> bool:
    try:
        return "no node with name" in await test_cluster.denial_message("never-there", dry_run=True)
    except (NotFound, ServerFailure):  # the kind is not served everywhere yet, or the webhook is not trusted yet
        return False
