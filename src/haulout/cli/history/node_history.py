"""Read the MaintenanceRecords of nodes, completed by the current state of the nodes and by their notices.

The operator writes an entry a moment after the event, and may end before it does. The state of profiles is in the data
annotation of the node, so that the last transition is shown in any case.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from haulout.api.maintenancerecord import (
    MAINTENANCE_RECORDS,
    Entry,
    MaintenanceRecord,
    RecordContent,
    add_entries,
    content_of,
    continue_for_new_node,
    entries_between,
)
from haulout.api.objects import Node, UndecodableObject
from haulout.api.resources import NODES
from haulout.app.components import cordon_owners
from haulout.cli import times
from haulout.cli.node_lookup import suggest_node
from haulout.cli.notice.notice_view import list_views
from haulout.controllers.profiles.history_recorder import known_states
from haulout.controllers.profiles.machine import data_annotation
from haulout.controllers.profiles.machine.data_annotation import DataError
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, ObservedNode
from haulout.errors import HauloutError, KubeError, NotFound, UsageError
from haulout.history.cordon_history import state_claim
from haulout.kube import discovery
from haulout.kube.client import Client

_MAX_PARALLEL = 8
_PAGE_SIZE = 100  # records, of up to 32 KiB each
_DATE_PREFIX = re.compile(r"[0-9]{4}-[0-9]")


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """The options of the command; a timedelta is relative to now."""

    nodes: tuple[str, ...] = ()
    since: timedelta | datetime | None = None
    until: timedelta | datetime | None = None
    limit: int | None = None
    selector: str = ""  # of nodes, if all are selected


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHistory:
    """The history of one node."""

    node: str
    exists: bool
    entries: tuple[Entry, ...]  # the selected ones
    older: int = 0  # how many entries were evicted from the record
    left_out: int = 0  # how many entries are not selected
    deleted: datetime | None = None  # when the node was deleted, if known
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryResult:
    """The result of a query."""

    nodes: tuple[NodeHistory, ...]
    now: datetime
    notes: tuple[str, ...] = ()
    unknown_nodes: tuple[str, ...] = ()  # errors about the other nodes in the query


def parse_past_span(option: str, text: str | None) -> timedelta | None:
    """Parse a time span such as `7d`, `1d12h` or `90m`; raise `UsageError`."""
    if text is None:
        return None
    try:
        span = times.parse_span(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    if span <= timedelta():
        raise UsageError(f"{option}: expected a duration in the past such as 7d, found {text!r}")
    return span


def parse_time_bound(option: str, text: str | None) -> timedelta | datetime | None:
    """Parse a time span such as `7d` or `1d12h`, or an instant; raise `UsageError`."""
    if text is None or not _DATE_PREFIX.match(text.strip()):
        return parse_past_span(option, text)
    try:
        return times.parse_timestamp(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _to_instant(now: datetime, bound: timedelta | datetime | None) -> datetime | None:
    if not isinstance(bound, timedelta):
        return bound
    try:
        return now - bound
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


async def read_histories(client: Client, query: HistoryQuery) -> HistoryResult:
    """Return the histories; raise `HauloutError` if the cluster keeps none."""
    semaphore = asyncio.Semaphore(_MAX_PARALLEL)

    async def read_node(name: str) -> tuple[Node | None, MaintenanceRecord | None]:
        async with semaphore:
            return await client.find(NODES, name), await client.find(MAINTENANCE_RECORDS, name)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(read_node(name)) for name in query.nodes}
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    results = {name: task.result() for name, task in tasks.items()}
    if all(record is None for _, record in results.values()):
        await _check_history_installed(client)
    announced = await _notice_entries(client)
    known = {name: result for name, result in results.items() if result != (None, None)}
    now = client.clock.now()
    notes: list[str] = []
    histories = []
    for name, (node, record) in known.items():
        history = _node_history(name, node, record, query, announced.get(name, ()), now)
        histories.append(history)
        notes += history.notes
    unknown = [f'node "{name}" not found{await suggest_node(client, name)}' for name in results if name not in known]
    return HistoryResult(nodes=tuple(histories), now=now, notes=tuple(notes), unknown_nodes=tuple(unknown))


async def read_all_histories(client: Client, query: HistoryQuery) -> AsyncIterator[NodeHistory]:
    """Yield the histories of all nodes with selected entries, page by page; raise as `read_histories` does.

    Deleted nodes are included, unless nodes are selected by labels, which records do not have.
    """
    nodes = {listed_node.name: listed_node for listed_node in (await client.list(NODES, labels=query.selector)).items}
    announced, now = await _notice_entries(client), client.clock.now()
    try:
        async for page in client.pages(MAINTENANCE_RECORDS, page_size=_PAGE_SIZE):
            for record in page.items:
                node = nodes.pop(record.name, None)
                if node is None and query.selector:
                    continue
                if isinstance(record, UndecodableObject):
                    yield _unreadable(record, exists=node is not None)
                    continue
                history = _node_history(record.name, node, record, query, announced.get(record.name, ()), now)
                if history.entries:
                    yield history
    except NotFound:
        await _check_history_installed(client)
        raise
    for name, node in nodes.items():  # nodes without a record
        history = _node_history(name, node, None, query, announced.get(name, ()), now)
        if history.entries:
            yield history


def to_result(histories: Sequence[NodeHistory], *, now: datetime) -> HistoryResult:
    """Return the result of all nodes with entries; notes only of nodes without entries."""
    notes = [note for node_entries in histories for note in node_entries.notes if not node_entries.entries]
    return HistoryResult(
        nodes=tuple(node_entries for node_entries in histories if node_entries.entries), now=now, notes=tuple(notes)
    )


def _unreadable(record: UndecodableObject, *, exists: bool) -> NodeHistory:
    note = f"The record of node {record.name} cannot be read: {record.problem}"
    return NodeHistory(node=record.name, exists=exists, entries=(), notes=(note,))


async def _check_history_installed(client: Client) -> None:
    if not await discovery.serves(client, MAINTENANCE_RECORDS):
        install = "haulout manifests --crds-only | kubectl apply -f -"
        problem = f"no history is kept in this cluster: {MAINTENANCE_RECORDS} is not installed"
        raise HauloutError(f"{problem}; to record it from now on: {install}")


def _node_history(
    name: str,
    node: Node | None,
    record: MaintenanceRecord | None,
    query: HistoryQuery,
    announced: Sequence[Entry],
    now: datetime,
) -> NodeHistory:
    content = RecordContent() if record is None else content_of(record)
    notes = []
    completed = content
    if node is None:
        notes.append(_deleted_node_note(name, content.node_deleted))
    elif record is not None and not record.is_about(node.uid):
        notes.append(f"Node {name} was created again: the history belongs to an earlier node of this name.")
        restarted = continue_for_new_node(content, node.uid, at=node.metadata.creation_timestamp or now)
        completed = _with_current_state(restarted, node, now=now)
        completed = content if completed is restarted else completed
    else:
        completed = _with_current_state(content, node, now=now)
    if completed is not content:
        notes.append(f"The last entry of node {name} is read from the node itself; it is not recorded yet.")
    if any(map(is_before_start, completed.entries)):
        notes.append(f"A clock was set back between entries of node {name}: durations shown as ? are unknown.")
    entries = merge_entries(completed.entries, announced)
    chosen = entries_between(entries, since=_to_instant(now, query.since), until=_to_instant(now, query.until))
    chosen = chosen[-query.limit :] if query.limit is not None else chosen
    return NodeHistory(
        node=name,
        exists=node is not None,
        entries=tuple(chosen),
        older=completed.total - len(completed.entries),
        left_out=len(entries) - len(chosen),
        deleted=None if node is not None else content.node_deleted,
        notes=tuple(notes),
    )


def _deleted_node_note(name: str, deleted: datetime | None) -> str:
    if deleted is None:
        return f"Node {name} was deleted; the time is not recorded yet."
    return f"Node {name} was deleted at {times.format_timestamp(deleted)} UTC. Its history is kept for a limited time."


def merge_entries(recorded: Sequence[Entry], announced: Sequence[Entry]) -> list[Entry]:
    """Return recorded entries in their order, regardless of their times, with announcements merged in by time."""
    found: list[Entry] = []
    waiting = deque(sorted(announced, key=lambda notice_entry: notice_entry.time))
    for entry in recorded:
        while waiting and waiting[0].time < entry.time:
            found.append(waiting.popleft())
        found.append(entry)
    return [*found, *waiting]


def is_before_start(entry: Entry) -> bool:
    """Return whether an entry ends before it began, because a clock was set back."""
    return entry.since is not None and entry.time < entry.since


async def _notice_entries(client: Client) -> dict[str, list[Entry]]:
    """Return the history of existing notices by node; empty if notices cannot be read."""
    try:
        views, _ = await list_views(client)
    except KubeError:
        return {}
    found: dict[str, list[Entry]] = {}
    for view in views:
        entries = [
            Entry(
                time=event.time, object=f"notice/{view.notice.name}", requested_by=event.reporter, reason=event.message
            )
            for event in view.notice.status.history
            if event.time is not None
        ]
        found.setdefault(view.node, []).extend(entries)
    return found


def _with_current_state(content: RecordContent, node: Node, *, now: datetime) -> RecordContent:
    """Add the current state of the node's profiles and cordon owners, from the node itself."""
    content = add_entries(content, (state_claim(node, owner, now=now) for owner in cordon_owners()))
    try:
        entries = data_annotation.statuses_of(node.metadata.annotations.get(DATA_ANNOTATION))
    except DataError:
        return content  # `haulout why` shows the error
    return add_entries(content, known_states(ObservedNode(node, entries)))
