"""Client certificates of callers of the webhook, over HTTPS."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import msgspec
import pytest

from haulout.core.clock import RealClock
from haulout.kube.client import Client
from haulout.webhook import registration
from haulout.webhook.component import Webhook
from haulout.webhook.settings import CertificateFolder, ClientAuth, WebhookSettings
from haulout_sandbox.apiserver import ApiServer
from support.builders.objects import a_namespace, a_node
from support.clusters.backends import SandboxBackend
from support.expectations.eventually import eventually
from support.operators.webhook_cluster import a_nodemaintenance
from support.servers.certificates import Authority

pytestmark = pytest.mark.real_time

LOCAL = "127.0.0.1"
PROXY = "front-proxy-client"


def a_config_map(*, clients: Authority | None, proxies: Authority | None, names: Any = (PROXY,)) -> dict[str, Any]:
    data = {"requestheader-allowed-names": names if isinstance(names, str) else json.dumps(names)}
    data |= {} if clients is None else {"client-ca-file": clients.pem.decode()}
    data |= {} if proxies is None else {"requestheader-client-ca-file": proxies.pem.decode()}
    metadata = {"name": registration.AUTHENTICATION_CONFIG_MAP, "namespace": registration.AUTHENTICATION_NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@dataclass
class WebhookUnderTest:
    """A webhook and its callers."""

    api: ApiServer
    hook: Webhook
    servers: Authority
    folder: Path

    async def call(self, authority: Authority | None = None, name: str = PROXY) -> int | None:
        """Call it, with a certificate of this authority; return the status, None if the connection is refused."""
        context = ssl.create_default_context(cadata=self.servers.pem.decode())
        if authority is not None:
            issued = authority.issue(name)
            file = self.folder / "client.pem"
            file.write_bytes(issued.key_pem + issued.cert_pem)
            context.load_cert_chain(file)
        request = {"uid": "u-1", "operation": "CREATE", "object": a_nodemaintenance("m", "absent")}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        url = f"https://{LOCAL}:{self.hook.port}{registration.PATH}"
        headers = {"content-type": "application/json"}
        connector = aiohttp.TCPConnector(ssl=context, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            try:
                async with session.post(url, data=msgspec.json.encode(review), headers=headers) as response:
                    return response.status
            except (aiohttp.ClientError, OSError):
                return None

    async def is_authenticated(self, authority: Authority | None = None, name: str = PROXY) -> bool:
        """Return whether a caller is authenticated as the API server."""
        recorded: list[bool] = []
        review = self.hook.validator.review

        async def recording_review(*args: Any, **more: Any) -> Any:
            recorded.append(more["authenticated"])
            return await review(*args, **more)

        self.hook.validator.review = recording_review  # type: ignore[method-assign]
        assert await self.call(authority, name) == 200
        self.hook.validator.review = review  # type: ignore[method-assign]
        return recorded == [True]


@asynccontextmanager
async def serve(folder: Path, *config_map: dict[str, Any], **settings: Any) -> AsyncIterator[WebhookUnderTest]:
    clock = RealClock()
    api, servers = ApiServer(clock), Authority("servers")
    for obj in (a_namespace(registration.AUTHENTICATION_NAMESPACE), a_node("n1"), *config_map):
        api.put(obj)
    issued = servers.issue(LOCAL)
    (folder / "tls.crt").write_bytes(issued.cert_pem)
    (folder / "tls.key").write_bytes(issued.key_pem)
    client = Client(api.transport(), clock=clock, random=Random(1))
    usual: dict[str, Any] = {
        "host": LOCAL,
        "port": 0,
        "namespace": SandboxBackend.namespace,
        "certificate": CertificateFolder(folder),
    }
    hook = Webhook(client, WebhookSettings(**usual | settings))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(hook.serve(client))
        await eventually(clock, lambda: hook.port)
        yield WebhookUnderTest(api, hook, servers, folder)
        task.cancel()


async def test_front_proxy_certificate_authenticates_the_api_server(tmp_path: Path) -> None:
    proxies, clients = Authority("proxies"), Authority("clients")
    async with serve(tmp_path, a_config_map(clients=clients, proxies=proxies)) as site:
        await eventually(site.hook.validator._client.clock, lambda: site.hook.clients._trust.authorities)
        assert await site.is_authenticated(proxies)
        assert not await site.is_authenticated()
        assert not await site.is_authenticated(clients, "system:node:n1")
        assert not await site.is_authenticated(proxies, "somebody-else")


async def test_certificate_with_several_common_names_is_rejected(tmp_path: Path) -> None:
    """Servers differ in which common name they use."""
    config_map = a_config_map(clients=None, proxies=Authority("proxies"), names=("a", "b"))
    async with serve(tmp_path, config_map) as site:
        await eventually(site.hook.validator._client.clock, lambda: site.hook.clients._trust.authorities)
        one, another = ((("commonName", item),) for item in ("a", "b"))
        assert site.hook.clients.is_api_server({"subject": (one,)})
        assert not site.hook.clients.is_api_server({"subject": (one, another)})
        assert not site.hook.clients.is_api_server({"subject": ()})


async def test_client_names_are_configurable_for_the_client_ca(tmp_path: Path) -> None:
    clients = Authority("clients")
    config_map = a_config_map(clients=clients, proxies=None, names=())
    async with serve(tmp_path, config_map, client_names=("kube-apiserver",)) as site:
        await eventually(site.hook.validator._client.clock, lambda: site.hook.clients._trust.authorities)
        assert await site.is_authenticated(clients, "kube-apiserver")
        assert not await site.is_authenticated(clients, PROXY), "without allowed names, nobody is allowed by them"


async def test_required_client_certificates_refuse_all_other_callers(tmp_path: Path) -> None:
    proxies = Authority("proxies")
    config_map = a_config_map(clients=Authority("clients"), proxies=proxies)
    async with serve(tmp_path, config_map, client_auth=ClientAuth.REQUIRED) as site:
        await eventually(site.hook.validator._client.clock, lambda: not list(site.hook.unready()))
        assert await site.is_authenticated(proxies)
        assert await site.call() is None
        assert await site.call(Authority("another")) is None
        assert await site.call(proxies, "somebody-else") == 403


async def test_rotated_client_cas_are_used_without_a_restart(tmp_path: Path) -> None:
    first, second = Authority("first"), Authority("second")
    config_map = a_config_map(clients=None, proxies=first)
    async with serve(tmp_path, config_map, client_auth=ClientAuth.REQUIRED) as site:
        clock = site.hook.validator._client.clock
        await eventually(clock, lambda: not list(site.hook.unready()))
        assert (await site.call(first), await site.call(second)) == (200, None)
        site.api.put(a_config_map(clients=None, proxies=second))
        await eventually(clock, lambda: site.hook.clients._trust.authorities == second.pem.decode())
        assert (await site.call(first), await site.call(second)) == (None, 200)
        site.api.put(a_config_map(clients=None, proxies=second, names="odd"))
        await eventually(clock, lambda: site.hook.clients._reconciler.problem)
        assert await site.call(second) == 200, "a malformed value is ignored"


async def test_required_client_certificates_without_cas_refuse_all_and_are_not_ready(tmp_path: Path) -> None:
    async with serve(tmp_path, client_auth=ClientAuth.REQUIRED) as site:
        (reason,) = site.hook.unready()
        assert "client certificates are required and cannot be verified: " in reason
        assert "ConfigMap kube-system/extension-apiserver-authentication contains no CA certificates" in reason
        assert await site.call(Authority("any")) is None


@pytest.mark.parametrize("mode", [ClientAuth.OFF, ClientAuth.OPTIONAL])
async def test_optional_client_certificates_without_cas_accept_all_callers(tmp_path: Path, mode: ClientAuth) -> None:
    async with serve(tmp_path, client_auth=mode) as site:
        assert (await site.call(), await site.call(Authority("any"))) == (200, 200)
        assert list(site.hook.unready()) == []


async def test_metrics_port_requests_no_client_certificates(tmp_path: Path) -> None:
    """Prometheus may have a client certificate of another CA."""
    config_map = a_config_map(clients=None, proxies=Authority("proxies"))
    async with serve(tmp_path, config_map, client_auth=ClientAuth.REQUIRED) as site:
        await eventually(site.hook.validator._client.clock, lambda: not list(site.hook.unready()))
        assert site.hook.serving_certificate.context.verify_mode is ssl.CERT_NONE
        assert site.hook.clients.context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_resumed_tls_session_is_refused_after_its_ca_was_removed(tmp_path: Path, version: ssl.TLSVersion) -> None:
    old, new = Authority("old"), Authority("new")
    config_map = a_config_map(clients=None, proxies=old)
    async with serve(tmp_path, config_map, client_auth=ClientAuth.REQUIRED) as site:
        clock = site.hook.validator._client.clock
        await eventually(clock, lambda: not list(site.hook.unready()))
        context = ssl.create_default_context(cadata=site.servers.pem.decode())
        context.minimum_version = context.maximum_version = version
        issued = old.issue(PROXY)
        (tmp_path / "old.pem").write_bytes(issued.key_pem + issued.cert_pem)
        context.load_cert_chain(tmp_path / "old.pem")
        assert site.hook.port is not None
        response, session = await asyncio.to_thread(_post, site.hook.port, context, None)
        assert response.startswith(b"HTTP/1.1 415 "), "the connection is accepted"
        assert session is not None
        site.api.put(a_config_map(clients=None, proxies=new))
        await eventually(clock, lambda: new.pem.decode() in site.hook.clients._trust.authorities)
        response, _ = await asyncio.to_thread(_post, site.hook.port, context, session)
        assert response[:13] in (b"", b"HTTP/1.1 403 ")


def _post(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None]:
    """Resume a session, and send a request; return the answer, empty if the connection is refused, and the session."""
    request = f"POST {registration.PATH} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    response = b""
    with socket.create_connection((LOCAL, port), timeout=10) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=LOCAL, session=session) as secured:
                secured.sendall(request.encode())
                while part := secured.recv(1 << 12):
                    response += part
                return response, secured.session
        except OSError:
            return response, None
