"""Actions of dashboard users: each is a write to the API server in the name of the user.

    response = await executor.execute(action, caller)

Writes use the user's identity (`haulout.dashboard.auth.user_clients`): the API server authorizes them, calls its
webhooks, and names the user in its audit log. Reads use the operator's identity, because everyone with access to the
dashboard sees this data anyway. No leader is needed. Actions are idempotent: the answer says if nothing was left to do.

An executed action is recorded in the history of the node, with the user's name, and as an event. Failures of both are
ignored. Actions are validated strictly: no superfluous fields, and only valid names.
"""

import asyncio
import logging
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, timedelta
from http import HTTPStatus

from haulout.api import annotations, hold
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, NoticeStage, phase_at
from haulout.api.maintenancerecord import Entry, NewEntry, truncate
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.objects import Node, RawObject
from haulout.api.reasons import DashboardEventReason
from haulout.api.resources import NODES
from haulout.controllers.notices.cancellation import cancel_objection, stage_patch
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.explain import approval
from haulout.controllers.profiles.explain.approval import ApprovalError, awaited_approval
from haulout.dashboard.api.backend import HttpError
from haulout.dashboard.api.nodes.commands import node_maintenance_manifest, start_maintenance_command
from haulout.dashboard.api.requests import bad_request
from haulout.dashboard.api.types import Action, ActionResponse, ActionType
from haulout.dashboard.auth.permissions import AllowedActions
from haulout.dashboard.auth.user_clients import Caller, UserClient, UserClients
from haulout.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    ImpersonationUnavailable,
    Invalid,
    KubeError,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from haulout.history.pending_entries import Backlog
from haulout.history.writer import HistoryWriter
from haulout.kube.client import Client
from haulout.kube.patches import node_patch
from haulout.kube.recorder import EventRecorder, object_reference

log = logging.getLogger(__name__)

REPORTER = annotations.DASHBOARD_REPORTER
_FLUSH_TIMEOUT = timedelta(seconds=2)
_MAX_NAME_LENGTH = 200
_quote = shlex.quote

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_OBJECT_NAME_LENGTH = 253
_MAX_REASON_LENGTH = 1000
_ALLOWED_FIELDS: Mapping[ActionType, tuple[str, ...]] = {
    ActionType.APPROVE: ("node", "profile", "check", "reason"),
    ActionType.HOLD: ("node", "reason", "until"),
    ActionType.RELEASE: ("node", "reason"),
    ActionType.START: ("node", "reason"),
    ActionType.CANCEL: ("node", "maintenance", "notice", "reason"),
}
_REQUIRED_FIELDS: Mapping[ActionType, tuple[str, ...]] = {
    ActionType.APPROVE: ("node", "profile", "check"),
    ActionType.HOLD: ("node",),
    ActionType.RELEASE: ("node",),
    ActionType.START: ("node",),
    ActionType.CANCEL: (),
}

_IMPERSONATION_DENIED = re.compile(r"cannot impersonate[ :-]|impersonating the .* is not allowed")
_UNAUTHORIZED = HTTPStatus.UNAUTHORIZED
_STATUSES: dict[type[ApiError], HTTPStatus] = {
    Forbidden: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    AlreadyExists: HTTPStatus.CONFLICT,
    Conflict: HTTPStatus.CONFLICT,
    Invalid: HTTPStatus.BAD_REQUEST,
    BadRequest: HTTPStatus.BAD_REQUEST,
    TooManyRequests: HTTPStatus.TOO_MANY_REQUESTS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """The result of an action and its record; without `object` nothing was left to do."""

    response: ActionResponse
    node: Node | None = None
    object: str = ""  # as in history entries
    result: str = ""
    event_reason: str = ""


class ActionExecutor:
    """Executes actions of users; `identity` is that of this replica, and `namespace` that of the operator."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        identity: str,
        configuration: Callable[[], Configuration | None] = lambda: None,
    ) -> None:
        self._client = client
        self._identity = identity
        self._configuration = configuration
        self._user_clients = UserClients(client, namespace=namespace)
        self._allowed_actions = AllowedActions(client.clock, self._user_clients)
        self._history_backlog = Backlog()  # history entries that could not be written: the next action retries
        self._handlers: dict[ActionType, Callable[[Action, UserClient], Awaitable[ActionResult]]] = {
            ActionType.APPROVE: self._approve,
            ActionType.HOLD: self._hold,
            ActionType.RELEASE: self._release,
            ActionType.START: self._start,
            ActionType.CANCEL: self._cancel,
        }

    async def allowed_actions(self, caller: Caller) -> tuple[ActionType, ...]:
        """Return what a user may do, as far as known in advance."""
        return await self._allowed_actions.for_caller(caller)

    async def execute(self, action: Action, caller: Caller) -> ActionResponse:
        """Execute an action as a user; raise `HttpError`."""
        validate(action)
        try:
            user = await self._user_clients.client_for(caller)
            result = await self._handlers[action.action](action, user)
        except KubeError as error:
            if isinstance(error, Unauthorized):
                self._user_clients.discard_token()
            log.info("action of %s was refused: %s: %s", caller.user.name, action.action, error)
            raise to_http_error(error, user=caller.user.name) from None
        if result.object:
            log.info(
                "%s: %s", user.name, result.response.message, extra={"node": result.node.name if result.node else ""}
            )
            await self._record(result, action, user)
        return result.response

    # Actions

    async def _start(self, action: Action, user: UserClient) -> ActionResult:
        """Create a NodeMaintenance; it has the name of its node, so that repeated requests create only one."""
        node = await self._get_node(action.node)
        reason = action.reason or f"requested by {truncate(user.name, _MAX_NAME_LENGTH)} from the dashboard"
        try:
            created = await user.client.create(NODE_MAINTENANCES, node_maintenance_manifest(node.name, reason=reason))
        except AlreadyExists:
            return await self._existing_maintenance(node)
        response = ActionResponse(
            message=f"Created NodeMaintenance {created.name}: node {node.name} is cordoned and drained within the"
            " budget.",
            command=start_maintenance_command(node.name, reason=reason),
        )
        return ActionResult(
            response=response,
            node=node,
            object=f"NodeMaintenance/{created.name}",
            result="created",
            event_reason=DashboardEventReason.MAINTENANCE_CREATED,
        )

    async def _existing_maintenance(self, node: Node) -> ActionResult:
        found = await self._client.get(NODE_MAINTENANCES, node.name)
        if found.node != node.name:
            text = f"NodeMaintenance {found.name} already exists, for node {found.node}: delete it first"
            raise HttpError(text, HTTPStatus.CONFLICT)
        if found.is_being_deleted:
            raise HttpError(
                f"NodeMaintenance {found.name} is being deleted: try again when it is gone", HTTPStatus.CONFLICT
            )
        return ActionResult(response=ActionResponse(message=f"NodeMaintenance {found.name} already exists."))

    async def _cancel(self, action: Action, user: UserClient) -> ActionResult:
        return await (
            self._delete_maintenance(action, user) if action.maintenance else self._cancel_notice(action, user)
        )

    async def _delete_maintenance(self, action: Action, user: UserClient) -> ActionResult:
        """Delete a NodeMaintenance by uid: the one that the user saw, not a later one with the same name."""
        command = f"kubectl delete nodemaintenance {_quote(action.maintenance)}"
        try:
            found = await self._client.get(NODE_MAINTENANCES, action.maintenance)
        except NotFound:
            return ActionResult(
                response=ActionResponse(
                    message=f"NodeMaintenance {action.maintenance} was already deleted.", command=command
                )
            )
        _check_node(action, found.node)
        if found.is_being_deleted:
            return ActionResult(
                response=ActionResponse(
                    message=f"NodeMaintenance {found.name} is already being deleted.", command=command
                )
            )
        await user.client.delete(NODE_MAINTENANCES, found.name, uid=found.uid)
        return ActionResult(
            response=ActionResponse(
                message=f"Deleted NodeMaintenance {found.name}: node {found.node} is uncordoned.", command=command
            ),
            node=await self._find_node(found.node),
            object=f"NodeMaintenance/{found.name}",
            result="cancelled",
            event_reason=DashboardEventReason.CANCELLED,
        )

    async def _cancel_notice(self, action: Action, user: UserClient) -> ActionResult:
        notice = await self._client.get(MAINTENANCE_NOTICES, action.notice)
        _check_node(action, notice.node)
        command = f"haulout notice cancel {_quote(notice.name)}"
        if notice.spec.stage == NoticeStage.CANCELLED:
            return ActionResult(
                response=ActionResponse(message=f"Notice {notice.name} is already cancelled.", command=command)
            )
        objection = cancel_objection(notice, phase_at(notice.spec, now=self._client.clock.now()))
        if objection is not None:
            force = f"; {objection.forced_effect}: {command} --force" if objection.forced_effect else ""
            raise HttpError(f"notice {notice.name} {objection.reason}{force}", HTTPStatus.CONFLICT)
        await user.client.patch(MAINTENANCE_NOTICES, notice.name, stage_patch(notice, NoticeStage.CANCELLED))
        return ActionResult(
            response=ActionResponse(message=f"Notice {notice.name} is cancelled.", command=command),
            node=await self._find_node(notice.node),
            object=f"MaintenanceNotice/{notice.name}",
            result="cancelled",
            event_reason=DashboardEventReason.CANCELLED,
        )

    async def _approve(self, action: Action, user: UserClient) -> ActionResult:
        """Set the label or annotation that a check expects: the configured value, and nothing else."""
        node, configuration = await self._get_node(action.node), self._configuration()
        if configuration is None:
            raise HttpError("no profiles are configured", HTTPStatus.CONFLICT)
        try:
            found = awaited_approval(node, configuration, profile=action.profile, check=action.check, by=user.name)
        except ApprovalError as error:
            raise HttpError(str(error), HTTPStatus.CONFLICT) from None
        command = found.change.command(node)
        if found.is_met:
            return ActionResult(
                response=ActionResponse(message=f"{node.name} is already approved for {action.check}.", command=command)
            )
        await self._patch_node(node, approval.patch([found.change]), user)
        return ActionResult(
            response=ActionResponse(
                message=f"{node.name} is approved for {action.check} of profile {action.profile}.", command=command
            ),
            node=node,
            object=f"profile/{action.profile}",
            result=f"approved: {found.change}",
            event_reason=DashboardEventReason.APPROVED,
        )

    async def _hold(self, action: Action, user: UserClient) -> ActionResult:
        node, now = await self._get_node(action.node), self._client.clock.now()
        if action.until is not None and action.until <= now:
            raise bad_request("`until` must be in the future")
        value = hold.format_annotation(reason=action.reason, by=user.name, until=action.until)
        command = f"haulout hold {_quote(node.name)}{_options(action)}"
        if node.metadata.annotations.get(hold.ANNOTATION) == value:
            return ActionResult(response=ActionResponse(message=f"{node.name} is already held.", command=command))
        await self._patch_node(node, {"metadata": {"annotations": {hold.ANNOTATION: value}}}, user)
        text = f"{node.name} is held: no new maintenance starts on it."
        return ActionResult(
            response=ActionResponse(message=text, command=command),
            node=node,
            object="hold",
            result="held",
            event_reason=DashboardEventReason.HELD,
        )

    async def _release(self, action: Action, user: UserClient) -> ActionResult:
        node = await self._get_node(action.node)
        command = f"haulout release {_quote(node.name)}"
        if hold.hold_of(node) is None:
            return ActionResult(response=ActionResponse(message=f"{node.name} is not held.", command=command))
        await self._patch_node(node, {"metadata": {"annotations": {hold.ANNOTATION: None}}}, user)
        response = ActionResponse(message=f"Maintenance may start on {node.name} again.", command=command)
        return ActionResult(
            response=response, node=node, object="hold", result="released", event_reason=DashboardEventReason.RELEASED
        )

    async def _patch_node(self, node: Node, change: RawObject, user: UserClient) -> None:
        """Patch a node with its uid as precondition, but without resourceVersion: concurrent changes do not matter."""
        about = {**change["metadata"], "uid": node.uid}
        await user.client.patch(NODES, node.name, node_patch({"metadata": about}))

    # Reads and records

    async def _get_node(self, name: str) -> Node:
        return await self._client.get(NODES, name)

    async def _find_node(self, name: str) -> Node | None:
        """Return a node if it exists and can be read."""
        try:
            return await self._get_node(name) if name else None
        except KubeError:
            return None

    async def _record(self, result: ActionResult, action: Action, user: UserClient) -> None:
        if result.node is None:
            return
        now = self._client.clock.now()
        entry = Entry(
            time=now, object=result.object, requested_by=user.name, reason=action.reason, result=result.result
        )
        writer = HistoryWriter(self._client, self._history_backlog)
        writer.add(result.node, NewEntry(entry=entry))
        events = EventRecorder(self._client, instance=self._identity, controller=REPORTER)
        why = f" ({action.reason})" if action.reason else ""
        note = f"{user.name}, from the dashboard: {result.response.message}{why}"
        node_reference = object_reference(NODES, result.node)
        events.event(node_reference, reason=result.event_reason, note=note, action=action.action.title())
        await asyncio.gather(writer.flush(_FLUSH_TIMEOUT), events.flush(_FLUSH_TIMEOUT))


def _options(action: Action) -> str:
    until = f" --until {action.until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if action.until else ""
    return until + (f" --reason {_quote(action.reason)}" if action.reason else "")


def _check_node(action: Action, node: str) -> None:
    if action.node and action.node != node:
        raise HttpError(f"it is about node {node or '(unknown)'}, not {action.node}", HTTPStatus.CONFLICT)


class NoActions:
    """Executes nothing, as on a hub: the nodes that it shows are in other clusters."""

    async def allowed_actions(self, caller: Caller) -> tuple[ActionType, ...]:
        del caller
        return ()

    async def execute(self, action: Action, caller: Caller) -> ActionResponse:
        del action, caller
        raise HttpError(
            "the dashboard of a hub offers no actions: use the dashboard of the workload cluster", HTTPStatus.FORBIDDEN
        )


def validate(action: Action) -> Action:
    """Return a valid action; raise `HttpError`."""
    allowed = _ALLOWED_FIELDS[action.action]
    for name in ("node", "profile", "check", "maintenance", "notice", "reason", "until"):
        value = getattr(action, name)
        if value and name not in allowed:
            raise bad_request(f"{action.action} does not accept `{name}`")
        if not value and name in _REQUIRED_FIELDS[action.action]:
            raise bad_request(f"{action.action} needs `{name}`")
    if action.action is ActionType.CANCEL and bool(action.maintenance) == bool(action.notice):
        raise bad_request(f"{action.action} needs either `maintenance` or `notice`")
    for name in ("node", "maintenance", "notice"):
        value = getattr(action, name)
        if value and (len(value) > _MAX_OBJECT_NAME_LENGTH or not _NAME.fullmatch(value)):
            raise bad_request(f"`{name}` is not a valid name of a Kubernetes object: {value!r:.80}")
    if action.until is not None and action.until.tzinfo is None:
        raise bad_request("`until` needs a time zone, as in 2026-05-01T10:00:00Z")
    if len(action.reason) > _MAX_REASON_LENGTH or not _is_text(action.reason):
        raise bad_request(f"`reason` must be text of at most {_MAX_REASON_LENGTH} characters")
    return action


def _is_text(text: str) -> bool:
    return all(character.isprintable() or character in "\n\t" for character in text)


def to_http_error(error: KubeError, *, user: str) -> HttpError:
    """Return the HTTP error for a failed action."""
    if isinstance(error, Forbidden):
        return HttpError(_forbidden_message(error, user), HTTPStatus.FORBIDDEN)
    if isinstance(error, ImpersonationUnavailable):
        return HttpError(str(error), HTTPStatus.FORBIDDEN)
    if isinstance(error, Unauthorized):
        return HttpError(f"the API server does not accept the token of {user} any more: log in again", _UNAUTHORIZED)
    if isinstance(error, Conflict):
        return HttpError(f"the object has changed in the meantime: reload and try again ({error})", HTTPStatus.CONFLICT)
    status = next(
        (http_status for kind, http_status in _STATUSES.items() if isinstance(error, kind)), HTTPStatus.BAD_GATEWAY
    )
    if isinstance(error, Unreachable) and error.sent:
        return HttpError(
            f"the connection was lost, so the action may or may not be done: reload and check ({error})",
            status,
        )
    return HttpError(str(error), status)


def _forbidden_message(error: Forbidden, user: str) -> str:
    if _IMPERSONATION_DENIED.search(str(error)):
        advice = "`haulout manifests --dashboard-auth proxy --dashboard-actions` prints what to grant"
        return f"Haulout is not allowed to impersonate {user}: {advice} ({error})"
    return f"{user} is not allowed to do this: {error}"
