"""Metrics over HTTPS: only authorized callers are answered, and access reviews are cached."""

import ssl
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from random import Random

import aiohttp
import pytest

from haulout.core.clock import Clock, RealClock
from haulout.core.key_pair import KeyPair
from haulout.httpserver.delegated_auth import DelegatedAuth
from haulout.httpserver.secure_metrics import PATH, SecureMetricsServer
from haulout.httpserver.serving_certificate import ServingCertificate
from haulout.kube.client import Client
from haulout_sandbox.apiserver import ApiServer, User
from support.servers.certificates import Authority

LOCAL = "127.0.0.1"
ADMIN, UNPRIVILEGED = User("admin", ("system:masters",)), User("nobody")


def an_api(clock: Clock) -> ApiServer:
    api = ApiServer(clock, rbac=True)
    api.add_token("secret", ADMIN)
    api.add_token("poor", UNPRIVILEGED)
    return api


def auth_of(api: ApiServer, clock: Clock) -> tuple[DelegatedAuth, Callable[[], list[str]]]:
    """Return the authorizer, and a function that returns the reviews since its last call."""
    transport = api.transport()

    def reviews() -> list[str]:
        resources = [request.request.path.rpartition("/")[2] for request in transport.requests]
        transport.requests.clear()
        return resources

    return DelegatedAuth(Client(transport, clock=clock, random=Random(1))), reviews


async def test_allowed_reviews_are_cached_longer_than_denied_ones(clock: Clock) -> None:
    auth, reviews = auth_of(an_api(clock), clock)
    for _ in range(3):
        assert (await auth.authorize_get(PATH, authorization="Bearer secret")).is_allowed
        assert (await auth.authorize_get(PATH, authorization="Bearer poor")).status is HTTPStatus.FORBIDDEN
        assert (await auth.authorize_get(PATH, authorization="Bearer wrong")).status is HTTPStatus.UNAUTHORIZED
    both = ["tokenreviews", "subjectaccessreviews"]
    assert reviews() == [*both, *both, "tokenreviews"]
    await clock.sleep(timedelta(seconds=11))
    assert (await auth.authorize_get(PATH, authorization="Bearer secret")).is_allowed
    assert reviews() == []
    assert (await auth.authorize_get(PATH, authorization="Bearer poor")).status is HTTPStatus.FORBIDDEN
    assert reviews() == ["subjectaccessreviews"]
    await clock.sleep(timedelta(seconds=50))
    assert (await auth.authorize_get(PATH, authorization="Bearer secret")).is_allowed
    assert reviews() == both


async def test_revoked_permission_is_denied_after_the_cache_expires(clock: Clock) -> None:
    api = an_api(clock)
    auth, _ = auth_of(api, clock)
    assert (await auth.authorize_get(PATH, authorization="Bearer secret")).is_allowed
    api.add_token("secret", UNPRIVILEGED)
    await clock.sleep(timedelta(seconds=61))
    assert (await auth.authorize_get(PATH, authorization="Bearer secret")).status is HTTPStatus.FORBIDDEN


async def test_number_of_cached_tokens_is_bounded(clock: Clock) -> None:
    auth, reviews = auth_of(an_api(clock), clock)
    for number in range(1_001):
        await auth.authorize_get(PATH, authorization=f"Bearer {number}")
    reviews()
    for number in range(1_000, -1, -1):  # the most recent ones first, because each miss adds an entry
        await auth.authorize_get(PATH, authorization=f"Bearer {number}")
    assert reviews() == ["tokenreviews"]


@pytest.mark.real_time
async def test_secure_metrics_are_served_with_the_current_certificate() -> None:
    clock, authority, serving_certificate = RealClock(), Authority(), ServingCertificate()
    issued = authority.issue(LOCAL)
    serving_certificate.update(KeyPair(issued.cert_pem, issued.key_pem))
    auth, _ = auth_of(an_api(clock), clock)
    server = SecureMetricsServer(auth, metrics=lambda: b"numbers 1\n")
    trusted = ssl.create_default_context(cadata=authority.pem.decode())
    async with (
        server.serve(serving_certificate, host=LOCAL, port=0) as port,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted)) as session,
    ):

        async def get(path: str, authorization: str) -> tuple[int, str, str]:
            url = f"https://{LOCAL}:{port}{path}"
            async with session.get(url, headers={"Authorization": authorization}) as response:
                return response.status, response.headers.get("WWW-Authenticate", ""), await response.text()

        assert await get(PATH, "Bearer secret") == (200, "", "numbers 1\n")
        assert await get(PATH, "Bearer poor") == (403, "", "nobody cannot get /metrics\n")
        assert await get(PATH, "Bearer wrong") == (401, "Bearer", "the API server does not accept this token\n")
        assert (await get("/other", "Bearer secret"))[0] == 404
