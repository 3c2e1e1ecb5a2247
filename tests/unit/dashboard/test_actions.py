"""Actions from the dashboard: as the user, once, within the configuration, and recorded."""

import json
from datetime import timedelta
from http import HTTPStatus
from random import Random
from typing import Any

import pytest

from haulout.api import hold
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.objects import RawObject
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES
from haulout.controllers.profiles.config.loader import load
from haulout.controllers.profiles.machine.data_annotation import NodeData, ProfileData, write
from haulout.controllers.profiles.plugin import DATA_ANNOTATION
from haulout.controllers.profiles.plugins.registry import registries
from haulout.core.clock import Clock
from haulout.dashboard.actions import ActionExecutor
from haulout.dashboard.api.backend import HttpError
from haulout.dashboard.api.types import Action, ActionResponse, ActionType
from haulout.dashboard.auth.permissions import OPERATOR_ROLE, Impersonation
from haulout.dashboard.auth.settings import SERVICE_ACCOUNT
from haulout.dashboard.auth.user_clients import TOKEN_LIFETIME, Caller
from haulout.errors import Forbidden
from haulout.httpserver.delegated_auth import User
from haulout.kube.client import Client
from haulout.kube.transport import Request, Token
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.apiserver.auth.rbac import service_account_user
from support.builders.objects import a_node
from support.dashboard.running_dashboard import CONFIGURATION, NAMESPACE, a_binding, a_cluster_with_rbac

OLGA, VERA = User.of("olga", groups=["system:authenticated"]), User.of("vera")


class World:
    """A cluster, and the users who act in it."""

    def __init__(self, api: ApiServer, client: Client) -> None:
        self.api = api
        self.client = client
        self.admin = Client(api.transport("admin"), clock=client.clock, random=Random(2))
        configuration = load(CONFIGURATION.encode(), registries(), {}, file="x").configuration
        self.executor = ActionExecutor(
            client, namespace=NAMESPACE, identity="haulout-1_x", configuration=lambda: configuration
        )

    async def execute(self, action: str, user: User = OLGA, **more: Any) -> ActionResponse:
        """Execute an action."""
        return await self.executor.execute(Action(action=ActionType(action), **more), Caller(user))

    async def refusal_of(self, action: str, user: User = OLGA, **more: Any) -> tuple[HTTPStatus, str]:
        """Return the refusal of an action; fail if anything was written."""
        before = self.api.revision
        with pytest.raises(HttpError) as refusal:
            await self.execute(action, user, **more)
        assert self.api.revision == before
        return refusal.value.status, str(refusal.value)

    def history(self, node: str = "n1") -> list[tuple[str, ...]]:
        """Return the history entries: subject, author, reason and result."""
        names = ("object", "requestedBy", "reason", "result")
        entries = self.api.get("maintenancerecords", node)["entries"]
        return [tuple(entry.get(name, "") for name in names) for entry in entries]

    def writers(self, plural: str) -> list[str]:
        """Return the users who changed objects of a kind, in order."""
        return [event.username for event in self.api.history if event.kind.plural == plural]


async def a_world(clock: Clock, *nodes: RawObject, impersonation: Impersonation = Impersonation.CONSTRAINED) -> World:
    return World(
        *await a_cluster_with_rbac(clock, nodes=nodes or (a_node("n1"), a_node("n2")), impersonation=impersonation)
    )


def in_state(state: str) -> RawObject:
    data = NodeData(profiles={"os": ProfileData(current=state, previous=state)})
    node = a_node("n1")
    node["metadata"]["annotations"] = {DATA_ANNOTATION: write(data)}
    return node


async def test_start_creates_a_nodemaintenance_as_the_user_and_records_it(clock: Clock) -> None:
    world = await a_world(clock)
    done = await world.execute("start", node="n1", reason="a new kernel")
    assert done.message == "Created NodeMaintenance n1: node n1 is cordoned and drained within the budget."
    assert '"nodeName":"n1","reason":"a new kernel"' in done.command
    order = world.api.get("nodemaintenances", "n1")
    assert order["spec"] == {"nodeName": "n1", "reason": "a new kernel"}
    assert world.writers("nodemaintenances") == ["olga"]
    assert world.history() == [("NodeMaintenance/n1", "olga", "a new kernel", "created")]
    [event] = world.api.objects("events")
    assert event["message"] == f"olga, from the dashboard: {done.message} (a new kernel)"
    assert (event["involvedObject"]["name"], event["reason"]) == ("n1", "MaintenanceCreatedFromDashboard")


async def test_repeated_action_writes_nothing(clock: Clock) -> None:
    world = await a_world(clock)
    await world.execute("start", node="n1")
    before = world.api.revision
    assert (await world.execute("start", node="n1")).message == "NodeMaintenance n1 already exists."
    assert (await world.execute("cancel", maintenance="n2")).message == "NodeMaintenance n2 was already deleted."
    assert world.api.revision == before


async def test_existing_nodemaintenance_for_another_node_is_kept(clock: Clock) -> None:
    world = await a_world(clock)
    order = {"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance"}
    world.api.put({**order, "metadata": {"name": "n1"}, "spec": {"nodeName": "n2"}})
    assert await world.refusal_of("start", node="n1") == (
        HTTPStatus.CONFLICT,
        "NodeMaintenance n1 already exists, for node n2: delete it first",
    )
    assert await world.refusal_of("cancel", maintenance="n1", node="n1") == (
        HTTPStatus.CONFLICT,
        "it is about node n2, not n1",
    )


async def test_refusal_of_the_api_server_is_returned_and_not_recorded(clock: Clock) -> None:
    world = await a_world(clock)
    status, reason = await world.refusal_of("start", VERA, node="n1")
    assert (status, reason.partition(": ")[0]) == (HTTPStatus.FORBIDDEN, "vera is not allowed to do this")
    assert not world.api.objects("maintenancerecords")
    assert (await world.refusal_of("start", node="n9"))[0] is HTTPStatus.NOT_FOUND


async def test_cancel_deletes_the_nodemaintenance_as_the_user(clock: Clock) -> None:
    world = await a_world(clock)
    await world.execute("start", node="n1")
    uid = world.api.get("nodemaintenances", "n1")["metadata"]["uid"]
    done = await world.execute("cancel", maintenance="n1", node="n1", reason="not today")
    assert (done.message, done.command) == (
        "Deleted NodeMaintenance n1: node n1 is uncordoned.",
        "kubectl delete nodemaintenance n1",
    )
    assert not world.api.objects("nodemaintenances")
    sent = [item.request for item in world.client.transport.requests]  # type: ignore[attr-defined] # of the sandbox
    [deleted] = (json.loads(item.body) for item in sent if item.method == "DELETE")
    assert deleted["preconditions"] == {"uid": uid}, "another of the same name is not meant"
    assert world.writers("nodemaintenances") == ["olga", "olga"]
    assert world.history()[1] == ("NodeMaintenance/n1", "olga", "not today", "cancelled")


def a_notice(clock: Clock, **spec: Any) -> RawObject:
    start = (clock.now() + timedelta(hours=1)).isoformat()
    fields = {"nodeName": "n1", "source": "ops", "noticeID": "1", "kind": "Reboot", "start": start, **spec}
    return {
        "apiVersion": "haulout.dev/v1alpha1",
        "kind": "MaintenanceNotice",
        "metadata": {"name": "ops-1"},
        "spec": fields,
    }


async def test_cancel_sets_the_stage_of_a_user_notice(clock: Clock) -> None:
    world = await a_world(clock)
    world.api.put(a_notice(clock))
    done = await world.execute("cancel", notice="ops-1", node="n1")
    assert (done.message, done.command) == ("Notice ops-1 is cancelled.", "haulout notice cancel ops-1")
    assert world.api.get("maintenancenotices", "ops-1")["spec"]["stage"] == "Cancelled"
    assert world.writers("maintenancenotices")[-1] == "olga"
    assert world.history() == [("MaintenanceNotice/ops-1", "olga", "", "cancelled")]
    before = world.api.revision
    assert (await world.execute("cancel", notice="ops-1")).message == "Notice ops-1 is already cancelled."
    assert world.api.revision == before


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"source": "aws"}, "comes from aws, which carries it out anyway"),
        ({"stage": "Ended"}, "is over, so it cannot be cancelled"),
        ({"stage": "Failed"}, "failed; when its node works again, run: haulout notice end ops-1"),
    ],
)
async def test_cancel_of_a_cloud_notice_or_an_ended_notice_is_refused(
    clock: Clock, spec: dict[str, str], reason: str
) -> None:
    world = await a_world(clock)
    world.api.put(a_notice(clock, **spec))
    status, message = await world.refusal_of("cancel", notice="ops-1")
    assert (status, message.startswith(f"notice ops-1 {reason}")) == (HTTPStatus.CONFLICT, True)
    assert ("haulout notice cancel ops-1 --force" in message) is ("source" in spec)


async def test_approval_sets_the_annotation_of_the_check(clock: Clock) -> None:
    world = await a_world(clock, in_state("maintenance-required"))
    done = await world.execute("approve", node="n1", profile="os", check="approved", reason="seen")
    assert done.message == "n1 is approved for approved of profile os."
    assert done.command == "kubectl annotate node n1 example.com/approved=olga"
    assert world.api.get("nodes", "n1")["metadata"]["annotations"]["example.com/approved"] == "olga"
    assert world.writers("nodes")[-1] == "olga"
    assert world.history() == [("profile/os", "olga", "seen", "approved: annotation example.com/approved=olga")]
    before = world.api.revision
    assert "already" in (await world.execute("approve", node="n1", profile="os", check="approved")).message
    assert world.api.revision == before


async def test_approval_overwrites_another_label_value(clock: Clock) -> None:
    node = in_state("operational")
    node["metadata"]["labels"] = {"example.com/reboot": "no"}
    world = await a_world(clock, node)
    done = await world.execute("approve", node="n1", profile="os", check="wanted")
    assert done.command == "kubectl label node n1 example.com/reboot=yes --overwrite"
    assert world.api.get("nodes", "n1")["metadata"]["labels"] == {"example.com/reboot": "yes"}


@pytest.mark.parametrize(
    ("state", "profile", "check", "reason"),
    [
        ("operational", "os", "approved", "profile os is operational on node n1; that state has no check 'approved'"),
        (
            "maintenance-required",
            "os",
            "later",
            "check later of profile os does not read a label or annotation of the node",
        ),
        ("maintenance-required", "os", "kubernetes.io/hostname", "that state has no check 'kubernetes.io/hostname'"),
        ("maintenance-required", "none", "approved", "there is no profile 'none' in the configuration"),
        ("", "os", "approved", "profile os does not apply to node n1"),
    ],
)
async def test_approval_outside_the_current_checks_is_refused(
    clock: Clock, state: str, profile: str, check: str, reason: str
) -> None:
    world = await a_world(clock, in_state(state) if state else a_node("n1"))
    status, message = await world.refusal_of("approve", node="n1", profile=profile, check=check)
    assert (status, reason in message) == (HTTPStatus.CONFLICT, True), message


async def test_hold_and_release_are_written_as_the_user(clock: Clock) -> None:
    world = await a_world(clock)
    until = clock.now().replace(microsecond=0) + timedelta(hours=4)
    done = await world.execute("hold", node="n1", reason="a migration", until=until)
    assert done.message == "n1 is held: no new maintenance starts on it."
    assert done.command == f"haulout hold n1 --until {until:%Y-%m-%dT%H:%M:%SZ} --reason 'a migration'"
    [node] = (item for item in (await world.client.list(NODES)).items if item.name == "n1")
    assert hold.hold_of(node) == hold.Hold(by="olga", reason="a migration", until=until)
    assert (await world.execute("hold", node="n1", reason="a migration", until=until)).message == "n1 is already held."
    assert (await world.execute("release", node="n1")).message == "Maintenance may start on n1 again."
    assert hold.ANNOTATION not in world.api.get("nodes", "n1")["metadata"].get("annotations", {})
    assert (await world.execute("release", node="n1")).message == "n1 is not held."
    assert world.writers("nodes")[-2:] == ["olga", "olga"]
    assert [item[1:] for item in world.history()] == [("olga", "a migration", "held"), ("olga", "", "released")]


async def test_hold_with_a_past_or_zoneless_end_is_refused(clock: Clock) -> None:
    world = await a_world(clock)
    for until in (clock.now() - timedelta(minutes=1), clock.now().replace(tzinfo=None) + timedelta(days=1)):
        assert (await world.refusal_of("hold", node="n1", until=until))[0] is HTTPStatus.BAD_REQUEST


async def test_actions_succeed_without_the_history_definition(clock: Clock) -> None:
    world = await a_world(clock)
    await world.admin.delete(CUSTOM_RESOURCE_DEFINITIONS, "maintenancerecords.haulout.dev")
    await world.execute("start", node="n1")
    assert world.writers("nodemaintenances") == ["olga"]


@pytest.mark.parametrize("acts", list(Impersonation))
async def test_service_accounts_act_under_their_own_name(clock: Clock, acts: Impersonation) -> None:
    world = await a_world(clock, impersonation=acts)
    robot = service_account_user(NAMESPACE, "robot", extra={"authentication.kubernetes.io/pod-name": ["p"]})
    subject = {"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "robot"}
    world.api.put(a_binding(OPERATOR_ROLE, subject))
    user = User.of(robot.name, groups=robot.groups, extra=robot.extra)
    assert await world.executor.allowed_actions(Caller(user)) == tuple(ActionType)
    await world.execute("start", user, node="n1")
    assert world.writers("nodemaintenances") == [robot.name]


async def test_narrow_impersonation_does_not_allow_system_masters(clock: Clock) -> None:
    admin, reader = User.of("admin", groups=["system:masters"]), User.of("olga")
    for acts, allowed in ((Impersonation.CONSTRAINED, False), (Impersonation.UNRESTRICTED, True)):
        world = await a_world(clock, impersonation=acts)
        if allowed:
            await world.execute("start", admin, node="n1")
            continue
        status, reason = await world.refusal_of("start", admin, node="n1")
        assert (status, reason.startswith("Haulout is not allowed to impersonate admin")) == (
            HTTPStatus.FORBIDDEN,
            True,
        )
        account = Client(
            world.api.transport(user=service_account_user(NAMESPACE, SERVICE_ACCOUNT)), clock=clock, random=Random(3)
        )
        with pytest.raises(Forbidden, match="impersonate-on:user-info:list"):
            await reader.impersonating_client(account).list(CUSTOM_RESOURCE_DEFINITIONS)


@pytest.mark.parametrize("acts", list(Impersonation))
async def test_operator_account_may_not_impersonate(clock: Clock, acts: Impersonation) -> None:
    """Only the account of the dashboard does, and only for people whom a proxy names."""
    world = await a_world(clock, impersonation=acts)
    with pytest.raises(Forbidden, match="cannot impersonate"):
        await OLGA.impersonating_client(world.client).list(NODE_MAINTENANCES)
    await world.execute("start", node="n1")
    assert world.writers("nodemaintenances") == ["olga"]
    assert {entry.request.headers[0][0] for entry in requests_of(world) if entry.request.headers} == {
        "Impersonate-User"
    }


async def test_impersonation_token_is_cached_and_renewed(clock: Clock) -> None:
    world = await a_world(clock)
    for _ in range(3):
        await world.execute("hold", node="n1")
        await world.execute("release", node="n1")
    assert len(token_requests(world)) == 1
    await clock.sleep(TOKEN_LIFETIME)
    await world.execute("hold", node="n1")
    assert len(token_requests(world)) == 2


async def test_recreated_service_account_is_used_after_one_failure(clock: Clock) -> None:
    world = await a_world(clock)
    await world.execute("hold", node="n1")
    account = world.api.get("serviceaccounts", SERVICE_ACCOUNT, NAMESPACE)
    world.api.remove("serviceaccounts", SERVICE_ACCOUNT, NAMESPACE)
    world.api.put({**account, "metadata": {"name": SERVICE_ACCOUNT, "namespace": NAMESPACE, "uid": "another"}})
    assert (await world.refusal_of("release", node="n1"))[0] is HTTPStatus.UNAUTHORIZED
    await world.execute("release", node="n1")


async def test_missing_service_account_is_named_with_the_command_that_prints_it(clock: Clock) -> None:
    world = await a_world(clock)
    world.api.remove("serviceaccounts", SERVICE_ACCOUNT, NAMESPACE)
    status, reason = await world.refusal_of("start", node="n1")
    assert (status, f"ServiceAccount {NAMESPACE}/{SERVICE_ACCOUNT}" in reason) == (HTTPStatus.FORBIDDEN, True)
    assert "`haulout manifests --dashboard-auth proxy --dashboard-actions constrained` prints both" in reason
    assert await world.executor.allowed_actions(Caller(OLGA)) == ()


async def test_token_is_not_part_of_any_repr(clock: Clock) -> None:
    world = await a_world(clock)
    world.api.add_token("s3cret", service_account_user(NAMESPACE, "robot"))
    caller = Caller(User.of("robot"), Token("s3cret"))
    request = Request(method="GET", path="/", token=caller.token)
    assert "s3cret" not in f"{caller!r} {request!r}"


def requests_of(world: World) -> list[Any]:
    """Return what the operator's transport has sent."""
    found: list[Any] = world.client.transport.requests  # type: ignore[attr-defined] # of the sandbox
    return found


def token_requests(world: World) -> list[Any]:
    """Return its requests for tokens."""
    return [entry for entry in requests_of(world) if entry.request.path.endswith("/token")]


async def test_token_scopes_are_impersonated_or_the_action_is_refused(clock: Clock) -> None:
    scoped = User.of("olga", extra={"scopes.authorization.openshift.io": ["user:info"]})
    headers: dict[str, str] = {}
    world = await a_world(clock, impersonation=Impersonation.UNRESTRICTED)
    await world.execute("start", scoped, node="n1")
    for request in world.client.transport.requests:  # type: ignore[attr-defined] # of the sandbox
        headers |= dict(request.request.headers)
    assert headers["Impersonate-Extra-scopes.authorization.openshift.io"] == "user:info"
    narrow = await a_world(clock)
    assert (await narrow.refusal_of("start", scoped, node="n1"))[0] is HTTPStatus.FORBIDDEN


@pytest.mark.parametrize("name", ["", "admin ", " admin", "olga\r\nImpersonate-Group: system:masters"])
def test_user_names_that_headers_would_alter_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        User.of(name)
    with pytest.raises(ValueError, match="expected"):
        User.of("olga", groups=[name or "\n"])
