"""A real API server trusts the webhook's own certificate, and goes on when it is renewed."""

import asyncio
import base64
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from controlplane import ControlPlane
from haulout.api.resources import SECRETS
from haulout.core.clock import RealClock
from haulout.errors import ServerFailure
from haulout.kube.client import Client
from haulout.kube.patches import json_patch, merge_patch, replace
from haulout.webhook import registration
from haulout.webhook.ca_bundle_injection import CONFIGURATIONS
from haulout.webhook.component import Webhook
from haulout.webhook.settings import SelfSigned, WebhookSettings
from support.clusters.backends import a_real_backend
from support.expectations.eventually import eventually
from support.operators.webhook_cluster import WebhookCluster, install_nodemaintenance_crd
from support.servers.certificates import Authority

LOCAL = "127.0.0.1"
REFUSED = "no node with name absent found"


@dataclass
class OffsetClock(RealClock):
    """A clock with an offset."""

    offset: timedelta = timedelta()

    def now(self) -> datetime:
        """Return the time with the offset."""
        return super().now() + self.offset


@pytest.mark.real_time
async def test_certificate_is_rotated_without_failed_reviews(control_plane: ControlPlane, namespace: str) -> None:
    """It was issued 250 days ago: the next one is due, and is served an hour later."""
    clock = OffsetClock(timedelta(days=-250))
    name = f"{namespace}-webhook"
    settings = WebhookSettings(
        host=LOCAL, port=0, namespace=namespace, more_hosts=(LOCAL,), configuration=name, certificate=SelfSigned()
    )
    async with a_real_backend(control_plane, namespace=namespace) as cluster, AsyncExitStack() as cleanup:
        client = await cluster.client()
        await install_nodemaintenance_crd(cluster, client)
        hook = Webhook(await cluster.client(), settings, clock=clock)
        world = WebhookCluster(cluster, client, hook)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(hook.serve(client))
            port = await eventually(RealClock(), lambda: hook.port)
            body = registration.configuration(name=name, url=f"https://{LOCAL}:{port}")
            await client.create(CONFIGURATIONS, body)
            cleanup.push_async_callback(client.delete, CONFIGURATIONS, name)
            await eventually(RealClock(), lambda: _is_webhook_active(world))
            first_identity = hook.serving_certificate.identity

            clock.offset = timedelta()
            await _enqueue_secret(client, namespace)
            await eventually(RealClock(), lambda: _authorities(client, name), becomes=2)
            assert hook.serving_certificate.identity == first_identity

            review_task = group.create_task(_request_until_renewed(world, hook))
            clock.offset = timedelta(minutes=62)

            async def is_exchanged() -> bool:
                # The webhook may receive the write of its registration only now, at the new time.
                clock.offset += timedelta(minutes=2)
                await _enqueue_secret(client, namespace)
                return hook.serving_certificate.identity != first_identity

            await eventually(RealClock(), is_exchanged, every=timedelta(seconds=0.2))
            # More at once than there are connections: some are new, and get the new certificate.
            assert all(
                REFUSED in item for item in await asyncio.gather(*(world.denial_message("absent") for _ in range(20)))
            )
            await review_task

            other = replace("/webhooks/0/clientConfig/caBundle", base64.b64encode(Authority().pem).decode())
            await client.patch(CONFIGURATIONS, name, json_patch(other))
            await eventually(RealClock(), lambda: _authorities(client, name), becomes=2)
            running.cancel()


async def _is_webhook_active(webhook_cluster: WebhookCluster) -> bool:
    try:
        return REFUSED in await webhook_cluster.denial_message("absent", dry_run=True)
    except ServerFailure:  # it is asked, but not trusted yet
        return False


async def _request_until_renewed(webhook_cluster: WebhookCluster, hook: Webhook) -> None:
    """Send reviews until some time after the certificate has changed; all responses must be the same."""
    before = hook.serving_certificate.identity
    left = 20
    while left:
        assert REFUSED in await webhook_cluster.denial_message("absent", dry_run=True)
        left -= hook.serving_certificate.identity != before


async def _enqueue_secret(client: Client, namespace: str) -> None:
    """Have the Secret reconciled now, not at its next scheduled time."""
    label = merge_patch({"metadata": {"labels": {"touched": str(random.random())}}})
    await client.patch(SECRETS, registration.MANAGED_SECRET, label, namespace=namespace)


async def _authorities(client: Client, name: str) -> int:
    found: dict[str, Any] = await client.get(CONFIGURATIONS, name)
    return base64.b64decode(found["webhooks"][0]["clientConfig"].get("caBundle", "")).count(b"BEGIN")
