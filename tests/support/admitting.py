"""A whole cluster that asks our webhook about NodeMaintenances, with the rights that we ship, or one about evictions.

async with admitting(cluster):
assert await refusal(cluster, "nowhere", name="odd")
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from haulout.errors import ApiError, Forbidden, NotFound
from haulout.kube.client import Client
from haulout.kube.transport import Request
from haulout.maintenance.resource import NODE_MAINTENANCES
from haulout.web import registration
from haulout.web.injection import CONFIGURATIONS
from haulout.web.webhook import Webhook
from haulout_sandbox.apiserver import InProcessTransport, JsonObject
from haulout_sandbox.apiserver.status import answer, failure
from haulout_sandbox.apiserver.webhook_callers import service_url
from support.hooked import an_order, webhook_settings
from support.live import LiveCluster, SandboxCluster
from support.webhooks import Behaviour, a_configuration, a_hook, a_webhook, allows, rule


@asynccontextmanager
async def admitting(cluster: LiveCluster) -> AsyncIterator[None]:
    """Have the webhook asked while the context lasts."""
    settings = webhook_settings()
    is_sandbox = isinstance(cluster, SandboxCluster)
    webhooks: list[Webhook] = []

    async def serve(client: Client) -> None:
        webhook = Webhook(client, settings)
        webhooks.append(webhook)
        if not is_sandbox:
            await webhook.run()
        await asyncio.Event().wait()

    life = cluster.run(serve, name="webhook")
    await cluster.eventually(lambda: bool(webhooks and (is_sandbox or webhooks[0].port)))
    name = settings.configuration
    if isinstance(cluster, SandboxCluster):
        url = service_url(settings.namespace, settings.service, path=registration.PATH)
        cluster.api.webhooks.serve(url, webhooks[0].validator.review)
        registered = registration.configuration(name=name, namespace=settings.namespace)
    else:
        registered = registration.configuration(name=name, url=f"https://127.0.0.1:{webhooks[0].port}")
    await cluster.me.create(CONFIGURATIONS, registered)
    try:
        await cluster.eventually(lambda: _is_in_force(cluster))
        yield
    finally:
        with suppress(NotFound):
            await cluster.me.delete(CONFIGURATIONS, name)
        life.kill()


async def refusal(cluster: LiveCluster, node: str, *, name: str) -> str:
    """Order a maintenance; return in which words that is refused, empty if it is not."""
    try:
        await cluster.create(an_order(name, node))
    except Forbidden as error:
        return error.message
    return ""


async def _is_in_force(cluster: LiveCluster) -> bool:
    try:
        await cluster.me.create(NODE_MAINTENANCES, an_order("probe", "never-there"), dry_run=True)
    except ApiError as error:
        return "no node with name" in error.message
    return False


def deny_by_policy(line: InProcessTransport, rule: JsonObject, *, policy: str, binding: str, message: str) -> None:
    """Answer writes as the API server does if a ValidatingAdmissionPolicy with that rule denies them all."""
    (resource,) = rule["resources"]
    plural, _, subresource = resource.partition("/")
    said = f"ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}"
    causes = [{"message": said}]

    def is_denied(request: Request) -> bool:
        parts = request.path.split("/")
        is_write = request.method in (("POST",) if "CREATE" in rule["operations"] else ("PUT", "PATCH"))
        return is_write and plural in parts and (parts[-1] == subresource or not subresource)

    denial = failure(422, "Invalid", f"{plural} is forbidden: {said}", {"kind": plural, "causes": causes})
    line.faults.before(answer=answer(422, denial), where=is_denied, times=None)


@asynccontextmanager
async def interceding(cluster: LiveCluster, folder: Path, *, about: str) -> AsyncIterator[Callable[[Behaviour], None]]:
    """Have a webhook asked about evictions of pods whose name is `about`; yield how to tell it what to say."""
    said: list[Behaviour] = [allows]

    def behave(request: JsonObject) -> JsonObject:
        return said[-1](request) if request["name"] == about else allows(request)

    async with AsyncExitStack() as stack:
        if isinstance(cluster, SandboxCluster):
            where: JsonObject = {"url": "https://intercede.example.com/"}
            cluster.api.webhooks.serve(where["url"], lambda review: _answered(review, behave))
        else:
            server = await stack.enter_async_context(a_webhook(folder))
            server.does("/", behave)
            where = server.client_config("/")
        hook = a_hook(where, rule("pods/eviction"), name="intercede.example.com", timeoutSeconds=5)
        await cluster.me.create(CONFIGURATIONS, a_configuration("intercede", hook))
        try:
            yield said.append
        finally:
            await cluster.me.delete(CONFIGURATIONS, "intercede")


async def _answered(review: JsonObject, behave: Behaviour) -> JsonObject:
    request = review["request"]
    return {key: review[key] for key in ("apiVersion", "kind")} | {
        "response": {"uid": request["uid"]} | behave(request)
    }
