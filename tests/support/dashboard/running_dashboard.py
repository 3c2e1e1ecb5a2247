"""The whole operator with its dashboard in a cluster with RBAC, and some users.

    async with running_dashboard(tmp_path, AuthMode.TOKEN) as dashboard:
        response = await dashboard.request("/nodes", token="vera")
        assert response.status == 200

`vera` may read, `olga` may also act, `sam` is known and has no permissions; their tokens are their names. The operator
has exactly the permissions of the manifests.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from haulout.api.objects import RawObject
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from haulout.app.http_endpoints import serve_http
from haulout.app.manifests import operator_manifests
from haulout.app.manifests.operator_manifests import Installation
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.operator_status import OperatorStatus
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.core.clock import Clock, RealClock
from haulout.dashboard.api.types import AuthMode
from haulout.dashboard.auth.permissions import OPERATOR_ROLE, VIEWER_ROLE, Impersonation
from haulout.dashboard.auth.settings import AccessSettings, ProxySettings
from haulout.httpserver.listener import ListenAddress
from haulout.kube.client import Client
from haulout_sandbox.apiserver import ApiServer, User
from haulout_sandbox.apiserver.auth.rbac import service_account_user
from support.builders.objects import a_namespace, a_node
from support.expectations.eventually import eventually
from support.fakes.external_client import FakeExternalClient

LOCAL = "127.0.0.1"
NAMESPACE = "haulout"
USERS = {"vera": (VIEWER_ROLE,), "olga": (OPERATOR_ROLE,), "sam": ()}
CONFIGURATION = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: wanted, type: hasLabel, config: {key: example.com/reboot, value: "yes"}}
  - {name: approved, type: hasAnnotation, config: {key: example.com/approved}}
  - {name: done, type: hasLabel, config: {key: example.com/done}}
  - {name: later, type: wait, config: {duration: 1h}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: approved && !later, next: in-maintenance}]
  in-maintenance:
    transitions: [{check: done, next: operational}]
"""


def a_binding(role: str, *subjects: RawObject) -> RawObject:
    """Return a binding that grants a ClusterRole to users."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": list(subjects),
    }


def a_user(name: str) -> RawObject:
    """Return the subject of a binding."""
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


async def a_cluster_with_rbac(
    clock: Clock, *, nodes: Iterable[RawObject] = (), impersonation: Impersonation | None = Impersonation.CONSTRAINED
) -> tuple[ApiServer, Client]:
    """Return a cluster with RBAC and these people, and the operator's client."""
    api = ApiServer(clock, rbac=True)
    for name in USERS:
        api.add_token(name, User(name))
    wanted = Installation(image="x", dashboard_auth=AuthMode.PROXY, impersonation=impersonation)
    bindings = [
        a_binding(role, *(a_user(entry) for entry, has in USERS.items() if role in has))
        for role in (VIEWER_ROLE, OPERATOR_ROLE)
    ]
    accounts = [entry for entry in operator_manifests.all_objects(wanted) if entry["kind"] == "ServiceAccount"]
    roles = operator_manifests.role_objects(wanted)
    for obj in (a_namespace(NAMESPACE), a_namespace("default"), *accounts, *roles, *bindings, *nodes):
        api.put(obj)
    admin = Client(api.transport("admin"), clock=clock, random=Random(0))
    for definition in operator_manifests.definitions():
        await admin.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    return api, Client(api.transport(user=service_account_user(NAMESPACE, "haulout")), clock=clock, random=Random(1))


@dataclass(frozen=True)
class DashboardResponse:
    """The response of the dashboard."""

    status: int
    headers: Any
    body: Any

    @property
    def error(self) -> str:
        """The error text of a problem."""
        return str(self.body.get("error", "")) if isinstance(self.body, dict) else ""


@dataclass(frozen=True)
class DashboardUnderTest:
    """The dashboard, and the cluster behind it."""

    api: ApiServer
    client: Client
    operator_status: OperatorStatus
    session: aiohttp.ClientSession
    base: str

    async def request(
        self, path: str, method: str = "GET", *, token: str = "", base: str = "", **more: Any
    ) -> DashboardResponse:
        """Send a request below /api/v2, with a token if one is given."""
        headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **more.pop("headers", {})}
        url = f"{base or self.base}/api/v2{path}"
        async with self.session.request(method, url, headers=headers, **more) as answer:
            body = await answer.read()
            is_json = answer.content_type == "application/json"
            return DashboardResponse(answer.status, answer.headers, json.loads(body) if body and is_json else body)

    async def act(self, token: str = "olga", *, headers: Any = None, **act: Any) -> DashboardResponse:
        """Send an action."""
        return await self.request("/actions", "POST", token=token, json=act, headers=headers or {})

    async def log_in(self, token: str) -> tuple[dict[str, str], str]:
        """Log in as a browser does; return the headers that it sends from then on, and the CSRF token."""
        answer = await self.request("/session", "POST", json={"token": token}, headers=SAME_ORIGIN)
        assert answer.status == 200, answer.body
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
        return {"Cookie": cookie, **SAME_ORIGIN}, answer.body["csrf"]

    async def wait_until(self, check: Any) -> None:
        """Wait for something."""
        await eventually(self.client.clock, check)


SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@asynccontextmanager
async def running_dashboard(
    folder: Path,
    mode: AuthMode = AuthMode.TOKEN,
    *,
    proxy: ProxySettings | None = None,
    impersonation: Impersonation | None = Impersonation.CONSTRAINED,
    nodes: Iterable[RawObject] = (),
    hosts: tuple[str, ...] = (),
) -> AsyncIterator[DashboardUnderTest]:
    """Run the operator, and serve the dashboard."""
    clock, file = RealClock(), folder / "maintenance.yaml"
    file.write_text(CONFIGURATION, encoding="utf-8")
    api, client = await a_cluster_with_rbac(
        clock, nodes=tuple(nodes) or (a_node("n1"), a_node("n2")), impersonation=impersonation
    )
    access = AccessSettings(mode=mode, proxy=proxy or ProxySettings(), hosts=hosts)
    operator_status, settings = OperatorStatus(), OperatorSettings(namespace=NAMESPACE, identity="haulout-1_x")
    profiles = ProfilesComponent(ProfilesFile(file, environ={}, clock=clock), FakeExternalClient())
    operator_status.profiles = profiles
    at = ListenAddress(0, LOCAL)
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        serve_http(
            client, operator_status, address=at, namespace=NAMESPACE, identity="haulout-1_x", access=access
        ) as port,
        asyncio.TaskGroup() as group,
    ):
        running = group.create_task(run_operator(client, settings, profiles=profiles, status=operator_status))
        try:
            await eventually(clock, lambda: operator_status.source is not None)
            yield DashboardUnderTest(api, client, operator_status, session, f"http://{LOCAL}:{port}")
        finally:
            running.cancel()
