"""The webhook over HTTPS, and its health checks."""

import asyncio
import base64
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import msgspec
import pytest

from haulout.core.clock import RealClock
from haulout.core.key_pair import KeyPair
from haulout.errors import UsageError
from haulout.httpserver import healthz, serving_certificate
from haulout.kube.client import Client
from haulout.webhook import component, registration
from haulout.webhook.ca_bundle_injection import CONFIGURATIONS
from haulout.webhook.component import Webhook
from haulout.webhook.settings import (
    Automatic,
    CertificateFolder,
    SelfSigned,
    UserSecret,
    WebhookSettings,
    parse_certificate_source,
)
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.apiserver.admission.webhook_client import HttpsWebhookClient
from support.builders.objects import a_node
from support.clusters.backends import SandboxBackend
from support.expectations.eventually import eventually
from support.operators.webhook_cluster import WebhookCluster, a_nodemaintenance, install_nodemaintenance_crd
from support.servers.certificates import Authority

pytestmark = pytest.mark.real_time

LOCAL = "127.0.0.1"


@asynccontextmanager
async def running(client: Client, **settings: Any) -> AsyncIterator[Webhook]:
    usual: dict[str, Any] = {"host": LOCAL, "port": 0, "namespace": SandboxBackend.namespace, "more_hosts": (LOCAL,)}
    hook = Webhook(client, WebhookSettings(**usual | settings))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(hook.serve(client))
        await eventually(client.clock, lambda: hook.port)
        yield hook
        task.cancel()


def a_client(folder: Path) -> tuple[Client, Authority]:
    """Return a client of a cluster with a node, and the authority whose certificate is in the folder."""
    api, authority = ApiServer(RealClock()), Authority()
    api.put(a_node("n1"))
    issue(authority, folder)
    return Client(api.transport(), clock=RealClock(), random=Random(1)), authority


def issue(authority: Authority, folder: Path) -> KeyPair:
    issued = authority.issue(LOCAL, "localhost")
    (folder / "tls.crt").write_bytes(issued.cert_pem)
    (folder / "tls.key").write_bytes(issued.key_pem)
    return KeyPair(issued.cert_pem, issued.key_pem)


def trusting(authority: Authority) -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=authority.pem.decode()), force_close=True)


async def post(session: aiohttp.ClientSession, hook: Webhook, body: bytes, **more: Any) -> tuple[int, str]:
    url = f"https://{more.pop('host', LOCAL)}:{hook.port}{more.pop('path', registration.PATH)}?timeout=5s"
    headers = more.pop("headers", {"content-type": "application/json"})
    async with session.post(url, data=BytesIO(body), headers=headers, **more) as response:
        return response.status, await response.text()


def a_review(obj: Any) -> bytes:
    request = {"uid": "u-1", "operation": "CREATE", "object": obj}
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


async def test_webhook_answers_reviews_and_rejects_malformed_requests(tmp_path: Path) -> None:
    client, authority = a_client(tmp_path)
    async with (
        running(client, certificate=CertificateFolder(tmp_path)) as hook,
        aiohttp.ClientSession(connector=trusting(authority)) as session,
    ):
        code, body = await post(session, hook, a_review(a_nodemaintenance("m", "absent")))
        response = msgspec.json.decode(body)["response"]
        assert (code, response["uid"], response["allowed"], response["status"]["code"]) == (200, "u-1", False, 403)
        assert response["status"]["message"] == "invalid nodeName, no node with name absent found"
        assert (await post(session, hook, b"{"))[0] == 400
        assert (await post(session, hook, b"[" * 50_000))[0] == 400
        assert (await post(session, hook, b" " * (9 << 20)))[0] == 413
        assert (await post(session, hook, b"{}", headers={"content-type": "text/html"}))[0] == 415
        assert (await post(session, hook, b"{}", path="/other"))[0] == 404
        async with session.get(f"https://{LOCAL}:{hook.port}{registration.PATH}") as review_response:
            assert review_response.status == 405
        assert (await post(session, hook, a_review(a_nodemaintenance("m", "absent"))))[0] == 200


async def test_updated_certificate_is_served_to_new_connections_and_old_ones_stay_open(tmp_path: Path) -> None:
    client, first = a_client(tmp_path)
    second = Authority("second")
    old_session = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=first.pem.decode()))
    async with (
        running(client, certificate=CertificateFolder(tmp_path)) as hook,
        aiohttp.ClientSession(connector=old_session) as old,
        aiohttp.ClientSession(connector=trusting(second)) as new,
    ):
        assert (await post(old, hook, a_review({})))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await post(new, hook, a_review({}))
        hook.serving_certificate.update(issue(second, tmp_path))
        assert (await post(old, hook, a_review({})))[0] == 200
        assert (await post(new, hook, a_review({})))[0] == 200
        assert (await post(new, hook, a_review({}), host="localhost"))[0] == 200


async def test_api_server_trusts_the_self_signed_webhook_by_url() -> None:
    """The sandbox's API server, over HTTPS, with a certificate that the webhook made by itself."""
    clock = RealClock()
    cluster = SandboxBackend(clock)
    cluster.api_server = ApiServer(clock, namespaces=[cluster.namespace], network=HttpsWebhookClient())
    client = await cluster.client()
    await install_nodemaintenance_crd(cluster, client)
    async with running(await cluster.client(), certificate=SelfSigned()) as hook:
        world = WebhookCluster(cluster, client, hook)
        body = registration.configuration(url=f"https://{LOCAL}:{hook.port}")
        await client.create(CONFIGURATIONS, body)
        await eventually(clock, lambda: injected_ca_bundle(cluster.api_server))
        assert "no node with name absent found" in await world.denial_message("absent")
        assert (list(hook.unready()), list(hook.problems())) == ([], [])


def injected_ca_bundle(api: ApiServer) -> bytes:
    configuration = api.get(CONFIGURATIONS.plural, registration.CONFIGURATION)
    return base64.b64decode(configuration["webhooks"][0]["clientConfig"].get("caBundle", ""))


async def test_webhook_without_a_certificate_does_not_listen_and_reports_why(tmp_path: Path) -> None:
    client, _ = a_client(tmp_path)
    hook = Webhook(client, WebhookSettings(host=LOCAL, port=0, certificate=CertificateFolder(tmp_path / "absent")))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(hook.serve(client))
        await eventually(client.clock, lambda: list(hook.problems()))
        (reason,) = hook.unready()
        assert reason.startswith("the webhook does not listen: no certificate in ")
        task.cancel()


async def test_port_in_use_is_a_usage_error(tmp_path: Path) -> None:
    client, _ = a_client(tmp_path)
    async with running(client, certificate=CertificateFolder(tmp_path)) as first:
        second = Webhook(
            client, WebhookSettings(host=LOCAL, port=first.port or 0, certificate=CertificateFolder(tmp_path))
        )
        with pytest.raises(ExceptionGroup) as caught:
            await second.serve(client)
    (error,) = caught.value.exceptions
    assert isinstance(error, UsageError)
    assert str(error).startswith(f"cannot listen on port {second._settings.port} for the webhook: ")


async def test_readiness_reports_its_reasons() -> None:
    reasons: list[str] = []
    async with healthz.serve(lambda: reasons, host=LOCAL, port=0) as port, aiohttp.ClientSession() as session:

        async def fetch(path: str) -> tuple[int, str]:
            async with session.get(f"http://{LOCAL}:{port}{path}") as response:
                return response.status, await response.text()

        assert await fetch("/readyz") == (200, "ok\n")
        reasons += ["the cache of nodes is not complete", "no leader"]
        assert await fetch("/readyz") == (503, "the cache of nodes is not complete\nno leader\n")
        assert await fetch("/healthz") == (200, "ok\n")
        assert (await fetch("/other"))[0] == 404


# Certificate sources


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("auto", Automatic()),
        ("self", SelfSigned()),
        ("folder:/etc/tls", CertificateFolder(Path("/etc/tls"))),
        ("secret:mine", UserSecret("mine")),
    ],
)
def test_certificate_source_option_is_parsed(text: str, meant: object) -> None:
    assert parse_certificate_source(text) == meant


@pytest.mark.parametrize("text", ["", "auto:x", "folder", "folder:", "secret:", "odd"])
def test_invalid_certificate_source_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="expected auto, self, folder:PATH or secret:NAME"):
        parse_certificate_source(text)


def test_automatic_source_prefers_olm_then_the_default_folder_then_self_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    olm, default = (
        serving_certificate.CertificateFiles(tmp_path / "a.crt", tmp_path / "a.key"),
        serving_certificate.CertificateFiles.in_folder(tmp_path),
    )
    monkeypatch.setattr(component, "OLM", olm)
    monkeypatch.setattr(component, "DEFAULT_FOLDER", tmp_path)
    assert component._resolve_source(Automatic()) == SelfSigned()
    assert "OLM injected certs for webhooks not found" in caplog.text
    default.certificate.touch()
    assert component._resolve_source(Automatic()) == SelfSigned()
    default.key.touch()
    assert component._resolve_source(Automatic()) == default
    olm.certificate.touch()
    olm.key.touch()
    assert component._resolve_source(Automatic()) == olm
