import json
import random
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from haulout.core.clock import Clock
from haulout.errors import Forbidden, Unauthorized
from haulout.kube.client import Client
from haulout.kube.rbac import DeniedPermission, Permission, UserInfo, denied_permissions, grant_manifest, whoami
from haulout.kube.transport import Response
from support.fakes.scripted_transport import ScriptedTransport, json_response, status_response

READ_NODES = Permission(("get", "list"), "", "nodes", None, "watch nodes")
EVICT = Permission(("create",), "", "pods/eviction", None, "evict pods")
LEAD = Permission(("get", "patch"), "coordination.k8s.io", "leases", "haulout", "lead")

ALLOWED = json_response({"status": {"allowed": True}})
REFUSED = json_response({"status": {"allowed": False}})


def client_with_answers(clock: Clock, *answers: Response) -> tuple[Client, ScriptedTransport]:
    transport = ScriptedTransport(list(answers))
    return Client(transport, clock=clock, random=random.Random(7)), transport


# Access reviews


async def test_no_permission_is_denied_when_the_server_allows_everything(clock: Clock) -> None:
    client, _ = client_with_answers(clock, ALLOWED, ALLOWED, ALLOWED)

    assert await denied_permissions(client, [READ_NODES, EVICT]) == []


async def test_denied_permissions_lists_each_refused_verb_in_request_order(clock: Clock) -> None:
    client, _ = client_with_answers(clock, ALLOWED, REFUSED, REFUSED, REFUSED, ALLOWED)

    denied = await denied_permissions(client, [READ_NODES, EVICT, LEAD])

    assert denied == [
        DeniedPermission(READ_NODES, "list"),
        DeniedPermission(EVICT, "create"),
        DeniedPermission(LEAD, "get"),
    ]


async def test_access_review_sends_one_request_per_verb_with_group_resource_and_namespace(clock: Clock) -> None:
    client, transport = client_with_answers(clock, ALLOWED, ALLOWED, ALLOWED)

    await denied_permissions(client, [EVICT, LEAD])

    attributes = [json.loads(request.body or b"")["spec"]["resourceAttributes"] for request in transport.requests]
    assert attributes == [
        {"verb": "create", "resource": "pods", "subresource": "eviction"},
        {"verb": "get", "group": "coordination.k8s.io", "resource": "leases", "namespace": "haulout"},
        {"verb": "patch", "group": "coordination.k8s.io", "resource": "leases", "namespace": "haulout"},
    ]


@pytest.mark.parametrize(
    "review_status",
    [
        {"allowed": False, "reason": "RBAC: role not found"},
        {"allowed": False, "evaluationError": "RBAC: role not found"},
    ],
)
async def test_denied_permission_keeps_the_reason_of_the_server(clock: Clock, review_status: dict[str, Any]) -> None:
    client, _ = client_with_answers(clock, json_response({"status": review_status}))

    [denied] = await denied_permissions(client, [EVICT])

    assert denied.reason == "RBAC: role not found"


async def test_forbidden_access_review_is_a_single_error(clock: Clock) -> None:
    """Not an ExceptionGroup, although several requests fail at the same time."""
    forbidden = status_response(403, "Forbidden", "you may not ask")
    client, _ = client_with_answers(clock, *[forbidden] * 5)

    with pytest.raises(Forbidden, match="asking the server whether we may get nodes: you may not ask"):
        await denied_permissions(client, [READ_NODES, EVICT, LEAD])


# Identity


async def test_whoami_returns_username_and_groups(clock: Clock) -> None:
    client, _ = client_with_answers(
        clock, json_response({"status": {"userInfo": {"username": "alice", "groups": ["ops"], "uid": "7"}}})
    )

    assert await whoami(client) == UserInfo(username="alice", groups=("ops",))


@pytest.mark.parametrize(
    "given_answer", [status_response(404, "NotFound"), status_response(403, "Forbidden"), json_response({"status": {}})]
)
async def test_whoami_is_none_when_the_server_does_not_support_it(clock: Clock, given_answer: Response) -> None:
    client, _ = client_with_answers(clock, given_answer)

    assert await whoami(client) is None


async def test_whoami_raises_unauthorized_for_rejected_credentials(clock: Clock) -> None:
    client, _ = client_with_answers(clock, status_response(401, "Unauthorized"))

    with pytest.raises(Unauthorized):
        await whoami(client)


# Manifests that grant missing permissions

ALICE = UserInfo(username="alice@example.com")
ROBOT = UserInfo(username="system:serviceaccount:haulout:operator")


def granted(user: UserInfo, *denied: DeniedPermission) -> dict[str, Any]:
    """Return the objects of the manifest by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(grant_manifest(user, denied))}


def test_cluster_wide_permission_becomes_a_cluster_role_and_its_binding() -> None:
    objects = granted(ALICE, DeniedPermission(READ_NODES, "list"), DeniedPermission(EVICT, "create"))

    assert set(objects) == {"ClusterRole", "ClusterRoleBinding"}
    assert objects["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    ]
    binding = objects["ClusterRoleBinding"]
    assert binding["roleRef"]["name"] == objects["ClusterRole"]["metadata"]["name"]
    assert binding["subjects"] == [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice@example.com"}
    ]


def test_namespaced_permission_becomes_a_role_and_its_binding() -> None:
    objects = granted(ALICE, DeniedPermission(LEAD, "get"), DeniedPermission(LEAD, "patch"))

    assert set(objects) == {"Role", "RoleBinding"}
    assert objects["Role"]["metadata"]["namespace"] == objects["RoleBinding"]["metadata"]["namespace"] == "haulout"
    assert objects["Role"]["rules"] == [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "patch"]}
    ]
    assert objects["RoleBinding"]["roleRef"]["kind"] == "Role"


def test_grant_manifest_contains_both_scopes() -> None:
    objects = granted(ALICE, DeniedPermission(LEAD, "get"), DeniedPermission(EVICT, "create"))

    assert set(objects) == {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


def test_grant_manifest_binds_a_service_account_as_its_own_kind() -> None:
    objects = granted(ROBOT, DeniedPermission(EVICT, "create"))

    assert objects["ClusterRoleBinding"]["subjects"] == [
        {"kind": "ServiceAccount", "namespace": "haulout", "name": "operator"}
    ]


def test_different_grants_have_different_names() -> None:
    """Applied under the same name, the second role would take away what the first one gave."""
    first, second = (
        granted(ALICE, DeniedPermission(EVICT, "create")),
        granted(ALICE, DeniedPermission(READ_NODES, "get")),
    )

    assert first["ClusterRole"]["metadata"]["name"] != second["ClusterRole"]["metadata"]["name"]


def test_equal_grants_have_the_same_name() -> None:
    assert granted(ALICE, DeniedPermission(EVICT, "create")) == granted(ALICE, DeniedPermission(EVICT, "create"))


def test_users_with_similar_names_have_different_grants() -> None:
    one = granted(UserInfo(username="a.b"), DeniedPermission(EVICT, "create"))
    other = granted(UserInfo(username="a-b"), DeniedPermission(EVICT, "create"))

    assert one["ClusterRole"]["metadata"]["name"] != other["ClusterRole"]["metadata"]["name"]


@given(username=st.text(min_size=1))
@example(username="CN=" + "a-very-long-name" * 20)
def test_grant_manifest_is_valid_for_any_username(username: str) -> None:
    """The name is valid as path segment and label value, and the subject is the exact username."""
    objects = granted(UserInfo(username=username), DeniedPermission(EVICT, "create"))

    name = objects["ClusterRole"]["metadata"]["name"]
    assert len(name) <= 63
    assert name.isascii()
    assert name.replace("-", "").isalnum()
    if not username.startswith("system:serviceaccount:"):
        assert objects["ClusterRoleBinding"]["subjects"][0]["name"] == username
