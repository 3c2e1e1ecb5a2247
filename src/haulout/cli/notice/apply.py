"""Create or update a MaintenanceNotice from the command line.

The name is derived from source and id, as for clouds: a command with the same id updates the same object. Whatever
happens to a write on its way, the next attempt reads the object first, so that no notice is created twice.

Retry a write whose result is unknown, or that conflicted with another.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from haulout.api.maintenancenotice import (
    MAINTENANCE_NOTICES,
    MaintenanceKind,
    MaintenanceNotice,
    MaintenanceNoticeSpec,
    NoticeStage,
    object_name,
)
from haulout.api.objects import Node, RawObject
from haulout.api.resources import NODES
from haulout.cli.node_lookup import suggest_node
from haulout.cli.notice.notice_view import missing_kind_error, view_of
from haulout.core.backoff import CONFLICT
from haulout.core.retry import Retry
from haulout.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    HauloutError,
    KubeError,
    NotFound,
    ServerFailure,
    Unreachable,
    UsageError,
)
from haulout.kube.client import Client
from haulout.kube.patches import difference, merge_patch

_RAW = MAINTENANCE_NOTICES.with_model(RawObject)
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # the alphabet of Kubernetes' generated names, which cannot spell words
_SUFFIX_LENGTH = 5

_MAX_ATTEMPTS = 5


class ApplyVerb(StrEnum):
    """The result, in kubectl's words."""

    CREATED = "created"
    CHANGED = "configured"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRequest:
    """The notice to create."""

    node: str
    kind: MaintenanceKind
    source: str
    start: datetime
    end: datetime | None = None
    deadline: datetime | None = None
    reason: str = ""
    description: str = ""
    notice_id: str = ""  # empty: generate a new one
    allow_unknown_node: bool = False  # accept a node that does not exist
    dry_run: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyResult:
    """The result of the command."""

    raw: RawObject
    verb: ApplyVerb
    node: Node | None
    changes: tuple[str, ...] = ()

    @property
    def notice(self) -> MaintenanceNotice:
        return msgspec.convert(self.raw, MaintenanceNotice)


def check_times(request: NoticeRequest, *, now: datetime) -> None:
    """Raise `UsageError` for contradicting times."""
    start, end, deadline = request.start, request.end, request.deadline
    if end is not None and end <= start:
        raise UsageError(f"--end: expected a time after the start, {_format_value(start)}, found {_format_value(end)}")
    if end is not None and end <= now:
        raise UsageError(f"--end: {_format_value(end)} is in the past, so the notice would have no effect")
    if deadline is not None and deadline < start:
        raise UsageError(
            f"--deadline: expected a time not before the start, {_format_value(start)}, found {_format_value(deadline)}"
        )


async def apply_notice(client: Client, request: NoticeRequest) -> ApplyResult:
    """Create or update the notice; raise `HauloutError`."""
    node = await _get_node(client, request)
    notice_id = request.notice_id or _new_id(client, request)
    retry = new_retry(client)
    while True:
        name, spec = object_name(request.source, notice_id), _notice_spec(request, notice_id, node)
        existing = await client.find(MAINTENANCE_NOTICES, name) if request.notice_id or retry.failures else None
        if existing is not None and not request.notice_id and existing.spec != spec:
            notice_id = _new_id(client, request)  # another notice has the generated name
            continue
        try:
            if existing is None:
                return ApplyResult(
                    raw=await _create_notice(client, name, spec, request.dry_run), verb=ApplyVerb.CREATED, node=node
                )
            return await _update_notice(
                client, existing, spec, request=request, node=node, is_own_write=retry.failures > 0
            )
        except KubeError as error:
            if existing is None and isinstance(error, NotFound):
                raise await missing_kind_error(client, error) from error
            if not may_retry(error):
                raise
            await retry.wait(error)


async def _get_node(client: Client, request: NoticeRequest) -> Node | None:
    try:
        return await client.get(NODES, request.node)
    except NotFound:
        if request.allow_unknown_node:
            return None
        raise KubeError(
            f'nodes "{request.node}" not found; no notice was created (for a node that does not exist yet: '
            "--allow-unknown-node)"
            f"{await suggest_node(client, request.node)}"
        ) from None
    except Forbidden:
        if request.allow_unknown_node:
            return None
        raise


def _new_id(client: Client, request: NoticeRequest) -> str:
    return f"{request.node}-{''.join(client.random.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH))}"


def _notice_spec(request: NoticeRequest, notice_id: str, node: Node | None) -> MaintenanceNoticeSpec:
    return MaintenanceNoticeSpec(
        node_name=request.node,
        provider_id="" if node is None else node.spec.provider_id,
        source=request.source,
        notice_id=notice_id,
        kind=request.kind,
        reason=request.reason,
        description=request.description,
        start=request.start,
        end=request.end,
        deadline=request.deadline,
    )


async def _create_notice(client: Client, name: str, spec: MaintenanceNoticeSpec, dry_run: str) -> RawObject:
    body: RawObject = {
        "apiVersion": MAINTENANCE_NOTICES.api_version,
        "kind": MAINTENANCE_NOTICES.kind,
        "metadata": {"name": name},
        "spec": msgspec.to_builtins(spec),
    }
    body["spec"]["kind"] = spec.kind  # explicit, even if it equals the server's default
    return body if dry_run == "client" else await client.create(_RAW, body, dry_run=dry_run == "server")


async def _update_notice(
    client: Client,
    existing: MaintenanceNotice,
    spec: MaintenanceNoticeSpec,
    *,
    request: NoticeRequest,
    node: Node | None,
    is_own_write: bool,
) -> ApplyResult:
    """Update the fields that the command sets, and keep those of other writers."""
    before = existing.spec
    _check_changeable(existing, request, now=client.clock.now())
    new = msgspec.structs.replace(
        before,
        **{name: getattr(spec, name) for name in ("kind", "reason", "description", "start", "end", "deadline")},
        node_name=spec.node_name,
        provider_id=spec.provider_id or before.provider_id,
        source=spec.source,
        notice_id=spec.notice_id,
    )
    change = difference(msgspec.to_builtins(before), msgspec.to_builtins(new))
    if not change:
        raw = await client.get(_RAW, existing.name)
        return ApplyResult(raw=raw, verb=ApplyVerb.CREATED if is_own_write else ApplyVerb.UNCHANGED, node=node)
    patch = merge_patch({"metadata": existing.preconditions, "spec": change})
    if request.dry_run == "client":
        raw = await client.get(_RAW, existing.name)
        raw = {**raw, "spec": msgspec.to_builtins(new)}
    else:
        raw = await client.patch(_RAW, existing.name, patch, dry_run=request.dry_run == "server")
    return ApplyResult(raw=raw, verb=ApplyVerb.CHANGED, node=node, changes=tuple(_change_lines(before, new)))


def _check_changeable(existing: MaintenanceNotice, request: NoticeRequest, *, now: datetime) -> None:
    spec, view = existing.spec, view_of(existing, now=now)
    if spec.node_name != request.node:
        about = f"node {spec.node_name}" if spec.node_name else f"machine {spec.provider_id}"
        raise HauloutError(
            f"notice {existing.name} is about {about}: use another --id, or cancel it: "
            f"haulout notice cancel {existing.name}"
        )
    if spec.stage in (NoticeStage.CANCELLED, NoticeStage.ENDED):
        raise HauloutError(f"notice {existing.name} has ended ({view.phase_status.message}): use another --id")
    if view.is_by_a_source:
        raise HauloutError(f"notice {existing.name} belongs to source {spec.source or 'unknown'}: use another --id")


def _change_lines(before: MaintenanceNoticeSpec, after: MaintenanceNoticeSpec) -> Iterator[str]:
    for name in ("kind", "start", "end", "deadline", "reason", "description"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield f"{name}: {_format_value(old)} → {_format_value(new)}"


def _format_value(value: object) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S} UTC" if isinstance(value, datetime) else str(value or "none")


def new_retry(client: Client) -> Retry:
    return Retry(client.clock, client.random, CONFLICT, max_attempts=_MAX_ATTEMPTS, max_retry_after=CONFLICT.limit)


def may_retry(error: KubeError) -> bool:
    """Return whether another writer was faster, or the write may have worked."""
    is_overtaken = isinstance(error, AlreadyExists | Conflict | NotFound)
    return is_overtaken or isinstance(error, ServerFailure) or (isinstance(error, Unreachable) and error.sent)
