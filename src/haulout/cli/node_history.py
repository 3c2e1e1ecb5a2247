"""What `haulout history` finds out: the records of nodes, completed by what the nodes themselves say.

The operator writes a moment after something happened, and may have ended before it could. Where a profile stands is in
the data of its node, so that the last transition is shown in any case.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.cli.nodes import meant
from haulout.core import duration
from haulout.core.duration import DurationError
from haulout.errors import HauloutError, NotFound, UsageError
from haulout.history.record import MAINTENANCE_RECORDS, Content, Entry, Record, added, content_of
from haulout.kube import discovery
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.kube.resources import NODES
from haulout.profiles import data
from haulout.profiles.data import DataError
from haulout.profiles.plugin import DATA_ANNOTATION, NodeSight
from haulout.profiles.recording import claims

_AT_ONCE = 8
_DAYS = re.compile(r"(?:(?P<weeks>[0-9]{1,4})w)?(?:(?P<days>[0-9]{1,5})d)?(?P<rest>.*)", re.DOTALL)


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
    parts = _DAYS.fullmatch(text.strip())
    whole = {unit: int(parts[unit] or 0) for unit in ("weeks", "days")} if parts else {}
    try:
        if parts is None or not text.strip():
            raise DurationError("invalid duration", text)
        rest = duration.parse(parts["rest"]) if parts["rest"] else timedelta()
        span = timedelta(**whole) + rest
    except DurationError:
        raise UsageError(f"--since: expected a span such as 90m, 12h, 7d or 2w, found {text!r}") from None
    if span <= timedelta():
        raise UsageError(f"--since: expected a span into the past, such as 7d, found {text!r}")
    return span


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
    there = {name: it for name, it in seen.items() if it != (None, None)}
    now = client.clock.now()
    notes: list[str] = []
    histories = []
    for name, (node, record) in there.items():
        history, more = _history(name, node, record, wanted, now)
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
    name: str, node: Node | None, record: Record | None, wanted: Wanted, now: datetime
) -> tuple[NodeHistory, Sequence[str]]:
    content = Content() if record is None else content_of(record)
    notes = []
    if node is None:
        notes.append(f"Node {name} is gone, and soon its history will be.")
    elif record is not None and not record.is_about(node.uid):
        notes.append(f"Node {name} is new: what was recorded is about an earlier node of this name.")
        content = Content()
    completed = content if node is None else _completed(content, node)
    if completed is not content:
        notes.append(f"What is last of node {name} is not recorded yet, but known from the node itself.")
    since = None if wanted.within is None else now - wanted.within
    chosen = [it for it in completed.entries if since is None or it.time >= since]
    chosen = chosen[-wanted.most :] if wanted.most is not None else chosen
    history = NodeHistory(
        node=name,
        exists=node is not None,
        entries=tuple(chosen),
        older=completed.total - len(completed.entries),
        left_out=len(completed.entries) - len(chosen),
    )
    return history, notes


def _completed(content: Content, node: Node) -> Content:
    """Return it with what the node says about where its profiles stand."""
    try:
        entries = data.entries_of(node.metadata.annotations.get(DATA_ANNOTATION))
    except DataError:
        return content  # `haulout why` says what is wrong with it
    return added(content, claims(NodeSight(node, entries)))
