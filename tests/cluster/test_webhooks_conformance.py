"""The sandbox calls admission webhooks for the same requests as the real server, with the same effect."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane import ControlPlane
from haulout.core.clock import RealClock
from haulout.kube.transport import Transport
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from haulout_sandbox.apiserver import ApiServer, JsonObject
from haulout_sandbox.apiserver.admission.webhook_client import HttpsWebhookClient
from support.apiserver.requests import MERGE_PATCH, request_json
from support.expectations.eventually import eventually
from support.servers.webhook_server import (
    WebhookServer,
    a_webhook_configuration,
    a_webhook_entry,
    a_webhook_server,
    allows,
    denies,
    rule,
)

REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
CONFIG_MAPS = "/api/v1/namespaces/shop/configmaps"
PODS = "/api/v1/namespaces/shop/pods"
WHO = "admin"
UNREACHABLE = {"url": "https://127.0.0.1:1/x"}


@pytest.fixture(scope="module")
def own_control_plane() -> Iterator[ControlPlane]:
    """Run a control plane for these tests alone, because their webhooks match all requests."""
    with ControlPlane() as cluster:
        yield cluster


@dataclass
class ComparedServer:
    """One of the two servers; the webhook that it calls has its name in its path."""

    name: str
    api: Transport
    webhook: WebhookServer

    async def register(self, name: str, *rules: JsonObject, **more: Any) -> None:
        """Register a webhook."""
        hook = a_webhook_entry(
            self.webhook.client_config(f"/{self.name}/{name}"), *rules, name=f"{name}.example.com", **more
        )
        code, response = await request_json(self.api, "POST", REGISTRATIONS, a_webhook_configuration(name, hook))
        assert code == 201, response

    def reviewed_requests(self) -> list[tuple[str, ...]]:
        """Return the reviewed requests without repetitions: the real server repeats a review after a conflict."""
        found: dict[tuple[str, ...], None] = {}
        for path, request in self.webhook.requests:
            if path.startswith(f"/{self.name}/") and request["userInfo"]["username"] == WHO:
                fields = ("operation", "namespace", "name", "subResource")
                kind = request["kind"]
                found[*(request.get(item, "") for item in fields), kind["group"], kind["version"], kind["kind"]] = None
        return list(found)

    async def wait_until_active(self) -> None:
        """Wait until a webhook is called for a ConfigMap, and clear its requests."""

        async def is_webhook_called() -> bool:
            await request_json(self.api, "POST", CONFIG_MAPS, a_config_map("probe"), dryRun="All")
            return bool(self.reviewed_requests())

        await eventually(RealClock(), is_webhook_called, within=timedelta(seconds=10))
        self.webhook.requests.clear()


@asynccontextmanager
async def both(control_plane: ControlPlane, folder: Path) -> AsyncIterator[tuple[ComparedServer, ComparedServer]]:
    """Yield the real server and the sandbox."""
    clock = RealClock()
    real = HttpTransport(config.load(kubeconfig=str(control_plane.kubeconfig())), clock=clock)
    sandbox = ApiServer(clock, network=HttpsWebhookClient()).transport(WHO)
    async with a_webhook_server(folder) as webhook:
        sides = ComparedServer("real", real, webhook), ComparedServer("sandbox", sandbox, webhook)
        for server in sides:
            await request_json(
                server.api, "POST", "/api/v1/namespaces", {"metadata": {"name": "shop", "labels": {"a": "b"}}}
            )
        try:
            yield sides
        finally:
            await request_json(real, "DELETE", REGISTRATIONS)
            await real.close()


def a_config_map(name: str, **meta: Any) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}, "data": {"a": "1"}}


def a_pod(name: str, **spec: Any) -> JsonObject:
    containers = [{"name": "c", "image": "registry.example/c:1"}]
    # The control plane runs without the plugin that names the account.
    spec = {"containers": containers, "serviceAccountName": "default"} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def an_eviction(name: str) -> JsonObject:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}


REQUESTS: tuple[tuple[str, str, Any, dict[str, str]], ...] = (
    ("POST", CONFIG_MAPS, a_config_map("c"), {}),
    ("POST", CONFIG_MAPS, a_config_map("d"), {"dryRun": "All"}),
    ("PUT", f"{CONFIG_MAPS}/c", a_config_map("c", labels={"x": "y"}), {}),
    ("PATCH", f"{CONFIG_MAPS}/c", {"data": {"b": "2"}}, {"kind": MERGE_PATCH}),
    ("DELETE", f"{CONFIG_MAPS}/c", None, {}),
    ("POST", PODS, a_pod("p", nodeName="n1"), {}),
    ("PATCH", f"{PODS}/p/status", {"status": {"phase": "Running"}}, {"kind": MERGE_PATCH}),
    ("POST", f"{PODS}/p/eviction", an_eviction("p"), {}),
    ("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0}, {}),
    ("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}}, {}),
    ("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}}, {"kind": MERGE_PATCH}),
    ("PATCH", "/api/v1/nodes/n1/status", {"status": {"phase": "Running"}}, {"kind": MERGE_PATCH}),
    ("DELETE", "/api/v1/nodes/n1", None, {}),
    ("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}}, {}),
)


@pytest.mark.real_time
async def test_webhooks_are_called_for_the_same_requests(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    async with both(own_control_plane, tmp_path) as sides:
        for side in sides:
            await side.register("all", rule("*/*"))
            await side.wait_until_active()
        for method, path, body, more in REQUESTS:
            results = []
            for side in sides:
                side.webhook.requests.clear()
                code, _ = await request_json(side.api, method, path, body, **more)
                results.append((code, side.reviewed_requests()))
            assert results[0] == results[1], f"{method} {path}"


@pytest.mark.real_time
async def test_webhook_responses_have_the_same_effect(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    behaviours = {
        "allow": allows,
        "deny": denies("not today"),
        "later": denies("later", code=429, reason="TooManyRequests", details={"retryAfterSeconds": 7}),
        "garbage": lambda _: {"raw": "no json at all"},
        "nothing": lambda _: {"raw": "{}"},
        "failure": lambda _: {"raw": "boom", "code": 500},
    }
    about = rule("configmaps", operations=("CREATE",), group="")
    async with both(own_control_plane, tmp_path) as sides:
        for side in sides:
            await side.register(
                "seen", about, objectSelector={"matchExpressions": [{"key": "do", "operator": "Exists"}]}
            )
            for name, behaviour in behaviours.items():
                side.webhook.set_behaviour(f"/{side.name}/{name}", behaviour)
                await side.register(name, about, objectSelector={"matchLabels": {"do": name}})
            for policy in ("Fail", "Ignore"):
                selector = {"matchLabels": {"do": policy.lower()}}
                await side.register(
                    policy.lower(), about, objectSelector=selector, clientConfig=UNREACHABLE, failurePolicy=policy
                )

            async def is_webhook_called(side: ComparedServer = side) -> bool:
                await request_json(
                    side.api, "POST", CONFIG_MAPS, a_config_map("probe", labels={"do": "x"}), dryRun="All"
                )
                return bool(side.reviewed_requests())

            await eventually(RealClock(), is_webhook_called, within=timedelta(seconds=10))
        for name in (*behaviours, "fail", "ignore"):
            codes = [
                (await request_json(side.api, "POST", CONFIG_MAPS, a_config_map(name, labels={"do": name})))[0]
                for side in sides
            ]
            assert codes[0] == codes[1], name
        refusals = [
            await request_json(side.api, "POST", CONFIG_MAPS, a_config_map("x", labels={"do": "deny"}))
            for side in sides
        ]
        assert refusals[0][1]["message"] == refusals[1][1]["message"].replace("/sandbox", "/real")
