"""Who asks and what they may, in-process; tests/cluster compares the same with the real server."""

from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.errors import Forbidden
from haulout.kube.client import Client
from haulout.kube.transport import Request, Transport
from haulout_sandbox.apiserver import ApiServer, User, service_account_user
from haulout_sandbox.apiserver.auth.access_control import bearer_token
from haulout_sandbox.apiserver.status import StatusError
from haulout_sandbox.cluster import Cluster
from support.apiserver.requests import a_config_map, a_node, request_json, send

GROUP = "rbac.authorization.k8s.io"
MAPS = "/api/v1/namespaces/shop/configmaps"
ACCOUNTS = "/api/v1/namespaces/shop/serviceaccounts"
CLUSTER_ROLES = f"/apis/{GROUP}/v1/clusterroles"
EVE = User("eve", ("crew", "system:authenticated"))


@pytest.fixture
def cluster(clock: Clock) -> ApiServer:
    return ApiServer(clock, rbac=True, namespaces=["shop"])


def a_role(*rules: dict[str, Any], name: str = "r") -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": list(rules)}


def a_rule(verbs: str, resources: str, group: str = "") -> dict[str, Any]:
    return {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}


def a_binding(user: str = "eve", role: str = "r") -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{user}-{role}"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
    }


def allow(cluster: ApiServer, *rules: dict[str, Any], user: str = "eve") -> None:
    cluster.put(a_role(*rules))
    cluster.put(a_binding(user))


async def code(api: Transport, method: str, path: str, body: Any = None, **more: Any) -> int:
    return (await send(api, method, path, body, **more)).status


async def send_as(
    api: Transport, path: str, headers: Sequence[tuple[str, str]], *, method: str = "GET", body: Any = None
) -> tuple[int, Any]:
    content = None if body is None else msgspec.json.encode(body)
    answer = await api.send(Request(method=method, path=path, body=content, headers=tuple(headers)))
    return answer.status, msgspec.json.decode(answer.body)


async def test_without_rbac_everybody_may_do_everything(clock: Clock) -> None:
    cluster = ApiServer(clock, namespaces=["shop"])
    assert await code(cluster.transport(user=EVE), "POST", MAPS, a_config_map("m")) == 201
    assert cluster.history[-1].username == "eve"


async def test_a_transport_without_a_user_is_an_administrators(cluster: ApiServer) -> None:
    assert await code(cluster.transport("operator"), "POST", MAPS, a_config_map("m")) == 201
    assert cluster.history[-1].username == "operator"


async def test_permissions_change_with_roles_and_bindings(cluster: ApiServer) -> None:
    api = cluster.transport(user=EVE)
    status, response_body = await request_json(api, "GET", "/api/v1/nodes")
    assert (status, response_body["message"]) == (
        403,
        'nodes is forbidden: User "eve" cannot list resource "nodes" in API group "" at the cluster scope',
    )
    allow(cluster, a_rule("list", "nodes"))
    assert await code(api, "GET", "/api/v1/nodes") == 200
    assert await code(api, "GET", "/api/v1/nodes", watch="1", timeoutSeconds="1") == 403
    cluster.put(a_role(a_rule("watch", "nodes")))
    assert await code(api, "GET", "/api/v1/nodes") == 403
    assert await code(api, "GET", "/api/v1/nodes", watch="1", timeoutSeconds="1") == 200
    cluster.remove("clusterrolebindings", "eve-r")
    assert await code(api, "GET", "/api/v1/nodes", watch="1", timeoutSeconds="1") == 403


async def test_an_allowed_write_is_refused_after_the_permission_is_removed(cluster: ApiServer) -> None:
    allow(cluster, a_rule("create", "configmaps"))
    api = cluster.transport(user=EVE)
    assert [await code(api, "POST", MAPS, a_config_map(name)) for name in ("a", "b")] == [201, 201]
    assert await code(cluster.transport(user=User("bob")), "POST", MAPS, a_config_map("c")) == 403
    assert await code(api, "DELETE", f"{MAPS}/a") == 403
    cluster.put(a_role(a_rule("delete", "configmaps")))
    assert await code(api, "POST", MAPS, a_config_map("c")) == 403
    assert await code(api, "DELETE", f"{MAPS}/a") == 200


async def test_a_client_without_permission_gets_forbidden(cluster: ApiServer, clock: Clock) -> None:
    api = cluster.transport("operator", user=service_account_user("haulout", "operator"))
    client = Client(api, clock=clock, random=Random(1))
    with pytest.raises(Forbidden, match="system:serviceaccount:haulout:operator"):
        await client.get(NODES, "n1")


async def test_an_update_that_would_create_needs_the_create_permission(cluster: ApiServer) -> None:
    allow(cluster, a_rule("update patch", "leases", "coordination.k8s.io"))
    leases = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"
    status, response_body = await request_json(
        cluster.transport(user=EVE), "PUT", f"{leases}/l", {"metadata": {"name": "l"}}
    )
    assert status == 403
    assert 'User "eve" cannot create resource "leases"' in response_body["message"]


async def test_the_first_roles_are_objects_like_others(cluster: ApiServer) -> None:
    api = cluster.transport()
    _, listed = await request_json(api, "GET", CLUSTER_ROLES)
    names = [item["metadata"]["name"] for item in listed["items"]]
    assert {"admin", "cluster-admin", "edit", "view", "system:discovery"} <= set(names)
    _, view = await request_json(api, "GET", f"{CLUSTER_ROLES}/view")
    assert any("pods" in rule["resources"] for rule in view["rules"])
    assert cluster.history == []
    assert await code(api, "DELETE", f"{CLUSTER_ROLES}/view") == 200
    assert not cluster.has("clusterroles", "view")


async def test_a_request_acts_as_the_impersonated_user(cluster: ApiServer) -> None:
    cluster.put(a_node())
    allow(cluster, a_rule("delete", "nodes"), user="jane")
    as_jane = [("Impersonate-User", "jane")]
    api = cluster.transport("dashboard")
    assert (await send_as(api, "/api/v1/nodes/n1", as_jane))[0] == 403
    assert (await send_as(api, "/api/v1/nodes/n1", as_jane, method="DELETE"))[0] == 200
    assert cluster.history[-1].username == "jane"
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    all_headers = [
        *as_jane,
        ("impersonate-group", "a"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-Scopes%2fX", "s"),
    ]
    status, response_body = await send_as(api, review, all_headers, method="POST", body={})
    assert (status, response_body["status"]["userInfo"]) == (
        201,
        {"username": "jane", "uid": "7", "groups": ["a", "system:authenticated"], "extra": {"scopes/x": ["s"]}},
    )


async def test_impersonation_needs_a_permission(cluster: ApiServer) -> None:
    allow(cluster, {**a_rule("impersonate", "users"), "resourceNames": ["jane"]}, a_rule("list", "nodes"))
    api = cluster.transport(user=EVE)
    assert (await send_as(api, "/version", [("Impersonate-User", "jane")]))[0] == 200
    for name, value in (("Impersonate-User", "root"), ("Impersonate-Group", "system:masters")):
        headers = [(name, value)] + ([("Impersonate-User", "jane")] if name != "Impersonate-User" else [])
        status, response_body = await send_as(api, "/api/v1/nodes", headers)
        assert (status, response_body["reason"]) == (403, "Forbidden")
        assert "cannot impersonate" in response_body["message"]
    status, response_body = await send_as(api, "/api/v1/nodes", [("Impersonate-Group", "a")])
    assert (status, "without impersonating a user name" in response_body["message"]) == (400, True)


async def test_constrained_impersonation_limits_users_and_actions(cluster: ApiServer) -> None:
    user_rule = a_rule("impersonate:user-info", "users", "authentication.k8s.io")
    allow(cluster, user_rule, a_rule("impersonate-on:user-info:list", "nodes"))
    cluster.put(a_role(a_rule("list get", "nodes"), name="janes"))
    cluster.put(a_binding("jane", "janes"))
    cluster.put(a_node())
    api, as_jane = cluster.transport(user=EVE), [("Impersonate-User", "jane")]
    assert (await send_as(api, "/api/v1/nodes", as_jane))[0] == 200
    status, response_body = await send_as(api, "/api/v1/nodes/n1", as_jane)
    assert status == 403
    assert 'User "eve" cannot impersonate-on:user-info:get resource "nodes"' in response_body["message"]


async def test_a_token_expires_at_its_time_or_with_its_account(cluster: ApiServer, clock: Clock) -> None:
    admin = cluster.transport()
    account = {"metadata": {"name": "robot"}}
    assert await code(admin, "POST", ACCOUNTS, account) == 201
    tokens = []
    for seconds in (600, 7200):
        body = {"spec": {"expirationSeconds": seconds}}
        status, response_body = await request_json(admin, "POST", f"{ACCOUNTS}/robot/token", body)
        assert status == 201
        tokens.append(f"Bearer {response_body['status']['token']}")
    short, long = tokens
    user = cluster.authenticate(short)
    assert (user.name, user.groups[-1]) == ("system:serviceaccount:shop:robot", "system:authenticated")
    await clock.sleep(timedelta(seconds=700))
    with pytest.raises(StatusError, match="Unauthorized"):
        cluster.authenticate(short)
    assert cluster.authenticate(long) == cluster.authenticate(long)
    assert await code(admin, "DELETE", f"{ACCOUNTS}/robot") == 200
    assert await code(admin, "POST", ACCOUNTS, account) == 201
    with pytest.raises(StatusError, match="Unauthorized"):
        cluster.authenticate(long)


async def test_a_token_request_needs_a_permission(cluster: ApiServer) -> None:
    assert await code(cluster.transport(), "POST", ACCOUNTS, {"metadata": {"name": "robot"}}) == 201
    api = cluster.transport(user=EVE)
    assert await code(api, "POST", f"{ACCOUNTS}/robot/token", {}) == 403
    allow(cluster, a_rule("create", "serviceaccounts/token"))
    assert await code(api, "POST", f"{ACCOUNTS}/robot/token", {}) == 201
    assert await code(api, "POST", f"{ACCOUNTS}/other/token", {}) == 404


async def test_a_request_without_a_token_is_anonymous_with_rbac(cluster: ApiServer, clock: Clock) -> None:
    assert cluster.authenticate("").name == "system:anonymous"
    with pytest.raises(StatusError, match="Unauthorized"):
        ApiServer(clock).authenticate("")
    with pytest.raises(StatusError, match="Unauthorized"):
        cluster.authenticate("Bearer nonsense")
    nobody = cluster.transport(user=cluster.authenticate("Basic eDp5"))
    assert (await nobody.send(Request(method="GET", path="/livez"))).status == 200
    assert await code(nobody, "GET", "/api/v1/nodes") == 403


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("Bearer x", "x"),
        ("bearer x", "x"),
        (" Bearer x y", "x"),
        ("Bearer  x", ""),
        ("Bearer", ""),
        ("Basic x", ""),
        ("", ""),
    ],
)
def test_a_token_is_the_word_after_bearer(header: str, found: str) -> None:
    assert bearer_token(header) == found


async def test_reviews_ask_the_same_policy(cluster: ApiServer) -> None:
    allow(cluster, a_rule("list", "nodes"))
    path, api = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", cluster.transport(user=EVE)
    answers = []
    for verb in ("list", "delete"):
        body = {"spec": {"resourceAttributes": {"verb": verb, "resource": "nodes"}}}
        answers.append((await request_json(api, "POST", path, body))[1]["status"]["allowed"])
    assert answers == [True, False]
    assert await code(api, "GET", path) == 403
    assert await code(cluster.transport(), "GET", path) == 405


async def test_two_users_of_one_transport_share_its_faults(cluster: ApiServer) -> None:
    transport = cluster.transport("line")
    other = transport.acting_as(EVE)
    assert await code(other, "GET", "/api/v1/nodes") == 403
    assert await code(transport, "GET", "/api/v1/nodes") == 200
    transport.faults.fail_before_effect(response=503)
    assert await code(other, "GET", "/api/v1/nodes") == 503


async def test_a_process_keeps_its_user_over_restarts(clock: Clock) -> None:
    cluster = Cluster(clock, api=ApiServer(clock, rbac=True))
    assert cluster.transport("operator", user=EVE).user == EVE
    assert cluster.renew_transport("operator").user == EVE
    assert await code(cluster.transport("operator"), "GET", "/api/v1/nodes") == 403
    assert await code(cluster.transport("other"), "GET", "/api/v1/nodes") == 200


async def test_a_transport_remembers_its_latest_requests_only(clock: Clock) -> None:
    api = ApiServer(clock).transport(request_log_size=10)
    for number in range(30):
        await code(api, "GET", f"/api/v1/nodes/n{number}")
    assert 5 <= len(api.requests) <= 10
    assert api.requests[-1].request.path == "/api/v1/nodes/n29"
    silent = ApiServer(clock).transport(request_log_size=0)
    await code(silent, "GET", "/api/v1/nodes")
    assert silent.requests == []
