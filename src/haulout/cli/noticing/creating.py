"""Announcing a maintenance: from what was typed to a MaintenanceNotice.

The name comes from the source and the id, as for clouds: repeating a command with the same id changes the same object
to what the command says now. Whatever happens to a write on its way, what is there afterwards is looked at, so that
nothing is announced twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from haulout.cli.nodes import meant
from haulout.cli.noticing.retrying import pause
from haulout.cli.noticing.sights import missing_kind, sight
from haulout.errors import Forbidden, HauloutError, KubeError, NotFound, UsageError
from haulout.kinds.notice import MAINTENANCE_NOTICES, Kind, MaintenanceNotice, Spec, Stage, name_of
from haulout.kube.client import Client
from haulout.kube.objects import Node, RawObject
from haulout.kube.patches import difference, merge_patch
from haulout.kube.resources import NODES

_RAW = MAINTENANCE_NOTICES.of(RawObject)
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # as generated names of Kubernetes have, which spell no words
_SUFFIX = 5


class Verb(StrEnum):
    """What became of it, in kubectl's words."""

    CREATED = "created"
    CHANGED = "configured"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be announced."""

    node: str
    kind: Kind
    source: str
    start: datetime
    end: datetime | None = None
    deadline: datetime | None = None
    reason: str = ""
    description: str = ""
    notice_id: str = ""  # empty: another one than all before
    may_be_unknown: bool = False  # the node
    dry_run: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What came of it."""

    raw: RawObject
    verb: Verb
    node: Node | None
    changes: tuple[str, ...] = ()

    @property
    def notice(self) -> MaintenanceNotice:
        """The notice."""
        return msgspec.convert(self.raw, MaintenanceNotice)


def check(wanted: Wanted, *, now: datetime) -> None:
    """Raise `UsageError` for times that make no sense."""
    start, end, deadline = wanted.start, wanted.end, wanted.deadline
    if end is not None and end <= start:
        raise UsageError(f"--end: {end:%Y-%m-%d %H:%M:%S} UTC is not after the start, {start:%Y-%m-%d %H:%M:%S} UTC")
    if end is not None and end <= now:
        raise UsageError(f"--end: {end:%Y-%m-%d %H:%M:%S} UTC is over, so that nothing would be done")
    if deadline is not None and deadline < start:
        raise UsageError(
            f"--deadline: {deadline:%Y-%m-%d %H:%M:%S} UTC is before the start, {start:%Y-%m-%d %H:%M:%S} UTC"
        )


async def create(client: Client, wanted: Wanted) -> Made:
    """Announce it; raises `HauloutError`."""
    node = await _node(client, wanted)
    notice_id = wanted.notice_id or _new_id(client, wanted)
    attempt = 0
    while True:
        name, spec = name_of(wanted.source, notice_id), _spec(wanted, notice_id, node)
        found = await _find(client, name) if wanted.notice_id or attempt else None
        if found is not None and not wanted.notice_id and found.spec != spec:
            notice_id = _new_id(client, wanted)  # another one happens to have this name
            continue
        try:
            if found is None:
                return Made(raw=await _create(client, name, spec, wanted.dry_run), verb=Verb.CREATED, node=node)
            return await _change(client, found, spec, wanted=wanted, node=node, is_ours=attempt > 0)
        except KubeError as error:
            if found is None and isinstance(error, NotFound):
                raise await missing_kind(client, error) from error
            attempt += 1
            await pause(client, error, attempt=attempt)


async def _node(client: Client, wanted: Wanted) -> Node | None:
    try:
        return await client.get(NODES, wanted.node)
    except NotFound:
        if wanted.may_be_unknown:
            return None
        raise KubeError(
            f'nodes "{wanted.node}" not found; nothing was announced (for a node that is to come: --yes-unknown)'
            f"{await meant(client, wanted.node)}"
        ) from None
    except Forbidden:
        if wanted.may_be_unknown:
            return None
        raise


def _new_id(client: Client, wanted: Wanted) -> str:
    return f"{wanted.node}-{''.join(client.random.choices(_LETTERS, k=_SUFFIX))}"


def _spec(wanted: Wanted, notice_id: str, node: Node | None) -> Spec:
    return Spec(
        node_name=wanted.node,
        provider_id="" if node is None else node.spec.provider_id,
        source=wanted.source,
        notice_id=notice_id,
        kind=wanted.kind,
        reason=wanted.reason,
        description=wanted.description,
        start=wanted.start,
        end=wanted.end,
        deadline=wanted.deadline,
    )


async def _find(client: Client, name: str) -> MaintenanceNotice | None:
    try:
        return await client.get(MAINTENANCE_NOTICES, name)
    except NotFound:
        return None


async def _create(client: Client, name: str, spec: Spec, dry_run: str) -> RawObject:
    body: RawObject = {
        "apiVersion": MAINTENANCE_NOTICES.api_version,
        "kind": MAINTENANCE_NOTICES.kind,
        "metadata": {"name": name},
        "spec": msgspec.to_builtins(spec),
    }
    body["spec"]["kind"] = spec.kind  # said, even if it is what the server would take it for
    return body if dry_run == "client" else await client.create(_RAW, body, dry_run=dry_run == "server")


async def _change(
    client: Client, found: MaintenanceNotice, spec: Spec, *, wanted: Wanted, node: Node | None, is_ours: bool
) -> Made:
    """Make it say what is wanted, beside what others said about it."""
    before = found.spec
    _assert_changeable(found, wanted, now=client.clock.now())
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
        raw = await client.get(_RAW, found.name)
        return Made(raw=raw, verb=Verb.CREATED if is_ours else Verb.UNCHANGED, node=node)
    basis = {"uid": found.uid, "resourceVersion": found.resource_version}
    patch = merge_patch({"metadata": basis, "spec": change})
    if wanted.dry_run == "client":
        raw = await client.get(_RAW, found.name)
        raw = {**raw, "spec": msgspec.to_builtins(new)}
    else:
        raw = await client.patch(_RAW, found.name, patch, dry_run=wanted.dry_run == "server")
    return Made(raw=raw, verb=Verb.CHANGED, node=node, changes=tuple(_told(before, new)))


def _assert_changeable(found: MaintenanceNotice, wanted: Wanted, *, now: datetime) -> None:
    spec, stands = found.spec, sight(found, now=now)
    if spec.node_name != wanted.node:
        about = f"node {spec.node_name}" if spec.node_name else f"machine {spec.provider_id}"
        raise HauloutError(
            f"notice {found.name} is about {about}: take another --id, or call that off: "
            f"haulout notice cancel {found.name}"
        )
    if spec.stage in (Stage.CANCELLED, Stage.ENDED):
        raise HauloutError(f"notice {found.name} is over ({stands.standing.why}): take another --id")
    if stands.is_by_a_source:
        raise HauloutError(f"notice {found.name} is written by {spec.source or 'another'}: take another --id")


def _told(before: Spec, after: Spec) -> Iterator[str]:
    for name in ("kind", "start", "end", "deadline", "reason", "description"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield f"{name}: {_value(old)} → {_value(new)}"


def _value(value: object) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S} UTC" if isinstance(value, datetime) else str(value or "none")
