"""What `haulout status` says: a table of nodes, one node in detail, or JSON for programs."""

from collections.abc import Iterable, Iterator
from datetime import datetime

import click
import msgspec

from haulout.cli import documents
from haulout.cli.holders import Holder, Presence, elapsed, since
from haulout.cli.node_status import NodeStatus, Standings
from haulout.cli.noticing.text import NoticeJson, announced, notice_json
from haulout.cli.tables import columns
from haulout.cli.terminal import aligned, printable
from haulout.drain.words import pods
from haulout.maintenance.lease import HOLDER
from haulout.maintenance.resource import NodeMaintenance, StatusBlocker

_HEADER = ("NODE", "STATE", "HELD BY", "SINCE", "DRAINED", "BLOCKED BY", "NEXT LOOK")
_NAMED = 10


# All nodes


def table(standings: Standings, *, everything: bool) -> list[str]:
    """Return a line for each node that there is something to say about, or for all."""
    return [*_table(standings, everything=everything), *_announced(standings.nodes)]


def _table(standings: Standings, *, everything: bool) -> list[str]:
    shown = [it for it in standings.nodes if everything or it.has_news]
    rows = [_HEADER, *(_row(it, standings.now) for it in shown)]
    lines = list(columns([[printable(cell) for cell in row] for row in rows])) if shown else []
    quiet = len(standings.nodes) - len(shown)
    if not shown:
        return [f"All {quiet} nodes are in service." if quiet else "There are no nodes."]
    if quiet:
        lines += ["", "1 other node is in service." if quiet == 1 else f"{quiet} other nodes are in service."]
    return lines


def _announced(nodes: Iterable[NodeStatus]) -> list[str]:
    """Return a line for each maintenance that is announced and near."""
    rows = [(f"  {printable(it.name)}", announced(notice)) for it in nodes for notice in it.notices]
    return ["", "Announced:", *aligned(rows)] if rows else []


def _row(status: NodeStatus, now: datetime) -> tuple[str, ...]:
    holders = _held_by(status)
    begun = [it.since for it in status.holders] + [
        it.metadata.creation_timestamp for it in status.maintenances if it.metadata.creation_timestamp
    ]
    blockers = status.blockers
    more = f" and {len(blockers) - 1} more" if len(blockers) > 1 else ""
    return (
        status.name,
        status.state,
        ", ".join(holders) or "-",
        elapsed(now - min(begun)) if begun else "-",
        f"{min(it.status.drain_progress for it in status.maintenances)}%" if status.maintenances else "-",
        f"{blockers[0].object or blockers[0].kind}{more}" if blockers else "-",
        _ahead(status.next_look, now) or "-",
    )


def _held_by(status: NodeStatus) -> list[str]:
    named = {it.name: f"{it.name} (no more)" if it.presence is Presence.GONE else it.name for it in status.holders}
    for it in status.maintenances:
        named.setdefault(f"NodeMaintenance {it.name}", f"NodeMaintenance {it.name}")
    names = list(named.values())
    if status.lease and status.lease_until and status.lease.spec.holder_identity != HOLDER:
        names.append(f"lease of {status.lease.spec.holder_identity or 'somebody unnamed'}")
    if status.hold is not None:
        names.append(f"a hold of {status.hold.by or 'somebody unnamed'}")
    if not names and status.is_cordoned:
        names.append("a person or another tool")
    return names


# One node


def details(status: NodeStatus, now: datetime) -> list[str]:
    """Return all there is to say about one node."""
    rows = [(click.style(name, bold=True), text) for name, text in _facts(status, now)]
    return aligned(rows)


def _facts(status: NodeStatus, now: datetime) -> Iterator[tuple[str, str]]:
    yield "Node", status.name
    yield "State", status.state
    if status.node is not None:
        yield "Cordoned", _cordoned(status, now)
    if status.hold is not None:
        yield "Hold", f"{status.hold}; to end that: haulout release {status.name}"
    elif status.was_held is not None:
        yield "Hold", f"over: {status.was_held}"
    yield from (("Held by", _holder(it, now)) for it in status.holders)
    if status.bad_mark:
        yield "Mark", status.bad_mark
    for it in status.maintenances:
        yield from _maintenance(it, now)
    yield from (("Announced", announced(it)) for it in status.notices)
    if status.lease is not None:
        yield "Lease", _lease(status, now)
    if status.pods is not None:
        ending = sum(pod.metadata.deletion_timestamp is not None for pod in status.pods)
        yield "Pods", pods(len(status.pods)) + (f", of which {ending} are ending" if ending else "")
    yield from _ahead_of_it(status, now)


def _ahead_of_it(status: NodeStatus, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield what stands in the way, and what comes next."""
    for blocker in status.blockers[:_NAMED]:
        yield "Blocked by", _blocker(blocker, now)
    if len(status.blockers) > _NAMED:
        yield "", f"and {len(status.blockers) - _NAMED} more"
    if status.next_look is not None:
        yield "Next look", f"{status.next_look:%H:%M:%S} UTC ({_ahead(status.next_look, now)})"
    if status.orphans:
        yield "To clear up", f"haulout uncordon {status.name}"


def _cordoned(status: NodeStatus, now: datetime) -> str:
    if not status.is_cordoned:
        return "no"
    if status.mark is None or not status.mark.owners:
        return "yes, by a person or another tool; to end that: haulout uncordon " + status.name
    first = min(it.since for it in status.mark.owners.values())
    after = "it stays so afterwards, for a person had cordoned it" if status.mark.before.unschedulable else ""
    return f"yes, since {since(first, now=now)}" + (f"; {after}" if after else "")


def _holder(holder: Holder, now: datetime) -> str:
    if holder.presence is Presence.GONE:
        return f"{holder.told(now=now)}: what it left is an orphan"
    ends = f"; to end that: {holder.ends_by}" if holder.ends_by else ""
    return holder.told(now=now) + ends


def _maintenance(it: NodeMaintenance, now: datetime) -> Iterator[tuple[str, str]]:
    state = it.status
    created = it.metadata.creation_timestamp
    text = f"{it.name}: {state.phase or 'the operator has not looked at it yet'}"
    text += f", {state.drain_progress}% drained" if state.phase else ""
    text += f", created {since(created, now=now)}" if created else ""
    text += ", being deleted" if it.is_leaving else ""
    yield "Maintenance", text
    if it.spec.reason:
        yield "  Reason", it.spec.reason
    if state.drain is not None:
        drain = state.drain
        left = max(len(state.pending_pods) - drain.leaving, 0)
        yield "  Pods", f"{drain.gone} gone, {drain.leaving} ending, {left} to go"
        if drain.deadline is not None:
            yield "  Deadline", f"{drain.deadline:%Y-%m-%d %H:%M:%S} UTC ({_ahead(drain.deadline, now) or 'now'})"
    elif state.pending_pods:
        yield "  Pods", f"{len(state.pending_pods)} of {state.eviction_pods} to go"
    if state.last_error:
        yield "  Last error", state.last_error


def _lease(status: NodeStatus, now: datetime) -> str:
    holder = (status.lease.spec.holder_identity if status.lease else None) or "somebody unnamed"
    if status.lease_until is None:
        return f"ran out; the last to hold it was {holder}"
    return f"held by {holder} until {status.lease_until:%H:%M:%S} UTC ({_ahead(status.lease_until, now)})"


def _blocker(blocker: StatusBlocker, now: datetime) -> str:
    begun = f" (for {elapsed(now - blocker.since)})" if blocker.since else ""
    whose = f"{blocker.pod}: " if blocker.pod else ""
    return f"{whose}{blocker.reason}{begun}" + (f"; {blocker.advice}" if blocker.advice else "")


def _ahead(instant: datetime | None, now: datetime) -> str:
    if instant is None:
        return ""
    return f"in {elapsed(instant - now)}" if instant > now else "due"


# For programs


class _Json(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class _HolderJson(_Json, frozen=True):
    owner: str
    since: datetime
    presence: str


class _HoldJson(_Json, frozen=True):
    by: str
    reason: str
    until: datetime | None
    problem: str
    is_over: bool


class _LeaseJson(_Json, frozen=True):
    holder: str | None
    until: datetime | None


class _MaintenanceJson(_Json, frozen=True):
    name: str
    reason: str
    phase: str
    progress: int
    created: datetime | None
    deleted: datetime | None
    last_error: str
    pending_pods: tuple[str, ...]
    next_look: datetime | None
    blockers: tuple[StatusBlocker, ...]


class _NodeJson(_Json, frozen=True):
    node: str
    exists: bool
    state: str
    ready: bool
    cordoned: bool
    cordoned_before: bool | None
    holders: tuple[_HolderJson, ...]
    maintenances: tuple[_MaintenanceJson, ...]
    lease: _LeaseJson | None
    pods: int | None
    notices: tuple[NoticeJson, ...]
    hold: _HoldJson | None
    problem: str


class _StandingsJson(_Json, frozen=True):
    nodes: tuple[_NodeJson, ...]
    notes: tuple[str, ...]


def as_json(standings: Standings, *, everything: bool) -> bytes:
    """Return it for programs; `haulout status --help` documents the fields."""
    nodes = tuple(_node_json(it) for it in standings.nodes if everything or it.has_news or it.notices)
    return documents.as_json(_StandingsJson(nodes=nodes, notes=standings.notes))


def _node_json(status: NodeStatus) -> _NodeJson:
    lease = status.lease
    return _NodeJson(
        node=status.name,
        exists=status.node is not None,
        state=status.state,
        ready=status.is_ready,
        cordoned=status.is_cordoned,
        cordoned_before=None if status.mark is None else status.mark.before.unschedulable,
        holders=tuple(_HolderJson(owner=it.owner, since=it.since, presence=it.presence) for it in status.holders),
        maintenances=tuple(map(_maintenance_json, status.maintenances)),
        lease=None if lease is None else _LeaseJson(holder=lease.spec.holder_identity, until=status.lease_until),
        pods=None if status.pods is None else len(status.pods),
        notices=tuple(map(notice_json, status.notices)),
        hold=_hold_json(status),
        problem=status.bad_mark,
    )


def _hold_json(status: NodeStatus) -> _HoldJson | None:
    hold = status.hold or status.was_held
    if hold is None:
        return None
    is_over = status.hold is None
    return _HoldJson(by=hold.by, reason=hold.reason, until=hold.until, problem=hold.problem, is_over=is_over)


def _maintenance_json(it: NodeMaintenance) -> _MaintenanceJson:
    state = it.status
    refs = tuple(f"{ref.namespace}/{ref.name}" for ref in state.pending_pods_refs)
    return _MaintenanceJson(
        name=it.name,
        reason=it.spec.reason,
        phase=state.phase,
        progress=state.drain_progress,
        created=it.metadata.creation_timestamp,
        deleted=it.metadata.deletion_timestamp,
        last_error=state.last_error,
        pending_pods=refs or state.pending_pods,
        next_look=state.next_look,
        blockers=state.blockers,
    )
