"""The webhook's certificate in a Secret: made, shared, trusted, renewed, and mended."""

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

from haulout.core.clock import Clock
from haulout.kube import access
from haulout.kube.client import Client
from haulout.kube.patches import json_patch, merge_patch, replace
from haulout.kube.resources import SECRETS
from haulout.web import registration
from haulout.web.injection import CONFIGURATIONS, Registration, injection
from haulout.web.presented import Presented
from haulout.web.secrets import GivenSecret, OwnSecret, Place
from haulout_sandbox.apiserver import ApiServer, User
from haulout_sandbox.event_loops.virtual import VirtualClock
from support.backends import Sandbox
from support.certificates import Authority
from support.eventually import eventually

HOSTS = registration.service_hosts()
SOON = timedelta(seconds=10)
PLACE = Place(Sandbox.namespace, registration.OWN_SECRET)
KNOWN_AS = Registration(registration.CONFIGURATION, registration.WEBHOOK)


@pytest.fixture
def cluster(clock: Clock) -> Sandbox:
    """Return a bare cluster."""
    return Sandbox(clock)


@pytest.fixture
async def client(cluster: Sandbox) -> Client:
    """Return a client of somebody who may do everything, in a cluster where the webhook is registered."""
    client = await cluster.client()
    other = registration.configuration()["webhooks"][0] | {"name": "other.example.com"}
    body = registration.configuration()
    await client.create(CONFIGURATIONS, body | {"webhooks": [other, *body["webhooks"]]})
    return client


def own(client: Client, *, hosts: tuple[str, ...] = HOSTS) -> OwnSecret:
    return OwnSecret(client, PLACE, Presented(), hosts=hosts, registration=KNOWN_AS, clock=client.clock)


@asynccontextmanager
async def running(*sources: OwnSecret | GivenSecret) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(source.run()) for source in sources]
        yield
        for task in tasks:
            task.cancel()


async def bundle(client: Client, at: int = 1) -> bytes:
    found = await client.get(CONFIGURATIONS, registration.CONFIGURATION)
    return base64.b64decode(found["webhooks"][at]["clientConfig"].get("caBundle", ""))


async def is_trusted(client: Client, source: OwnSecret | GivenSecret) -> bool:
    """Tell whether an API server would believe what is shown now."""
    shown = source._presented.identity
    if shown is None:
        return False
    certificate, now = x509.load_pem_x509_certificate(shown.certificate), client.clock.now()
    for authority in x509.load_pem_x509_certificates(await bundle(client)):
        if authority.not_valid_before_utc <= now < authority.not_valid_after_utc and signs(authority, certificate):
            return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
    return False


def signs(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, InvalidSignature):
        return False
    return True


async def test_replicas_that_start_at_once_show_the_same_and_are_trusted(cluster: Sandbox, client: Client) -> None:
    replicas = [own(await cluster.client()) for _ in range(3)]
    async with running(*replicas):
        await client.clock.sleep(SOON)
        assert len({it._presented.identity for it in replicas}) == 1
        assert await is_trusted(client, replicas[0])
        assert await bundle(client, 0) == b""  # somebody else's entry


async def test_nothing_is_written_while_nothing_changes(client: Client) -> None:
    async with running(own(client)):
        await client.clock.sleep(SOON)
        before = await versions(client)
        await client.clock.sleep(timedelta(days=1))
        assert await versions(client) == before


async def versions(client: Client) -> tuple[str, str]:
    secret = await client.get(SECRETS, PLACE.name, namespace=PLACE.namespace)
    configuration = await client.get(CONFIGURATIONS, registration.CONFIGURATION)
    return secret.resource_version, configuration["metadata"]["resourceVersion"]


async def test_over_a_year_each_replica_is_trusted_at_every_moment(cluster: Sandbox, client: Client) -> None:
    assert isinstance(client.clock, VirtualClock)
    replicas = [own(await cluster.client()) for _ in range(2)]
    seen = set()
    async with running(*replicas):
        await client.clock.sleep(SOON)
        for _ in range(2 * 365):
            client.clock.set_wall(timedelta(hours=12))
            assert [await is_trusted(client, it) for it in replicas] == [True, True]
            await client.clock.sleep(timedelta(seconds=90))
            assert [await is_trusted(client, it) for it in replicas] == [True, True]
            seen.add(replicas[0]._presented.identity)
    assert len(seen) == 2


async def test_replicas_that_renew_at_once_make_one_certificate(cluster: Sandbox, client: Client) -> None:
    assert isinstance(client.clock, VirtualClock)
    replicas = [own(await cluster.client()) for _ in range(3)]
    async with running(*replicas):
        await client.clock.sleep(SOON)
        before = cluster.cluster.revision
        client.clock.set_wall(timedelta(days=250))
        await client.clock.sleep(SOON)
        assert cluster.cluster.revision == before + 2  # the Secret, and the registration
        client.clock.set_wall(timedelta(hours=2))
        await client.clock.sleep(SOON)
        assert cluster.cluster.revision == before + 4  # and both again when the next one is shown
        assert len({it._presented.identity for it in replicas}) == 1


def test_a_bundle_is_written_only_into_our_entry_and_only_over_what_was_seen() -> None:
    ours = registration.configuration()["webhooks"][0]
    seen = ours | {"clientConfig": {"url": "https://a.example", "caBundle": "c2Vlbg=="}}
    patch = injection(
        {"webhooks": [{"name": "other.example.com"}, seen]}, webhook=registration.WEBHOOK, authorities=b"new"
    )
    assert patch is not None
    assert msgspec.json.decode(patch.body) == [
        {"op": "test", "path": "/webhooks/1/name", "value": registration.WEBHOOK},
        {"op": "test", "path": "/webhooks/1/clientConfig/caBundle", "value": "c2Vlbg=="},
        {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "bmV3"},
    ]
    assert injection({"webhooks": [seen]}, webhook=registration.WEBHOOK, authorities=b"seen") is None


async def test_a_secret_that_was_deleted_or_broken_is_written_again_as_it_was(client: Client) -> None:
    source = own(client)
    async with running(source):
        await client.clock.sleep(SOON)
        shown = source._presented.identity
        before = (await client.get(SECRETS, PLACE.name, namespace=PLACE.namespace)).data
        await client.delete(SECRETS, PLACE.name, namespace=PLACE.namespace)
        await client.clock.sleep(SOON)
        assert (await client.get(SECRETS, PLACE.name, namespace=PLACE.namespace)).data == before
        broken = merge_patch({"data": {"tls.key": base64.b64encode(b"odd").decode()}})
        await client.patch(SECRETS, PLACE.name, broken, namespace=PLACE.namespace)
        await client.clock.sleep(SOON)
        assert (await client.get(SECRETS, PLACE.name, namespace=PLACE.namespace)).data == before
        assert source._presented.identity == shown


async def test_a_secret_that_is_not_ours_is_left_alone_and_told(client: Client) -> None:
    body = {"metadata": {"name": PLACE.name}, "data": {"tls.crt": ""}}
    theirs = await client.create(SECRETS, body, namespace=PLACE.namespace)
    source = own(client)
    async with running(source):
        await client.clock.sleep(timedelta(minutes=10))
        assert source.problem is not None
        assert "is there and not ours" in source.problem
    kept = await client.get(SECRETS, PLACE.name, namespace=PLACE.namespace)
    assert kept.resource_version == theirs.resource_version


async def test_another_service_gets_another_certificate_at_once(client: Client) -> None:
    first, second = own(client), own(client, hosts=("other.test.svc",))
    async with running(first):
        await client.clock.sleep(SOON)
    async with running(second):
        await client.clock.sleep(SOON)
        assert second._presented.identity != first._presented.identity
        assert await is_trusted(client, second)
        assert await is_trusted(client, first)  # a replica of before the change


async def test_a_bundle_that_somebody_overwrites_is_restored_and_a_quarrel_slows_down(client: Client) -> None:
    source = own(client)
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
        ours = int((await versions(client))[1]) - before - 600
        assert ours < 20
        assert source.trouble is not None
        assert "somebody keeps changing the caBundle" in source.trouble
        await client.clock.sleep(timedelta(minutes=6))
        assert await is_trusted(client, source)


async def test_a_registration_that_comes_later_is_told_whom_to_trust(client: Client) -> None:
    await client.delete(CONFIGURATIONS, registration.CONFIGURATION)
    source = own(client)
    async with running(source):
        await client.clock.sleep(SOON)
        assert "is not there, so that nothing is checked" in (source.trouble or "")
        await client.create(CONFIGURATIONS, registration.configuration())
        await client.clock.sleep(SOON)
        assert not source.trouble
        assert await bundle(client, 0) != b""


async def test_a_registration_that_somebody_else_is_told_to_write_to_is_left_alone(client: Client) -> None:
    annotations = {"annotations": {"cert-manager.io/inject-ca-from": "a/b"}}
    await client.patch(CONFIGURATIONS, registration.CONFIGURATION, merge_patch({"metadata": annotations}))
    source = own(client)
    async with running(source):
        await client.clock.sleep(SOON)
        assert source.trouble is not None
        assert "has the annotation cert-manager.io/inject-ca-from" in source.trouble
        assert await bundle(client) == b""


# A Secret that somebody gives us


def a_secret(authority: Authority, **more: Any) -> dict[str, Any]:
    issued = authority.issue("webhook.test.svc")
    data = {"tls.crt": issued.cert_pem, "tls.key": issued.key_pem, "ca.crt": authority.pem}
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {"metadata": {"name": PLACE.name}, "data": encoded | more}


async def test_a_given_secret_is_shown_trusted_and_followed(client: Client) -> None:
    source = GivenSecret(client, PLACE, Presented(), registration=KNOWN_AS, clock=client.clock)
    async with running(source):
        await client.clock.sleep(SOON)
        assert source.problem == (
            f"Secret test/{PLACE.name} is not there; create it with tls.crt and tls.key, or name another"
        )
        await client.create(SECRETS, a_secret(Authority("one")), namespace=PLACE.namespace)
        await eventually(client.clock, lambda: source.problem is None)
        shown = source._presented.identity
        two = Authority("two")
        change = merge_patch({"data": a_secret(two)["data"]})
        await client.patch(SECRETS, PLACE.name, change, namespace=PLACE.namespace)
        await eventually(client.clock, lambda: source._presented.identity != shown)
        await eventually(client.clock, lambda: bundle(client), becomes=two.pem)
        shown = source._presented.identity
        await client.patch(SECRETS, PLACE.name, merge_patch({"data": {"tls.key": ""}}), namespace=PLACE.namespace)
        await eventually(client.clock, lambda: source.problem)
        assert source._presented.identity == shown


# What it must be allowed to do


async def test_the_rules_that_we_ship_are_enough(clock: Clock, rng: Random) -> None:
    api = ApiServer(clock, rbac=True, namespaces=[PLACE.namespace])
    api.put(registration.configuration())
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "webhook"}
    for obj in access.roles("webhook", registration.permissions(namespace=PLACE.namespace, secret=PLACE.name), subject):
        api.put(obj)
    client = Client(api.transport(user=User("webhook", ("system:authenticated",))), clock=clock, random=rng)
    source = own(client)
    async with running(source):
        await clock.sleep(SOON)
        assert (source.problem, source.trouble) == (None, None)
        assert source._following._cache.health().problem is None
        assert source._injector._following._cache.health().problem is None
    assert "caBundle" in api.get(CONFIGURATIONS.plural, registration.CONFIGURATION)["webhooks"][0]["clientConfig"]
