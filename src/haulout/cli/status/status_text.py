"""Output of `haulout status`: a table of nodes, one node in detail, or JSON."""

from collections.abc import Iterable, Iterator
from datetime import datetime

import click
import msgspec

from haulout.api.nodemaintenance import BlockerStatus, NodeMaintenance
from haulout.cli import output
from haulout.cli.cordon_owners import CordonOwner, OwnerPresence, format_elapsed, format_since
from haulout.cli.notice.notice_text import NoticeJson, notice_json, summary_line
from haulout.cli.output import format_pairs, format_table, printable
from haulout.cli.status.node_status import NodeStatus, StatusReport
from haulout.controllers.nodemaintenance.node_lease import HOLDER
from haulout.core.text import format_count, format_pod_count

_HEADER = ("NODE", "STATE", "CORDONED BY", "SINCE", "DRAINED", "BLOCKED BY", "NEXT RECONCILE")
_MAX_BLOCKERS = 10


# All nodes


def table(report: StatusReport, *, include_all: bool) -> list[str]:
    """Return a line per active freeze, and per noteworthy node, or per node."""
    return [*_freeze_lines(report), *_node_table(report, include_all=include_all), *_notice_lines(report.nodes)]


def _freeze_lines(report: StatusReport) -> list[str]:
    """Return a line per active freeze, and one that is empty."""
    lines = []
    for item in report.freezes:
        count = sum(status.node is not None and item.selects(status.node) for status in report.nodes)
        nodes = f"{format_count(count, 'node')} {'is' if count == 1 else 'are'}"
        lines.append(printable(f"{nodes} {item.to_hold()}; to end that: haulout unfreeze {item.freeze.name}"))
    return [*lines, ""] if lines else []


def _node_table(report: StatusReport, *, include_all: bool) -> list[str]:
    shown = [node_status for node_status in report.nodes if include_all or node_status.is_noteworthy]
    rows = [_HEADER, *(_row(node_status, report.now) for node_status in shown)]
    lines = list(format_table([[printable(cell) for cell in row] for row in rows])) if shown else []
    omitted = len(report.nodes) - len(shown)
    if not shown:
        return [f"All {omitted} nodes are in service." if omitted else "There are no nodes."]
    if omitted:
        lines += ["", "1 other node is in service." if omitted == 1 else f"{omitted} other nodes are in service."]
    return lines


def _notice_lines(nodes: Iterable[NodeStatus]) -> list[str]:
    """Return a line per imminent notice."""
    rows = [
        (f"  {printable(node_status.name)}", summary_line(notice))
        for node_status in nodes
        for notice in node_status.notices
    ]
    return ["", "Announced:", *format_pairs(rows)] if rows else []


def _row(status: NodeStatus, now: datetime) -> tuple[str, ...]:
    owners = _owner_names(status)
    starts = [item.since for item in status.cordon_owners] + [
        item.metadata.creation_timestamp for item in status.maintenances if item.metadata.creation_timestamp
    ]
    blockers = status.blockers
    more = f" and {len(blockers) - 1} more" if len(blockers) > 1 else ""
    return (
        status.name,
        status.state,
        ", ".join(owners) or "-",
        format_elapsed(now - min(starts)) if starts else "-",
        f"{min(item.status.drain_progress for item in status.maintenances)}%" if status.maintenances else "-",
        f"{blockers[0].object or blockers[0].kind}{more}" if blockers else "-",
        _format_until(status.next_look, now) or "-",
    )


def _owner_names(status: NodeStatus) -> list[str]:
    named = {
        item.name: f"{item.name} (deleted)" if item.presence is OwnerPresence.GONE else item.name
        for item in status.cordon_owners
    }
    for item in status.maintenances:
        named.setdefault(f"NodeMaintenance {item.name}", f"NodeMaintenance {item.name}")
    names = list(named.values())
    if status.lease and status.lease_until and status.lease.spec.holder_identity != HOLDER:
        names.append(f"lease of {status.lease.spec.holder_identity or 'an unknown holder'}")
    if status.hold is not None:
        names.append(status.hold.source if status.hold.freeze else f"a hold of {status.hold.by or 'an unknown holder'}")
    if not names and status.is_cordoned:
        names.append("a person or another tool")
    return names


# One node


def detail_lines(status: NodeStatus, now: datetime) -> list[str]:
    rows = [(click.style(name, bold=True), text) for name, text in _facts(status, now)]
    return format_pairs(rows)


def _facts(status: NodeStatus, now: datetime) -> Iterator[tuple[str, str]]:
    yield "Node", status.name
    yield "State", status.state
    if status.node is not None:
        yield "Cordoned", _cordoned_text(status, now)
    if status.hold is not None:
        yield "Hold", f"{status.hold}; to end that: {status.hold.release_command(status.name)}"
    elif status.expired_hold is not None:
        yield "Hold", f"expired: {status.expired_hold}"
    yield from (("Held by", _owner_text(item, now)) for item in status.cordon_owners)
    if status.bad_mark:
        yield "Mark", status.bad_mark
    for item in status.maintenances:
        yield from _maintenance_facts(item, now)
    yield from (("Announced", summary_line(item)) for item in status.notices)
    if status.lease is not None:
        yield "Lease", _lease_text(status, now)
    if status.pods is not None:
        ending = sum(pod.is_being_deleted for pod in status.pods)
        yield "Pods", format_pod_count(len(status.pods)) + (f", {ending} terminating" if ending else "")
    yield from _next_steps(status, now)


def _next_steps(status: NodeStatus, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield the rows about blockers, the next reconcile, and the command that releases deleted cordon owners."""
    for blocker in status.blockers[:_MAX_BLOCKERS]:
        yield "Blocked by", _blocker_text(blocker, now)
    if len(status.blockers) > _MAX_BLOCKERS:
        yield "", f"and {len(status.blockers) - _MAX_BLOCKERS} more"
    if status.next_look is not None:
        yield "Next reconcile", f"{status.next_look:%H:%M:%S} UTC ({_format_until(status.next_look, now)})"
    if status.orphans:
        yield "To repair", f"haulout uncordon {status.name}"


def _cordoned_text(status: NodeStatus, now: datetime) -> str:
    if not status.is_cordoned:
        return "no"
    if status.mark is None or not status.mark.owners:
        return "yes, by a person or another tool; to end that: haulout uncordon " + status.name
    first = min(hold.since for hold in status.mark.owners.values())
    after = (
        "it stays cordoned afterwards, because a user had cordoned it before"
        if status.mark.before.unschedulable
        else ""
    )
    return f"yes, since {format_since(first, now=now)}" + (f"; {after}" if after else "")


def _owner_text(owner: CordonOwner, now: datetime) -> str:
    if owner.presence is OwnerPresence.GONE:
        return f"{owner.describe(now=now)}: its cordon is a leftover"
    hint = f"; to end that: {owner.release_command}" if owner.release_command else ""
    return owner.describe(now=now) + hint


def _maintenance_facts(maintenance: NodeMaintenance, now: datetime) -> Iterator[tuple[str, str]]:
    maintenance_status = maintenance.status
    created = maintenance.metadata.creation_timestamp
    text = f"{maintenance.name}: {maintenance_status.phase or 'not processed by the operator yet'}"
    text += f", {maintenance_status.drain_progress}% drained" if maintenance_status.phase else ""
    text += f", created {format_since(created, now=now)}" if created else ""
    text += ", being deleted" if maintenance.is_being_deleted else ""
    yield "Maintenance", text
    if maintenance.spec.reason:
        yield "  Reason", maintenance.spec.reason
    if maintenance_status.drain is not None:
        drain = maintenance_status.drain
        pods_left = max(len(maintenance_status.pending_pods) - drain.terminating, 0)
        yield "  Pods", f"{drain.removed} gone, {drain.terminating} terminating, {pods_left} waiting"
        if drain.deadline is not None:
            yield (
                "  Deadline",
                f"{drain.deadline:%Y-%m-%d %H:%M:%S} UTC ({_format_until(drain.deadline, now) or 'now'})",
            )
    elif maintenance_status.pending_pods:
        yield (
            "  Pods",
            f"{len(maintenance_status.pending_pods)} of {maintenance_status.eviction_pods} still on the node",
        )
    if maintenance_status.last_error:
        yield "  Last error", maintenance_status.last_error


def _lease_text(status: NodeStatus, now: datetime) -> str:
    holder = (status.lease.spec.holder_identity if status.lease else None) or "an unknown holder"
    if status.lease_until is None:
        return f"expired; last held by {holder}"
    return f"held by {holder} until {status.lease_until:%H:%M:%S} UTC ({_format_until(status.lease_until, now)})"


def _blocker_text(blocker: BlockerStatus, now: datetime) -> str:
    duration_text = f" (for {format_elapsed(now - blocker.since)})" if blocker.since else ""
    pod_prefix = f"{blocker.pod}: " if blocker.pod else ""
    return f"{pod_prefix}{blocker.reason}{duration_text}" + (f"; {blocker.remedy}" if blocker.remedy else "")


def _format_until(instant: datetime | None, now: datetime) -> str:
    if instant is None:
        return ""
    return f"in {format_elapsed(instant - now)}" if instant > now else "due"


# JSON


class _Json(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class _CordonOwnerJson(_Json, frozen=True):
    owner: str
    since: datetime
    presence: str


class _HoldJson(_Json, frozen=True):
    by: str
    reason: str
    until: datetime | None
    problem: str
    expired: bool
    freeze: str


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
    next_reconcile: datetime | None
    blockers: tuple[BlockerStatus, ...]


class _NodeJson(_Json, frozen=True):
    node: str
    exists: bool
    state: str
    ready: bool
    cordoned: bool
    cordoned_before: bool | None
    cordon_owners: tuple[_CordonOwnerJson, ...]
    maintenances: tuple[_MaintenanceJson, ...]
    lease: _LeaseJson | None
    pods: int | None
    notices: tuple[NoticeJson, ...]
    hold: _HoldJson | None
    problem: str


class _StatusReportJson(_Json, frozen=True):
    nodes: tuple[_NodeJson, ...]
    notes: tuple[str, ...]


def to_json(report: StatusReport, *, include_all: bool) -> bytes:
    """Return the report as JSON; `haulout status --help` documents the fields."""
    nodes = tuple(
        _node_json(node_status)
        for node_status in report.nodes
        if include_all or node_status.is_noteworthy or node_status.notices
    )
    return output.to_json(_StatusReportJson(nodes=nodes, notes=report.notes))


def _node_json(status: NodeStatus) -> _NodeJson:
    lease = status.lease
    return _NodeJson(
        node=status.name,
        exists=status.node is not None,
        state=status.state,
        ready=status.is_ready,
        cordoned=status.is_cordoned,
        cordoned_before=None if status.mark is None else status.mark.before.unschedulable,
        cordon_owners=tuple(
            _CordonOwnerJson(owner=owner.owner, since=owner.since, presence=owner.presence)
            for owner in status.cordon_owners
        ),
        maintenances=tuple(map(_maintenance_json, status.maintenances)),
        lease=None if lease is None else _LeaseJson(holder=lease.spec.holder_identity, until=status.lease_until),
        pods=None if status.pods is None else len(status.pods),
        notices=tuple(map(notice_json, status.notices)),
        hold=_hold_json(status),
        problem=status.bad_mark,
    )


def _hold_json(status: NodeStatus) -> _HoldJson | None:
    hold = status.hold or status.expired_hold
    if hold is None:
        return None
    return _HoldJson(
        by=hold.by,
        reason=hold.reason,
        until=hold.until,
        problem=hold.problem,
        expired=status.hold is None,
        freeze=hold.freeze,
    )


def _maintenance_json(maintenance: NodeMaintenance) -> _MaintenanceJson:
    maintenance_status = maintenance.status
    refs = tuple(f"{ref.namespace}/{ref.name}" for ref in maintenance_status.pending_pods_refs)
    return _MaintenanceJson(
        name=maintenance.name,
        reason=maintenance.spec.reason,
        phase=maintenance_status.phase,
        progress=maintenance_status.drain_progress,
        created=maintenance.metadata.creation_timestamp,
        deleted=maintenance.metadata.deletion_timestamp,
        last_error=maintenance_status.last_error,
        pending_pods=refs or maintenance_status.pending_pods,
        next_reconcile=maintenance_status.next_reconcile,
        blockers=maintenance_status.blockers,
    )
