"""The whole operator with its dashboard, in a cluster with RBAC, and the people who come to it.

    async with visited(tmp_path, AuthMode.TOKEN) as place:
        answer = await place.ask("/nodes", token="vera")
        assert answer.status == 200

`vera` may look, `olga` may also act, `sam` is known and may nothing; their tokens are their names. The operator may do
what the manifests grant, and nothing else.
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

from haulout.app import manifests
from haulout.app.configured import Configured
from haulout.app.exposing import exposed
from haulout.app.manifests import Installation
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.profiles import Profiles
from haulout.app.vitals import Vitals
from haulout.core.clock import Clock, RealClock
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.resources import DEFINITIONS
from haulout.web.api.shapes import AuthMode
from haulout.web.auth.permissions import ACTOR, VIEWER, Impersonation
from haulout.web.auth.settings import AccessSettings, ProxySettings
from haulout.web.listening import Address
from haulout_sandbox.apiserver import ApiServer, User
from haulout_sandbox.apiserver.rbac import account_user
from support.builders import a_namespace, a_node
from support.eventually import eventually
from support.outside import FakeOutside

LOCAL = "127.0.0.1"
HOME = "haulout"
PEOPLE = {"vera": (VIEWER,), "olga": (ACTOR,), "sam": ()}
ROLLING = """
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
    """Return what gives people a ClusterRole."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": list(subjects),
    }


def a_user(name: str) -> RawObject:
    """Return whom a binding is for."""
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


async def a_guarded_cluster(
    clock: Clock, *, nodes: Iterable[RawObject] = (), acts: Impersonation | None = Impersonation.NARROW
) -> tuple[ApiServer, Client]:
    """Return a cluster with RBAC and these people, and the operator's client."""
    api = ApiServer(clock, rbac=True)
    for name in PEOPLE:
        api.give_token(name, User(name))
    wanted = Installation(image="x", dashboard=AuthMode.PROXY, acts=acts)
    bindings = [a_binding(role, *(a_user(it) for it, has in PEOPLE.items() if role in has)) for role in (VIEWER, ACTOR)]
    accounts = [it for it in manifests.everything(wanted) if it["kind"] == "ServiceAccount"]
    roles = manifests.permissions(wanted)
    for obj in (a_namespace(HOME), a_namespace("default"), *accounts, *roles, *bindings, *nodes):
        api.put(obj)
    admin = Client(api.transport("admin"), clock=clock, random=Random(0))
    for definition in manifests.definitions():
        await admin.create(DEFINITIONS, definition)
    return api, Client(api.transport(user=account_user(HOME, "haulout")), clock=clock, random=Random(1))


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Any
    body: Any

    @property
    def error(self) -> str:
        """What a problem says."""
        return str(self.body.get("error", "")) if isinstance(self.body, dict) else ""


@dataclass(frozen=True)
class Place:
    """The dashboard, and the cluster behind it."""

    api: ApiServer
    client: Client
    vitals: Vitals
    session: aiohttp.ClientSession
    base: str

    async def ask(self, path: str, method: str = "GET", *, token: str = "", base: str = "", **more: Any) -> Answer:
        """Ask for something below /api/v2, with a token if one is given."""
        headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **more.pop("headers", {})}
        url = f"{base or self.base}/api/v2{path}"
        async with self.session.request(method, url, headers=headers, **more) as answer:
            body = await answer.read()
            is_json = answer.content_type == "application/json"
            return Answer(answer.status, answer.headers, json.loads(body) if body and is_json else body)

    async def act(self, token: str = "olga", *, headers: Any = None, **act: Any) -> Answer:
        """Ask for something to be done."""
        return await self.ask("/acts", "POST", token=token, json=act, headers=headers or {})

    async def log_in(self, token: str) -> tuple[dict[str, str], str]:
        """Log in as a browser does; return the headers that it sends from then on, and what pages read."""
        answer = await self.ask("/session", "POST", json={"token": token}, headers=OUR_PAGE)
        assert answer.status == 200, answer.body
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
        return {"Cookie": cookie, **OUR_PAGE}, answer.body["csrf"]

    async def until(self, check: Any) -> None:
        """Wait for something."""
        await eventually(self.client.clock, check)


OUR_PAGE = {"Sec-Fetch-Site": "same-origin"}


@asynccontextmanager
async def visited(
    folder: Path,
    mode: AuthMode = AuthMode.TOKEN,
    *,
    proxy: ProxySettings | None = None,
    acts: Impersonation | None = Impersonation.NARROW,
    nodes: Iterable[RawObject] = (),
    hosts: tuple[str, ...] = (),
) -> AsyncIterator[Place]:
    """Run the operator, and serve the dashboard."""
    clock, file = RealClock(), folder / "maintenance.yaml"
    file.write_text(ROLLING, encoding="utf-8")
    api, client = await a_guarded_cluster(clock, nodes=tuple(nodes) or (a_node("n1"), a_node("n2")), acts=acts)
    access = AccessSettings(mode=mode, proxy=proxy or ProxySettings(), hosts=hosts)
    vitals, settings = Vitals(), OperatorSettings(namespace=HOME, identity="haulout-1_x")
    profiles = Profiles(Configured(file, environ={}, clock=clock), FakeOutside())
    vitals.profiles = profiles
    at = Address(0, LOCAL)
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
        exposed(client, vitals, at=at, namespace=HOME, identity="haulout-1_x", access=access) as port,
        asyncio.TaskGroup() as group,
    ):
        running = group.create_task(run_operator(client, settings, profiles=profiles, vitals=vitals))
        try:
            await eventually(clock, lambda: vitals.source is not None)
            yield Place(api, client, vitals, session, f"http://{LOCAL}:{port}")
        finally:
            running.cancel()
