"""What `haulout history` finds out: the records of nodes, completed by what the nodes themselves say.

What was announced for them is told between, from the notices that there still are.

The operator writes a moment after something happened, and may have ended before it could. Where a profile stands is in
the data of its node, so that the last transition is shown in any case.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.cli import times
from haulout.cli.nodes import meant
from haulout.cli.noticing.sights import all_of_them
from haulout.errors import HauloutError, KubeError, NotFound, UsageError
from haulout.esx import keys as esx
from haulout.history.holding import stands
from haulout.history.record import MAINTENANCE_RECORDS, Content, Entry, Record, added, content_of
from haulout.kube import discovery
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.kube.resources import NODES
from haulout.kubernikus import keys as kubernikus
from haulout.profiles import data
from haulout.profiles.data import DataError
from haulout.profiles.plugin import DATA_ANNOTATION, NodeSight
from haulout.profiles.recording import claims

_AT_ONCE = 8
_HOLDERS = (kubernikus.OWNER, esx.OWNER)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for."""

    nodes: tuple[str, ...]
    within: timedelta | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHistory:
    """The history of one node."""

    node: str
    exists: bool
    entries: tuple[Entry, ...]  # those that are asked for
    older: int = 0  # that have given way
    left_out: int = 0  # that are not asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What there is."""

    nodes: tuple[NodeHistory, ...]
    now: datetime
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # what is wrong with the other nodes that were named


def span_of(text: str | None) -> timedelta | None:
    """Return a span such as `7d`, `1d12h` or `90m`; raises `UsageError`."""
    if text is None:
        return None
    try:
        found = times.span(text)
    except ValueError as error:
        raise UsageError(f"--since: {error}") from None
    if found <= timedelta():
        raise UsageError(f"--since: expected a span into the past, such as 7d, found {text!r}")
    return found


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
        history, more = _history(name, node, record, wanted, announced.get(name, ()), now)
        histories.append(history)
        notes += more
    unknown = [f'node "{name}" not found{await meant(client, name)}' for name in seen if name not in there]
    return Found(nodes=tuple(histories), now=now, notes=tuple(notes), unknown=tuple(unknown))


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
) -> tuple[NodeHistory, Sequence[str]]:
    content = Content() if record is None else content_of(record)
    notes = []
    if node is None:
        notes.append(f"Node {name} is gone, and soon its history will be.")
    elif record is not None and not record.is_about(node.uid):
        notes.append(f"Node {name} is new: what was recorded is about an earlier node of this name.")
        content = Content()
    completed = content if node is None else _completed(content, node, now=now)
    if completed is not content:
        notes.append(f"What is last of node {name} is not recorded yet, but known from the node itself.")
    if any(map(is_set_back, completed.entries)):
        notes.append(
            f"A clock was set back while things happened to node {name}: where it says ?, nobody knows how long."
        )
    since = None if wanted.within is None else now - wanted.within
    entries = merged(completed.entries, announced)
    first = next((number for number, it in enumerate(entries) if since is None or it.time >= since), len(entries))
    chosen = entries[first:]
    chosen = chosen[-wanted.most :] if wanted.most is not None else chosen
    history = NodeHistory(
        node=name,
        exists=node is not None,
        entries=tuple(chosen),
        older=completed.total - len(completed.entries),
        left_out=len(entries) - len(chosen),
    )
    return history, notes


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
