"""The sandbox asks admission webhooks about the same changes as the real server, and heeds their answers alike."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane import ControlPlane
from haulout.core.clock import RealClock
from haulout.kube.network import config
from haulout.kube.network.http import HttpTransport
from haulout.kube.transport import Transport
from haulout_sandbox.apiserver import ApiServer, JsonObject
from haulout_sandbox.apiserver.webhook_callers import HttpsCaller
from support.asking import MERGE_PATCH, ask
from support.eventually import eventually
from support.webhooks import WebhookServer, a_configuration, a_hook, a_webhook, allows, denies, rule

REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MAPS = "/api/v1/namespaces/shop/configmaps"
PODS = "/api/v1/namespaces/shop/pods"
WHO = "admin"
DOWN = {"url": "https://127.0.0.1:1/x"}


@pytest.fixture(scope="module")
def own_control_plane() -> Iterator[ControlPlane]:
    """Webhooks that want to know everything are for nobody else's cluster."""
    with ControlPlane() as cluster:
        yield cluster


@dataclass
class Side:
    """One of the two servers; the webhook that it asks has its name in its path."""

    name: str
    api: Transport
    webhook: WebhookServer

    async def register(self, name: str, *rules: JsonObject, **more: Any) -> None:
        """Put a webhook in force."""
        hook = a_hook(self.webhook.client_config(f"/{self.name}/{name}"), *rules, name=f"{name}.example.com", **more)
        code, said = await ask(self.api, "POST", REGISTRATIONS, a_configuration(name, hook))
        assert code == 201, said

    def asked(self) -> list[tuple[str, ...]]:
        """Return what the webhook was asked about, each once: the real server repeats itself after a conflict."""
        found: dict[tuple[str, ...], None] = {}
        for path, request in self.webhook.asked:
            if path.startswith(f"/{self.name}/") and request["userInfo"]["username"] == WHO:
                what = ("operation", "namespace", "name", "subResource")
                kind = request["kind"]
                found[*(request.get(it, "") for it in what), kind["group"], kind["version"], kind["kind"]] = None
        return list(found)

    async def in_force(self) -> None:
        """Wait until a webhook is asked about a ConfigMap, and forget it."""

        async def is_asked() -> bool:
            await ask(self.api, "POST", MAPS, a_map("probe"), dryRun="All")
            return bool(self.asked())

        await eventually(RealClock(), is_asked, within=timedelta(seconds=10))
        self.webhook.asked.clear()


@asynccontextmanager
async def both(control_plane: ControlPlane, folder: Path) -> AsyncIterator[tuple[Side, Side]]:
    """Yield the real server and the sandbox."""
    clock = RealClock()
    real = HttpTransport(config.load(kubeconfig=str(control_plane.kubeconfig())), clock=clock)
    sandbox = ApiServer(clock, network=HttpsCaller()).transport(WHO)
    async with a_webhook(folder) as webhook:
        sides = Side("real", real, webhook), Side("sandbox", sandbox, webhook)
        for side in sides:
            await ask(side.api, "POST", "/api/v1/namespaces", {"metadata": {"name": "shop", "labels": {"a": "b"}}})
        try:
            yield sides
        finally:
            await ask(real, "DELETE", REGISTRATIONS)
            await real.close()


def a_map(name: str, **meta: Any) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}, "data": {"a": "1"}}


def a_pod(name: str, **spec: Any) -> JsonObject:
    containers = [{"name": "c", "image": "registry.example/c:1"}]
    # The control plane runs without the plugin that names the account.
    spec = {"containers": containers, "serviceAccountName": "default"} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def an_eviction(name: str) -> JsonObject:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}


STORY: tuple[tuple[str, str, Any, dict[str, str]], ...] = (
    ("POST", MAPS, a_map("c"), {}),
    ("POST", MAPS, a_map("d"), {"dryRun": "All"}),
    ("PUT", f"{MAPS}/c", a_map("c", labels={"x": "y"}), {}),
    ("PATCH", f"{MAPS}/c", {"data": {"b": "2"}}, {"kind": MERGE_PATCH}),
    ("DELETE", f"{MAPS}/c", None, {}),
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
async def test_webhooks_are_asked_about_the_same(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    async with both(own_control_plane, tmp_path) as sides:
        for side in sides:
            await side.register("all", rule("*/*"))
            await side.in_force()
        for method, path, body, more in STORY:
            told = []
            for side in sides:
                side.webhook.asked.clear()
                code, _ = await ask(side.api, method, path, body, **more)
                told.append((code, side.asked()))
            assert told[0] == told[1], f"{method} {path}"


@pytest.mark.real_time
async def test_answers_of_webhooks_are_heeded_the_same(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    said = {
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
            for name, behaviour in said.items():
                side.webhook.does(f"/{side.name}/{name}", behaviour)
                await side.register(name, about, objectSelector={"matchLabels": {"do": name}})
            for policy in ("Fail", "Ignore"):
                selector = {"matchLabels": {"do": policy.lower()}}
                await side.register(
                    policy.lower(), about, objectSelector=selector, clientConfig=DOWN, failurePolicy=policy
                )
            mine = {"name": "mine", "expression": f"request.userInfo.username == '{WHO}' && object.data.a == '2'"}
            await side.register("other", about, clientConfig=DOWN, matchConditions=[mine])

            async def is_seen(side: Side = side) -> bool:
                await ask(side.api, "POST", MAPS, a_map("probe", labels={"do": "x"}), dryRun="All")
                return bool(side.asked())

            await eventually(RealClock(), is_seen, within=timedelta(seconds=10))
        for name in (*said, "fail", "ignore"):
            codes = [(await ask(side.api, "POST", MAPS, a_map(name, labels={"do": name})))[0] for side in sides]
            assert codes[0] == codes[1], name
        refusals = [await ask(side.api, "POST", MAPS, a_map("x", labels={"do": "deny"})) for side in sides]
        assert refusals[0][1]["message"] == refusals[1][1]["message"].replace("/sandbox", "/real")
