"""Who may read metrics is for the API server to say: by token, and by the role that we ship."""

from http import HTTPStatus

import msgspec
import pytest

from haulout.app import manifests, needs
from haulout.app.manifests import Installation
from haulout.kube import access
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.resources import Resource
from haulout.kube.transport import Request
from haulout.web.callers import Callers, Verdict, permissions
from haulout.web.guarded import PATH, READER_ROLE
from haulout_sandbox.apiserver import User
from support.backends import Cluster

ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True, model=RawObject)
RBAC = "rbac.authorization.k8s.io"
ROLES = Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False, model=RawObject)
BINDINGS = Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False, model=RawObject)


async def a_token(client: Client, name: str, *, namespace: str) -> str:
    """Return a token of an account that is made for it."""
    await client.create(ACCOUNTS, {"metadata": {"name": name}}, namespace=namespace)
    path = ACCOUNTS.path(name, namespace=namespace) + "/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await client.request(Request(method="POST", path=path, body=msgspec.json.encode(body)), doing="asking")
    token: str = msgspec.json.decode(answer.body)["status"]["token"]
    return token


async def bind(client: Client, name: str, role: RawObject, subject: RawObject) -> None:
    """Grant a role under a name of this test's own."""
    await client.create(ROLES, {**role, "metadata": {"name": name}})
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    await client.create(BINDINGS, {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})


def the_role(name: str) -> RawObject:
    """Return a role that we ship."""
    shipped = manifests.permissions(Installation(image="example/haulout"))
    return next(it for it in shipped if it["kind"] == "ClusterRole" and it["metadata"]["name"] == name)


async def test_who_has_the_role_may_read_and_nobody_else(cluster: Cluster) -> None:
    client, namespace = await cluster.client(), cluster.namespace
    reader = await a_token(client, "reader", namespace=namespace)
    stranger = await a_token(client, "stranger", namespace=namespace)
    account = {"kind": "ServiceAccount", "namespace": namespace, "name": "reader"}
    await bind(client, f"{cluster.prefix}-reads-metrics", the_role(READER_ROLE), account)
    judge = User(f"{cluster.prefix}-judge")
    subject = {"kind": "User", "apiGroup": RBAC, "name": judge.name}
    [role] = [it for it in access.roles("x", permissions(), subject) if it["kind"] == "ClusterRole"]
    await bind(client, f"{cluster.prefix}-judges", role, subject)
    callers = Callers(await cluster.client_of(judge))

    async def verdict(authorization: str) -> Verdict:
        return await callers.may_get(PATH, authorization=authorization)

    assert await verdict(f"Bearer {reader}") == Verdict(HTTPStatus.OK)
    refused = await verdict(f"bearer {stranger}")
    who = f"system:serviceaccount:{namespace}:stranger"
    assert refused == Verdict(HTTPStatus.FORBIDDEN, f"{who} may not get /metrics")
    assert (await verdict("Bearer made-up")).status == HTTPStatus.UNAUTHORIZED
    for nothing in ("", "Bearer ", f"Basic {reader}"):
        assert await verdict(nothing) == Verdict(HTTPStatus.UNAUTHORIZED, "expected a bearer token")


async def test_who_may_not_ask_the_server_lets_nobody_in(cluster: Cluster) -> None:
    token = await a_token(await cluster.client(), "reader", namespace=cluster.namespace)
    callers = Callers(await cluster.client_of(User(f"{cluster.prefix}-powerless")))
    verdict = await callers.may_get(PATH, authorization=f"Bearer {token}")
    assert verdict == Verdict(HTTPStatus.SERVICE_UNAVAILABLE, "the API server cannot be asked who you are")


@pytest.mark.parametrize("resource", ["tokenreviews", "subjectaccessreviews"])
def test_the_operator_is_granted_what_it_takes(resource: str) -> None:
    granted = needs.permissions(namespace="haulout")
    assert any(it.resource == resource and it.verbs == ("create",) for it in granted)
