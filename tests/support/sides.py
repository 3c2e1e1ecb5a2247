"""The real server and the sandbox, asked the same, with webhooks that remember what either wanted to know."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from controlplane import ControlPlane
from haulout.core.clock import RealClock
from haulout.kube.network import config
from haulout.kube.network.http import HttpTransport
from haulout.kube.transport import Transport
from haulout_sandbox.apiserver import ApiServer, JsonObject
from haulout_sandbox.apiserver.webhook_callers import HttpsCaller
from support.asking import ask
from support.certificates import Authority
from support.eventually import eventually
from support.webhooks import WebhookServer, a_configuration, a_hook, a_webhook

REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/shop/configmaps"
_WHO = "admin"
_KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_GENERATED = re.compile(r"\bgen-[a-z0-9]{5}\b")


@dataclass
class Side:
    """One of the two servers; the webhooks that it asks have its name in their path."""

    name: str
    api: Transport
    webhook: WebhookServer

    def hook(self, path: str, *rules: JsonObject, authority: Authority | None = None, **more: Any) -> JsonObject:
        """Return a webhook of this side."""
        name = f"{path.strip('/')}.example.com"
        client_config = self.webhook.client_config(f"/{self.name}{path}", authority=authority)
        return a_hook(client_config, *rules, **({"name": name} | more))

    async def register(self, name: str, *hooks: JsonObject, mutating: bool = False) -> None:
        """Put webhooks in force; the real server takes a moment to notice."""
        configuration = a_configuration(name, *hooks, mutating=mutating)
        code, said = await ask(self.api, "POST", f"{REGISTRATIONS}/{configuration['kind'].lower()}s", configuration)
        assert code == 201, said["message"]

    async def ask(self, method: str, path: str, body: Any = None, **more: str) -> tuple[int, Any]:
        """Return the answer, normalised."""
        code, said = await ask(self.api, method, path, body, **more)
        return code, _normal(said, left_out=f"/{self.name}")

    def asked(self) -> list[Any]:
        """Return what the webhooks were asked since, each once: the real server repeats itself after a conflict."""
        found: list[Any] = []
        for path, request in self.webhook.asked:
            if not path.startswith(f"/{self.name}/") or request["userInfo"]["username"] != _WHO:
                continue  # the real server also does things of its own accord
            normal = path.removeprefix(f"/{self.name}"), _normal(request)
            if normal not in found:
                found.append(normal)
        return found


@asynccontextmanager
async def both(control_plane: ControlPlane, folder: Path) -> AsyncIterator[tuple[Side, Side]]:
    """Yield the real server and the sandbox."""
    clock = RealClock()
    real = HttpTransport(config.load(kubeconfig=str(control_plane.kubeconfig())), clock=clock)
    sandbox = ApiServer(clock, network=HttpsCaller()).transport(_WHO)
    async with a_webhook(folder) as webhook:
        sides = Side("real", real, webhook), Side("sandbox", sandbox, webhook)
        for side in sides:
            await ask(side.api, "POST", "/api/v1/namespaces", {"metadata": {"name": "shop", "labels": {"a": "b"}}})
        try:
            yield sides
        finally:
            for kind in (*_KINDS, "validatingadmissionpolicybindings"):
                await ask(real, "DELETE", f"{REGISTRATIONS}/{kind}")
            await real.close()


async def in_force(side: Side, count: int) -> None:
    """Wait until that many webhooks are asked about a ConfigMap, and forget it."""

    async def all_asked() -> bool:
        side.webhook.asked.clear()
        await ask(side.api, "POST", MAPS, {"metadata": {"name": "probe"}}, dryRun="All")
        return len({path for path, _ in side.asked()}) == count

    await eventually(RealClock(), all_asked, within=timedelta(seconds=10))
    side.webhook.asked.clear()


def differences(real: Any, sandbox: Any, path: str = "") -> list[str]:
    """Return where the sandbox differs, a line each."""
    if isinstance(real, dict) and isinstance(sandbox, dict):
        names = sorted({*real, *sandbox})
        return [it for name in names for it in differences(real.get(name), sandbox.get(name), f"{path}.{name}")]
    if isinstance(real, list | tuple) and isinstance(sandbox, list | tuple) and len(real) == len(sandbox):
        return [
            it for at, pair in enumerate(zip(real, sandbox, strict=True)) for it in differences(*pair, f"{path}[{at}]")
        ]
    return [] if real == sandbox else [f"{path}\n  real:    {real}\n  sandbox: {sandbox}"]


def _normal(value: Any, *, left_out: str = "") -> Any:
    """Return what both servers should say; `left_out` is a part of texts that they cannot share."""
    if isinstance(value, dict):
        given = {"managedFields", "resourceVersion", "uid"}
        return {name: _normal(item, left_out=left_out) for name, item in value.items() if name not in given}
    if isinstance(value, list):
        return [_normal(item, left_out=left_out) for item in value]
    if not isinstance(value, str):
        return value
    value = value.replace(left_out, "") if left_out else value
    return _GENERATED.sub("gen-…", _TIME.sub("…", _UID.sub("…", value)))
