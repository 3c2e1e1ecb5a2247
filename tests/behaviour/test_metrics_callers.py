"""The API server authenticates and authorizes readers of metrics, by token and by the shipped role."""

from http import HTTPStatus

import msgspec
import pytest

from haulout.api.objects import RawObject
from haulout.api.resources import Resource
from haulout.app.manifests import operator_manifests
from haulout.app.manifests.operator_manifests import Installation
from haulout.app.permissions import operator_permissions
from haulout.httpserver.delegated_auth import AccessDecision, DelegatedAuth, permissions
from haulout.httpserver.secure_metrics import PATH, READER_ROLE
from haulout.kube import rbac
from haulout.kube.client import Client
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import User
from support.clusters.backends import ClusterBackend

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


async def bind_role(client: Client, name: str, role: RawObject, subject: RawObject) -> None:
    """Grant a role under a name of this test's own."""
    await client.create(ROLES, {**role, "metadata": {"name": name}})
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    await client.create(BINDINGS, {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})


def shipped_role(name: str) -> RawObject:
    """Return a role that we ship."""
    shipped = operator_manifests.role_objects(Installation(image="example/haulout"))
    return next(item for item in shipped if item["kind"] == "ClusterRole" and item["metadata"]["name"] == name)


async def test_only_callers_with_the_reader_role_may_read_metrics(cluster: ClusterBackend) -> None:
    client, namespace = await cluster.client(), cluster.namespace
    reader = await a_token(client, "reader", namespace=namespace)
    unprivileged = await a_token(client, "stranger", namespace=namespace)
    account = {"kind": "ServiceAccount", "namespace": namespace, "name": "reader"}
    await bind_role(client, f"{cluster.prefix}-reads-metrics", shipped_role(READER_ROLE), account)
    reviewer = User(f"{cluster.prefix}-judge")
    subject = {"kind": "User", "apiGroup": RBAC, "name": reviewer.name}
    [role] = [candidate for candidate in rbac.roles("x", permissions(), subject) if candidate["kind"] == "ClusterRole"]
    await bind_role(client, f"{cluster.prefix}-judges", role, subject)
    callers = DelegatedAuth(await cluster.client_of(reviewer))

    async def verdict(authorization: str) -> AccessDecision:
        return await callers.authorize_get(PATH, authorization=authorization)

    assert await verdict(f"Bearer {reader}") == AccessDecision(HTTPStatus.OK)
    refused = await verdict(f"bearer {unprivileged}")
    username = f"system:serviceaccount:{namespace}:stranger"
    assert refused == AccessDecision(HTTPStatus.FORBIDDEN, f"{username} cannot get /metrics")
    assert (await verdict("Bearer made-up")).status == HTTPStatus.UNAUTHORIZED
    for nothing in ("", "Bearer ", f"Basic {reader}"):
        assert await verdict(nothing) == AccessDecision(HTTPStatus.UNAUTHORIZED, "expected a bearer token")


async def test_metrics_without_token_review_are_refused(cluster: ClusterBackend) -> None:
    token = await a_token(await cluster.client(), "reader", namespace=cluster.namespace)
    callers = DelegatedAuth(await cluster.client_of(User(f"{cluster.prefix}-powerless")))
    verdict = await callers.authorize_get(PATH, authorization=f"Bearer {token}")
    assert verdict == AccessDecision(HTTPStatus.SERVICE_UNAVAILABLE, "the API server cannot check this token now")


@pytest.mark.parametrize("resource", ["tokenreviews", "subjectaccessreviews"])
def test_operator_may_create_token_and_access_reviews(resource: str) -> None:
    granted = operator_permissions(namespace="haulout")
    assert any(item.resource == resource and item.verbs == ("create",) for item in granted)
