"""The webhook's certificate in a Secret: creation, sharing, trust, rotation and repair."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from haulout.api.resources import SECRETS
from haulout.core.clock import Clock
from haulout.httpserver.serving_certificate import ServingCertificate
from haulout.kube import rbac
from haulout.kube.client import Client
from haulout.kube.patches import json_patch, merge_patch, replace
from haulout.webhook import registration
from haulout.webhook.ca_bundle_injection import CONFIGURATIONS, WebhookReference, ca_bundle_patch
from haulout.webhook.certificate_secret import SecretReference, SelfManagedSecret, UserProvidedSecret
from haulout_sandbox.apiserver import ApiServer, User
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.clusters.backends import SandboxBackend
from support.expectations.eventually import eventually
from support.servers.certificates import Authority

HOSTS = registration.service_hosts()
SOON = timedelta(seconds=10)
SECRET = SecretReference(SandboxBackend.namespace, registration.MANAGED_SECRET)
REFERENCE = WebhookReference(registration.CONFIGURATION, registration.WEBHOOK)


@pytest.fixture
def cluster(clock: Clock) -> SandboxBackend:
    """Return a bare cluster."""
    return SandboxBackend(clock)


@pytest.fixture
async def client(cluster: SandboxBackend) -> Client:
    """Return an admin client in a cluster with a ValidatingWebhookConfiguration."""
    client = await cluster.client()
    other = registration.configuration()["webhooks"][0] | {"name": "other.example.com"}
    body = registration.configuration()
    await client.create(CONFIGURATIONS, body | {"webhooks": [other, *body["webhooks"]]})
    return client


def self_managed(client: Client, *, hosts: tuple[str, ...] = HOSTS) -> SelfManagedSecret:
    return SelfManagedSecret(
        client, SECRET, ServingCertificate(), hosts=hosts, registration=REFERENCE, clock=client.clock
    )


@asynccontextmanager
async def running(*sources: SelfManagedSecret | UserProvidedSecret) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(source.run()) for source in sources]
        yield
        for task in tasks:
            task.cancel()


async def injected_ca_bundle(client: Client, at: int = 1) -> bytes:
    configuration = await client.get(CONFIGURATIONS, registration.CONFIGURATION)
    return base64.b64decode(configuration["webhooks"][at]["clientConfig"].get("caBundle", ""))


async def is_trusted(client: Client, source: SelfManagedSecret | UserProvidedSecret) -> bool:
    """Return whether an API server would trust the served certificate."""
    served = source._serving_certificate.identity
    if served is None:
        return False
    certificate, now = x509.load_pem_x509_certificate(served.certificate), client.clock.now()
    for authority in x509.load_pem_x509_certificates(await injected_ca_bundle(client)):
        if authority.not_valid_before_utc <= now < authority.not_valid_after_utc and signs(authority, certificate):
            return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
    return False


def signs(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, InvalidSignature):
        return False
    return True


async def test_replicas_that_start_together_serve_one_trusted_certificate(
    cluster: SandboxBackend, client: Client
) -> None:
    replicas = [self_managed(await cluster.client()) for _ in range(3)]
    async with running(*replicas):
        await client.clock.sleep(SOON)
        assert len({replica._serving_certificate.identity for replica in replicas}) == 1
        assert await is_trusted(client, replicas[0])
        assert await injected_ca_bundle(client, 0) == b""  # the entry of another webhook


async def test_idle_certificate_controller_writes_nothing(client: Client) -> None:
    async with running(self_managed(client)):
        await client.clock.sleep(SOON)
        before = await versions(client)
        await client.clock.sleep(timedelta(days=1))
        assert await versions(client) == before


async def versions(client: Client) -> tuple[str, str]:
    secret = await client.get(SECRETS, SECRET.name, namespace=SECRET.namespace)
    configuration = await client.get(CONFIGURATIONS, registration.CONFIGURATION)
    return secret.resource_version, configuration["metadata"]["resourceVersion"]


async def test_certificates_of_replicas_are_always_trusted_over_a_year(cluster: SandboxBackend, client: Client) -> None:
    assert isinstance(client.clock, VirtualClock)
    replicas = [self_managed(await cluster.client()) for _ in range(2)]
    served = set()
    async with running(*replicas):
        await client.clock.sleep(SOON)
        for _ in range(2 * 365):
            client.clock.move_wall_clock(timedelta(hours=12))
            assert [await is_trusted(client, replica) for replica in replicas] == [True, True]
            await client.clock.sleep(timedelta(seconds=90))
            assert [await is_trusted(client, replica) for replica in replicas] == [True, True]
            served.add(replicas[0]._serving_certificate.identity)
    assert len(served) == 2


async def test_replicas_that_rotate_together_create_one_certificate(cluster: SandboxBackend, client: Client) -> None:
    assert isinstance(client.clock, VirtualClock)
    replicas = [self_managed(await cluster.client()) for _ in range(3)]
    async with running(*replicas):
        await client.clock.sleep(SOON)
        before = cluster.api_server.revision
        client.clock.move_wall_clock(timedelta(days=250))
        await client.clock.sleep(SOON)
        assert cluster.api_server.revision == before + 2  # the Secret, and the registration
        client.clock.move_wall_clock(timedelta(hours=2))
        await client.clock.sleep(SOON)
        assert cluster.api_server.revision == before + 4  # and both again when the next certificate is served
        assert len({replica._serving_certificate.identity for replica in replicas}) == 1


def test_ca_bundle_patch_changes_only_our_webhook_and_tests_the_old_value() -> None:
    own_entry = registration.configuration()["webhooks"][0]
    injected_entry = own_entry | {"clientConfig": {"url": "https://a.example", "caBundle": "c2Vlbg=="}}
    patch = ca_bundle_patch(
        {"webhooks": [{"name": "other.example.com"}, injected_entry]}, webhook=registration.WEBHOOK, ca_bundle=b"new"
    )
    assert patch is not None
    assert msgspec.json.decode(patch.body) == [
        {"op": "test", "path": "/webhooks/1/name", "value": registration.WEBHOOK},
        {"op": "test", "path": "/webhooks/1/clientConfig/caBundle", "value": "c2Vlbg=="},
        {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "bmV3"},
    ]
    assert ca_bundle_patch({"webhooks": [injected_entry]}, webhook=registration.WEBHOOK, ca_bundle=b"seen") is None


async def test_deleted_or_malformed_secret_is_restored(client: Client) -> None:
    source = self_managed(client)
    async with running(source):
        await client.clock.sleep(SOON)
        served = source._serving_certificate.identity
        before = (await client.get(SECRETS, SECRET.name, namespace=SECRET.namespace)).data
        await client.delete(SECRETS, SECRET.name, namespace=SECRET.namespace)
        await client.clock.sleep(SOON)
        assert (await client.get(SECRETS, SECRET.name, namespace=SECRET.namespace)).data == before
        broken = merge_patch({"data": {"tls.key": base64.b64encode(b"odd").decode()}})
        await client.patch(SECRETS, SECRET.name, broken, namespace=SECRET.namespace)
        await client.clock.sleep(SOON)
        assert (await client.get(SECRETS, SECRET.name, namespace=SECRET.namespace)).data == before
        assert source._serving_certificate.identity == served


async def test_unmanaged_secret_is_not_changed_and_is_reported(client: Client) -> None:
    body = {"metadata": {"name": SECRET.name}, "data": {"tls.crt": ""}}
    other_secret = await client.create(SECRETS, body, namespace=SECRET.namespace)
    source = self_managed(client)
    async with running(source):
        await client.clock.sleep(timedelta(minutes=10))
        assert source.problem is not None
        assert "exists and is not managed by Haulout" in source.problem
    stored = await client.get(SECRETS, SECRET.name, namespace=SECRET.namespace)
    assert stored.resource_version == other_secret.resource_version


async def test_other_service_host_gets_another_certificate_at_once(client: Client) -> None:
    first, second = self_managed(client), self_managed(client, hosts=("other.test.svc",))
    async with running(first):
        await client.clock.sleep(SOON)
    async with running(second):
        await client.clock.sleep(SOON)
        assert second._serving_certificate.identity != first._serving_certificate.identity
        assert await is_trusted(client, second)
        assert await is_trusted(client, first)  # a replica from before the change


async def test_overwritten_ca_bundle_is_restored_with_backoff_on_conflict(client: Client) -> None:
    source = self_managed(client)
    other = replace("/webhooks/1/clientConfig/caBundle", base64.b64encode(Authority().pem).decode())
    async with running(source):
        await client.clock.sleep(SOON)
        await client.patch(CONFIGURATIONS, registration.CONFIGURATION, json_patch(other))
        await client.clock.sleep(SOON)
        assert await is_trusted(client, source)
        before = int((await versions(client))[1])
        for _ in range(600):
            await client.patch(CONFIGURATIONS, registration.CONFIGURATION, json_patch(other))
            await client.clock.sleep(timedelta(seconds=1))
        own_entry = int((await versions(client))[1]) - before - 600
        assert own_entry < 20
        assert source.trust_problem is not None
        assert "another client keeps changing the caBundle" in source.trust_problem
        await client.clock.sleep(timedelta(minutes=6))
        assert await is_trusted(client, source)


async def test_ca_bundle_is_injected_into_a_late_webhook_configuration(client: Client) -> None:
    await client.delete(CONFIGURATIONS, registration.CONFIGURATION)
    source = self_managed(client)
    async with running(source):
        await client.clock.sleep(SOON)
        assert "does not exist: NodeMaintenances are not validated" in (source.trust_problem or "")
        await client.create(CONFIGURATIONS, registration.configuration())
        await client.clock.sleep(SOON)
        assert not source.trust_problem
        assert await injected_ca_bundle(client, 0) != b""


async def test_configuration_managed_by_cert_manager_is_not_changed(client: Client) -> None:
    annotations = {"annotations": {"cert-manager.io/inject-ca-from": "a/b"}}
    await client.patch(CONFIGURATIONS, registration.CONFIGURATION, merge_patch({"metadata": annotations}))
    source = self_managed(client)
    async with running(source):
        await client.clock.sleep(SOON)
        assert source.trust_problem is not None
        assert "has the annotation cert-manager.io/inject-ca-from" in source.trust_problem
        assert await injected_ca_bundle(client) == b""


# A user-provided Secret


def a_secret(authority: Authority, **more: Any) -> dict[str, Any]:
    issued = authority.issue("webhook.test.svc")
    data = {"tls.crt": issued.cert_pem, "tls.key": issued.key_pem, "ca.crt": authority.pem}
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {"metadata": {"name": SECRET.name}, "data": encoded | more}


async def test_user_provided_secret_is_served_trusted_and_watched(client: Client) -> None:
    source = UserProvidedSecret(client, SECRET, ServingCertificate(), registration=REFERENCE, clock=client.clock)
    async with running(source):
        await client.clock.sleep(SOON)
        assert source.problem == (
            f"Secret test/{SECRET.name} does not exist; create it with tls.crt and tls.key, or configure another"
        )
        await client.create(SECRETS, a_secret(Authority("one")), namespace=SECRET.namespace)
        await eventually(client.clock, lambda: source.problem is None)
        served = source._serving_certificate.identity
        two = Authority("two")
        change = merge_patch({"data": a_secret(two)["data"]})
        await client.patch(SECRETS, SECRET.name, change, namespace=SECRET.namespace)
        await eventually(client.clock, lambda: source._serving_certificate.identity != served)
        await eventually(client.clock, lambda: injected_ca_bundle(client), becomes=two.pem)
        served = source._serving_certificate.identity
        await client.patch(SECRETS, SECRET.name, merge_patch({"data": {"tls.key": ""}}), namespace=SECRET.namespace)
        await eventually(client.clock, lambda: source.problem)
        assert source._serving_certificate.identity == served


# Permissions


async def test_shipped_rbac_rules_are_sufficient(clock: Clock, rng: Random) -> None:
    api = ApiServer(clock, rbac=True, namespaces=[SECRET.namespace])
    api.put(registration.configuration())
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "webhook"}
    for obj in rbac.roles("webhook", registration.permissions(namespace=SECRET.namespace, secret=SECRET.name), subject):
        api.put(obj)
    client = Client(api.transport(user=User("webhook", ("system:authenticated",))), clock=clock, random=rng)
    source = self_managed(client)
    async with running(source):
        await clock.sleep(SOON)
        assert (source.problem, source.trust_problem) == (None, None)
        assert source._reconciler._cache.health().problem is None
        assert source._injector._reconciler._cache.health().problem is None
    assert "caBundle" in api.get(CONFIGURATIONS.plural, registration.CONFIGURATION)["webhooks"][0]["clientConfig"]
