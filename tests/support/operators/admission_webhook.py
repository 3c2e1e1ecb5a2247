"""A whole cluster with Haulout's admission webhook for NodeMaintenances, or with a webhook for evictions.

The operator has exactly the shipped roles.

    async with registered_webhook(cluster):
        assert await denial_message(cluster, "nowhere", name="odd")
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.errors import ApiError, Forbidden, NotFound
from haulout.kube.client import Client
from haulout.kube.transport import Request
from haulout.webhook import registration
from haulout.webhook.ca_bundle_injection import CONFIGURATIONS
from haulout.webhook.component import Webhook
from haulout_sandbox.apiserver import InProcessTransport, JsonObject
from haulout_sandbox.apiserver.admission.webhook_client import service_url
from haulout_sandbox.apiserver.status import failure_status, json_response
from support.clusters.live_cluster import LiveCluster, SandboxCluster
from support.operators.webhook_cluster import a_nodemaintenance, webhook_settings
from support.servers.webhook_server import (
    Behaviour,
    a_webhook_configuration,
    a_webhook_entry,
    a_webhook_server,
    allows,
    rule,
)


@asynccontextmanager
async def registered_webhook(cluster: LiveCluster) -> AsyncIterator[None]:
    """Register the webhook until the context ends."""
    settings = webhook_settings()
    is_sandbox = isinstance(cluster, SandboxCluster)
    webhooks: list[Webhook] = []

    async def serve(client: Client) -> None:
        webhook = Webhook(client, settings)
        webhooks.append(webhook)
        if not is_sandbox:
            await webhook.serve(client)
        await asyncio.Event().wait()

    process = cluster.run(serve, name="webhook")
    await cluster.eventually(lambda: bool(webhooks and (is_sandbox or webhooks[0].port)))
    name = settings.configuration
    if isinstance(cluster, SandboxCluster):
        url = service_url(settings.namespace, settings.service, path=registration.PATH)
        cluster.api.webhooks.serve(url, webhooks[0].validator.review)
        registered = registration.configuration(name=name, namespace=settings.namespace)
    else:
        registered = registration.configuration(name=name, url=f"https://127.0.0.1:{webhooks[0].port}")
    await cluster.admin.create(CONFIGURATIONS, registered)
    try:
        await cluster.eventually(lambda: _is_webhook_active(cluster))
        yield
    finally:
        with suppress(NotFound):
            await cluster.admin.delete(CONFIGURATIONS, name)
        process.kill()


async def denial_message(cluster: LiveCluster, node: str, *, name: str) -> str:
    """Create a NodeMaintenance; return the denial message, empty if it is admitted."""
    try:
        await cluster.create(a_nodemaintenance(name, node))
    except Forbidden as error:
        return error.message
    return ""


async def _is_webhook_active(cluster: LiveCluster) -> bool:
    try:
        await cluster.admin.create(NODE_MAINTENANCES, a_nodemaintenance("probe", "never-there"), dry_run=True)
    except ApiError as error:
        return "no node with name" in error.message
    return False


def deny_by_policy(transport: InProcessTransport, rule: JsonObject, *, policy: str, binding: str, message: str) -> None:
    """Answer writes as the API server does if a ValidatingAdmissionPolicy with that rule denies them all."""
    (resource,) = rule["resources"]
    plural, _, subresource = resource.partition("/")
    full_message = f"ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}"
    causes = [{"message": full_message}]

    def is_denied(request: Request) -> bool:
        parts = request.path.split("/")
        is_write = request.method in (("POST",) if "CREATE" in rule["operations"] else ("PUT", "PATCH"))
        return is_write and plural in parts and (parts[-1] == subresource or not subresource)

    denial = failure_status(
        422, "Invalid", f"{plural} is forbidden: {full_message}", {"kind": plural, "causes": causes}
    )
    transport.faults.fail_before_effect(response=json_response(422, denial), where=is_denied, times=None)


@asynccontextmanager
async def eviction_webhook(
    cluster: LiveCluster, folder: Path, *, pod_name: str
) -> AsyncIterator[Callable[[Behaviour], None]]:
    """Register a webhook for evictions of pods named `pod_name`; yield a function that sets its behaviour."""
    behaviours: list[Behaviour] = [allows]

    def behave(request: JsonObject) -> JsonObject:
        return behaviours[-1](request) if request["name"] == pod_name else allows(request)

    async with AsyncExitStack() as stack:
        if isinstance(cluster, SandboxCluster):
            client_config: JsonObject = {"url": "https://intercede.example.com/"}
            cluster.api.webhooks.serve(client_config["url"], lambda review: _review_response(review, behave))
        else:
            server = await stack.enter_async_context(a_webhook_server(folder))
            server.set_behaviour("/", behave)
            client_config = server.client_config("/")
        hook = a_webhook_entry(client_config, rule("pods/eviction"), name="intercede.example.com", timeoutSeconds=5)
        await cluster.admin.create(CONFIGURATIONS, a_webhook_configuration("intercede", hook))
        try:
            yield behaviours.append
        finally:
            await cluster.admin.delete(CONFIGURATIONS, "intercede")


async def _review_response(review: JsonObject, behave: Behaviour) -> JsonObject:
    request = review["request"]
    return {key: review[key] for key in ("apiVersion", "kind")} | {
        "response": {"uid": request["uid"]} | behave(request)
    }
