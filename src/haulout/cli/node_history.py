"""What `haulout history` finds out: the records of nodes, completed by what the nodes themselves say.

What was announced for them is told between, from the notices that there still are.

The operator writes a moment after something happened, and may have ended before it could. Where a profile stands is in
the data of its node, so that the last transition is shown in any case.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from haulout.cli import times
from haulout.cli.nodes import meant
from haulout.cli.noticing.sights import all_of_them
from haulout.errors import HauloutError, KubeError, NotFound, UsageError
from haulout.esx import keys as esx
from haulout.history.holding import stands
from haulout.history.record import (
    MAINTENANCE_RECORDS,
    Content,
    Entry,
    Record,
    added,
    content_of,
    continued,
    within,
)
from haulout.kube import discovery
from haulout.kube.client import Client
from haulout.kube.objects import Misfit, Node
from haulout.kube.resources import NODES
from haulout.kubernikus import keys as kubernikus
from haulout.profiles import data
from haulout.profiles.data import DataError
from haulout.profiles.plugin import DATA_ANNOTATION, NodeSight
from haulout.profiles.recording import claims

_AT_ONCE = 8
_PAGE = 100  # records, of up to 32 KiB each
_DATE = re.compile(r"[0-9]{4}-[0-9]")
_HOLDERS = (kubernikus.OWNER, esx.OWNER)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for; a span is how long ago."""

    nodes: tuple[str, ...] = ()
    since: timedelta | datetime | None = None
    until: timedelta | datetime | None = None
    most: int | None = None
    selector: str = ""  # of the nodes, if all of them are asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHistory:
    """The history of one node."""

    node: str
    exists: bool
    entries: tuple[Entry, ...]  # those that are asked for
    older: int = 0  # that have given way
    left_out: int = 0  # that are not asked for
    deleted: datetime | None = None  # when the node was deleted, if that is known
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What there is."""

    nodes: tuple[NodeHistory, ...]
    now: datetime
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # what is wrong with the other nodes that were named


def span_of(option: str, text: str | None) -> timedelta | None:
    """Return a span into the past such as `7d`, `1d12h` or `90m`; raises `UsageError`."""
    if text is None:
        return None
    try:
        found = times.span(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    if found <= timedelta():
        raise UsageError(f"{option}: expected a span into the past, such as 7d, found {text!r}")
    return found


def when_of(option: str, text: str | None) -> timedelta | datetime | None:
    """Return a span into the past such as `7d` or `1d12h`, or an instant; raises `UsageError`."""
    if text is None or not _DATE.match(text.strip()):
        return span_of(option, text)
    try:
        return times.stamp(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _before(now: datetime, when: timedelta | datetime | None) -> datetime | None:
    if not isinstance(when, timedelta):
        return when
    try:
        return now - when
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


async def look(client: Client, wanted: Wanted) -> Found:
    """Return what there is; raises `HauloutError` if no history is kept here."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> tuple[Node | None, Record | None]:
        async with gate:
            return await _node(client, name), await _record(client, name)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(one(name)) for name in wanted.nodes}
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    seen = {name: task.result() for name, task in tasks.items()}
    if all(record is None for _, record in seen.values()):
        await _assert_kept(client)
    announced = await _announced(client)
    there = {name: it for name, it in seen.items() if it != (None, None)}
    now = client.clock.now()
    notes: list[str] = []
    histories = []
    for name, (node, record) in there.items():
        history = _history(name, node, record, wanted, announced.get(name, ()), now)
        histories.append(history)
        notes += history.notes
    unknown = [f'node "{name}" not found{await meant(client, name)}' for name in seen if name not in there]
    return Found(nodes=tuple(histories), now=now, notes=tuple(notes), unknown=tuple(unknown))


async def look_at_all(client: Client, wanted: Wanted) -> AsyncIterator[NodeHistory]:
    """Yield the histories of all nodes in which something is asked for, page by page; raises as `look` does.

    Nodes that were deleted are among them, unless nodes are selected by their labels, which no record has.
    """
    nodes = {it.name: it for it in (await client.list(NODES, labels=wanted.selector)).items}
    announced, now = await _announced(client), client.clock.now()
    try:
        async for page in client.pages(MAINTENANCE_RECORDS, page_size=_PAGE):
            for record in page.items:
                node = nodes.pop(record.name, None)
                if node is None and wanted.selector:
                    continue
                if isinstance(record, Misfit):
                    yield _unreadable(record, exists=node is not None)
                    continue
                history = _history(record.name, node, record, wanted, announced.get(record.name, ()), now)
                if history.entries:
                    yield history
    except NotFound:
        await _assert_kept(client)
        raise
    for name, node in nodes.items():  # of which nothing is recorded yet, or ever
        history = _history(name, node, None, wanted, announced.get(name, ()), now)
        if history.entries:
            yield history


def of_all(histories: Sequence[NodeHistory], *, now: datetime) -> Found:
    """Return what there is of all nodes; what is to be said about single ones is left to those who ask for them."""
    notes = [note for it in histories for note in it.notes if not it.entries]
    return Found(nodes=tuple(it for it in histories if it.entries), now=now, notes=tuple(notes))


def _unreadable(record: Misfit, *, exists: bool) -> NodeHistory:
    note = f"The record of node {record.name} cannot be read: {record.problem}"
    return NodeHistory(node=record.name, exists=exists, entries=(), notes=(note,))


async def _node(client: Client, name: str) -> Node | None:
    try:
        return await client.get(NODES, name)
    except NotFound:
        return None


async def _record(client: Client, name: str) -> Record | None:
    try:
        return await client.get(MAINTENANCE_RECORDS, name)
    except NotFound:  # of the record, or of the kind
        return None


async def _assert_kept(client: Client) -> None:
    if not await discovery.serves(client, MAINTENANCE_RECORDS):
        install = "haulout manifests --crds-only | kubectl apply -f -"
        problem = f"no history is kept in this cluster: {MAINTENANCE_RECORDS} is not installed"
        raise HauloutError(f"{problem}; to have it from now on: {install}")


def _history(
    name: str,
    node: Node | None,
    record: Record | None,
    wanted: Wanted,
    announced: Sequence[Entry],
    now: datetime,
) -> NodeHistory:
    content = Content() if record is None else content_of(record)
    notes = []
    completed = content
    if node is None:
        notes.append(_of_deleted(name, content.node_deleted))
    elif record is not None and not record.is_about(node.uid):
        notes.append(f"Node {name} is new: what was recorded so far is about an earlier node of this name.")
        begun = continued(content, node.uid, at=node.metadata.creation_timestamp or now)
        completed = _completed(begun, node, now=now)
        completed = content if completed is begun else completed
    else:
        completed = _completed(content, node, now=now)
    if completed is not content:
        notes.append(f"What is last of node {name} is not recorded yet, but known from the node itself.")
    if any(map(is_set_back, completed.entries)):
        notes.append(
            f"A clock was set back while things happened to node {name}: where it says ?, nobody knows how long."
        )
    entries = merged(completed.entries, announced)
    chosen = within(entries, since=_before(now, wanted.since), until=_before(now, wanted.until))
    chosen = chosen[-wanted.most :] if wanted.most is not None else chosen
    return NodeHistory(
        node=name,
        exists=node is not None,
        entries=tuple(chosen),
        older=completed.total - len(completed.entries),
        left_out=len(entries) - len(chosen),
        deleted=None if node is not None else content.node_deleted,
        notes=tuple(notes),
    )


def _of_deleted(name: str, deleted: datetime | None) -> str:
    if deleted is None:
        return f"Node {name} is gone: nobody wrote down yet when it was deleted."
    return f"Node {name} was deleted at {times.moment(deleted)} UTC. Its history is kept for a time."


def merged(recorded: Sequence[Entry], announced: Sequence[Entry]) -> list[Entry]:
    """Return the entries of a record in their order, whatever their times say, and what was announced between them."""
    found: list[Entry] = []
    waiting = deque(sorted(announced, key=lambda it: it.time))
    for entry in recorded:
        while waiting and waiting[0].time < entry.time:
            found.append(waiting.popleft())
        found.append(entry)
    return [*found, *waiting]


def is_set_back(entry: Entry) -> bool:
    """Tell whether an entry is, by its times, over before it began: a clock was set between."""
    return entry.since is not None and entry.time < entry.since


async def _announced(client: Client) -> dict[str, list[Entry]]:
    """Return what happened to the notices that there still are, by node; nothing if they cannot be seen."""
    try:
        sights, _ = await all_of_them(client)
    except KubeError:
        return {}
    found: dict[str, list[Entry]] = {}
    for it in sights:
        entries = [
            Entry(time=told.time, what=f"notice/{it.notice.name}", by=told.who, why=told.what)
            for told in it.notice.status.history
            if told.time is not None
        ]
        found.setdefault(it.node, []).extend(entries)
    return found


def _completed(content: Content, node: Node, *, now: datetime) -> Content:
    """Return it with what the node says about where its profiles stand, and about who else holds it."""
    content = added(content, (stands(node, it, now=now) for it in _HOLDERS))
    try:
        entries = data.entries_of(node.metadata.annotations.get(DATA_ANNOTATION))
    except DataError:
        return content  # `haulout why` says what is wrong with it
    return added(content, claims(NodeSight(node, entries)))
