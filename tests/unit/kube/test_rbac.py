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

SEE_NODES = Permission(("get", "list"), "", "nodes", None, "watch nodes")
EVICT = Permission(("create",), "", "pods/eviction", None, "evict pods")
LEAD = Permission(("get", "patch"), "coordination.k8s.io", "leases", "haulout", "lead")

ALLOWED = json_response({"status": {"allowed": True}})
REFUSED = json_response({"status": {"allowed": False}})


def client_with_answers(clock: Clock, *answers: Response) -> tuple[Client, ScriptedTransport]:
    transport = ScriptedTransport(list(answers))
    return Client(transport, clock=clock, random=random.Random(7)), transport


# What we may do


async def test_nothing_is_missing_when_the_server_allows_everything(clock: Clock) -> None:
    client, _ = client_with_answers(clock, ALLOWED, ALLOWED, ALLOWED)

    assert await denied_permissions(client, [SEE_NODES, EVICT]) == []


async def test_each_verb_that_is_refused_is_missing_in_the_order_asked(clock: Clock) -> None:
    client, _ = client_with_answers(clock, ALLOWED, REFUSED, REFUSED, REFUSED, ALLOWED)

    refused = await denied_permissions(client, [SEE_NODES, EVICT, LEAD])

    assert refused == [
        DeniedPermission(SEE_NODES, "list"),
        DeniedPermission(EVICT, "create"),
        DeniedPermission(LEAD, "get"),
    ]


async def test_the_server_is_asked_about_exactly_this(clock: Clock) -> None:
    client, transport = client_with_answers(clock, ALLOWED, ALLOWED, ALLOWED)

    await denied_permissions(client, [EVICT, LEAD])

    asked = [json.loads(request.body or b"")["spec"]["resourceAttributes"] for request in transport.requests]
    assert asked == [
        {"verb": "create", "resource": "pods", "subresource": "eviction"},
        {"verb": "get", "group": "coordination.k8s.io", "resource": "leases", "namespace": "haulout"},
        {"verb": "patch", "group": "coordination.k8s.io", "resource": "leases", "namespace": "haulout"},
    ]


@pytest.mark.parametrize(
    "verdict",
    [
        {"allowed": False, "reason": "RBAC: role not found"},
        {"allowed": False, "evaluationError": "RBAC: role not found"},
    ],
)
async def test_what_the_server_says_about_a_refusal_is_kept(clock: Clock, verdict: dict[str, Any]) -> None:
    client, _ = client_with_answers(clock, json_response({"status": verdict}))

    [refused] = await denied_permissions(client, [EVICT])

    assert refused.reason == "RBAC: role not found"


async def test_a_server_that_will_not_even_be_asked_is_one_plain_error(clock: Clock) -> None:
    """Not a group of errors, though several questions fail at the same time."""
    no = status_response(403, "Forbidden", "you may not ask")
    client, _ = client_with_answers(clock, *[no] * 5)

    with pytest.raises(Forbidden, match="asking the server whether we may get nodes: you may not ask"):
        await denied_permissions(client, [SEE_NODES, EVICT, LEAD])


# Who we are


async def test_the_server_says_who_we_are(clock: Clock) -> None:
    client, _ = client_with_answers(
        clock, json_response({"status": {"userInfo": {"username": "alice", "groups": ["ops"], "uid": "7"}}})
    )

    assert await whoami(client) == UserInfo(username="alice", groups=("ops",))


@pytest.mark.parametrize(
    "given_answer", [status_response(404, "NotFound"), status_response(403, "Forbidden"), json_response({"status": {}})]
)
async def test_a_server_that_does_not_say_who_we_are_leaves_it_unknown(clock: Clock, given_answer: Response) -> None:
    client, _ = client_with_answers(clock, given_answer)

    assert await whoami(client) is None


async def test_credentials_that_are_not_accepted_are_not_an_unknown_user(clock: Clock) -> None:
    client, _ = client_with_answers(clock, status_response(401, "Unauthorized"))

    with pytest.raises(Unauthorized):
        await whoami(client)


# What would grant the rest

ALICE = UserInfo(username="alice@example.com")
ROBOT = UserInfo(username="system:serviceaccount:haulout:operator")


def granted(who: UserInfo, *refused: DeniedPermission) -> dict[str, Any]:
    """Return the objects of the manifest by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(grant_manifest(who, refused))}


def test_a_permission_on_the_whole_cluster_becomes_a_cluster_role_and_its_binding() -> None:
    objects = granted(ALICE, DeniedPermission(SEE_NODES, "list"), DeniedPermission(EVICT, "create"))

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


def test_a_permission_in_a_namespace_becomes_a_role_there_and_its_binding() -> None:
    objects = granted(ALICE, DeniedPermission(LEAD, "get"), DeniedPermission(LEAD, "patch"))

    assert set(objects) == {"Role", "RoleBinding"}
    assert objects["Role"]["metadata"]["namespace"] == objects["RoleBinding"]["metadata"]["namespace"] == "haulout"
    assert objects["Role"]["rules"] == [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "patch"]}
    ]
    assert objects["RoleBinding"]["roleRef"]["kind"] == "Role"


def test_both_scopes_are_granted_together() -> None:
    objects = granted(ALICE, DeniedPermission(LEAD, "get"), DeniedPermission(EVICT, "create"))

    assert set(objects) == {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


def test_a_service_account_is_granted_as_such() -> None:
    objects = granted(ROBOT, DeniedPermission(EVICT, "create"))

    assert objects["ClusterRoleBinding"]["subjects"] == [
        {"kind": "ServiceAccount", "namespace": "haulout", "name": "operator"}
    ]


def test_a_later_grant_does_not_replace_an_earlier_one() -> None:
    """Applied under the same name, the second role would take away what the first one gave."""
    first, second = (
        granted(ALICE, DeniedPermission(EVICT, "create")),
        granted(ALICE, DeniedPermission(SEE_NODES, "get")),
    )

    assert first["ClusterRole"]["metadata"]["name"] != second["ClusterRole"]["metadata"]["name"]


def test_the_same_grant_has_the_same_name() -> None:
    assert granted(ALICE, DeniedPermission(EVICT, "create")) == granted(ALICE, DeniedPermission(EVICT, "create"))


def test_two_users_never_share_a_grant_even_if_their_names_look_alike() -> None:
    one = granted(UserInfo(username="a.b"), DeniedPermission(EVICT, "create"))
    other = granted(UserInfo(username="a-b"), DeniedPermission(EVICT, "create"))

    assert one["ClusterRole"]["metadata"]["name"] != other["ClusterRole"]["metadata"]["name"]


@given(username=st.text(min_size=1))
@example(username="CN=" + "a-very-long-name" * 20)
def test_any_user_can_be_granted_to(username: str) -> None:
    """The name is a path segment and a label value at once, and the subject is the very user."""
    objects = granted(UserInfo(username=username), DeniedPermission(EVICT, "create"))

    name = objects["ClusterRole"]["metadata"]["name"]
    assert len(name) <= 63
    assert name.isascii()
    assert name.replace("-", "").isalnum()
    if not username.startswith("system:serviceaccount:"):
        assert objects["ClusterRoleBinding"]["subjects"][0]["name"] == username
