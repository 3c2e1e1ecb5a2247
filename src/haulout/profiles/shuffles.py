"""Counts the pods of nodes that go into maintenance: whose they are, and how many of how many.

    shuffles.note(sight, result)        # a step was written: it may take the node for maintenance
    await shuffles.seen("n1")           # then its pods were listed: now they may leave

Pods are listed before a drain makes them leave, whichever chain it is in; nothing else waits for this. Whose they are
is asked in the background, and remembered for a minute, as nodes of a cluster run pods of the same owners. What cannot
be found out is not counted, and nothing but the numbers suffers.

Prometheus sees a counter rise only if it has seen it before. So when a profile first requires maintenance the series of
the node's pods are `touch`ed, at a leisurely pace: of very many nodes at once not all are.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from haulout.drain.answers import DAEMON_SETS
from haulout.drain.pods import on_node
from haulout.drain.workloads import KINDS
from haulout.errors import KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.objects import Object
from haulout.kube.resources import PODS
from haulout.profiles import begun
from haulout.profiles.plugin import NodeSight, State
from haulout.profiles.steps import Result
from haulout.profiles.tallies import Moved, Owner, Tallies, moved

log = logging.getLogger(__name__)

_PODS = PODS.of(Object)
_OWNERS = {**{kind: it.of(Owner) for kind, it in KINDS.items()}, DAEMON_SETS.kind: DAEMON_SETS.of(Owner)}
_AT_ONCE = 8
_MOST_ROUNDS = 3  # of questions: ReplicaSets lead to Deployments, and then all is known
_REMEMBERED_FOR = timedelta(minutes=1)
_LISTED_WITHIN = timedelta(seconds=5)  # or the drain begins without
_TOUCHED_EVERY = timedelta(milliseconds=200)
_MOST_TO_TOUCH = 100


class _Key(NamedTuple):
    namespace: str
    kind: str
    name: str


class _Known(NamedTuple):
    at: float
    owner: Owner | None


class Shuffles:
    """Counts in the background, while `run` runs."""

    def __init__(self, client: Client, tallies: Tallies) -> None:
        self._client = client
        self._clock = client.clock
        self._tallies = tallies
        self._group: asyncio.TaskGroup | None = None
        self._listing: dict[str, asyncio.Event] = {}  # by node: set when its pods were listed
        self._known: dict[_Key, _Known] = {}
        self._lists, self._gets = asyncio.Semaphore(_AT_ONCE), asyncio.Semaphore(_AT_ONCE)
        self._to_touch: deque[tuple[str, str]] = deque()
        self._bell = asyncio.Event()

    async def run(self) -> None:
        """Count until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await self._touch_slowly()
            finally:
                self._group = None

    def note(self, sight: NodeSight, result: Result) -> None:
        """Hear of a step that was written, and of the node as it was before."""
        for report in result.reports:
            if _takes(report.name, sight, result):
                self._begin(sight.node.name, report.name)
            elif report.next == State.REQUIRED != report.state and len(self._to_touch) < _MOST_TO_TOUCH:
                self._to_touch.append((sight.node.name, report.name))
                self._bell.set()

    def _begin(self, node: str, profile: str) -> None:
        if self._group is not None:
            seen = self._listing[node] = asyncio.Event()
            self._group.create_task(self._record(node, profile, seen))

    async def seen(self, node: str) -> None:
        """Return when the pods of a node were listed, if they are to be; but soon."""
        listing = self._listing.get(node)
        if listing is None:
            return
        try:
            async with asyncio.timeout(_LISTED_WITHIN.total_seconds()):
                await listing.wait()
        except TimeoutError:
            log.warning("the pods of node %s could not be listed in time to be counted", node)

    async def _record(self, node: str, profile: str, seen: asyncio.Event) -> None:
        try:
            pods = await self._pods(node)
        finally:
            seen.set()
            if self._listing.get(node) is seen:
                del self._listing[node]
        self._tallies.record_shuffle(await self._moved(pods), profile=profile)

    async def _touch_slowly(self) -> None:
        while True:
            while self._to_touch:
                node, profile = self._to_touch.popleft()
                self._tallies.touch(await self._moved(await self._pods(node)), profile=profile)
                await self._clock.sleep(_TOUCHED_EVERY)
            self._bell.clear()
            await self._bell.wait()

    async def _pods(self, node: str) -> Sequence[Object]:
        try:
            async with self._lists:
                return (await self._client.list(_PODS, fields=on_node(node))).items
        except KubeError as error:
            log.warning("pods of node %s are not counted: %s", node, error)
            return ()

    async def _moved(self, pods: Sequence[Object]) -> tuple[Moved, ...]:
        """Return whose pods these are; what is not known of that is asked."""
        for _ in range(_MOST_ROUNDS):
            missing: dict[_Key, None] = {}
            found = moved(pods, self._finder(missing))
            if not missing:
                break
            await _all(self._ask(key) for key in missing)
        return found

    def _finder(self, missing: dict[_Key, None]) -> Callable[[str, str, str], Owner | None]:
        oldest = self._clock.monotonic() - _REMEMBERED_FOR.total_seconds()
        for key in [key for key, it in self._known.items() if it.at < oldest]:
            del self._known[key]

        def find(namespace: str, kind: str, name: str) -> Owner | None:
            key = _Key(namespace, kind, name)
            known = self._known.get(key)
            if known is None:
                missing[key] = None
                return None
            return known.owner

        return find

    async def _ask(self, key: _Key) -> None:
        async with self._gets:
            owner: Owner | None = None
            try:
                owner = await self._client.get(_OWNERS[key.kind], key.name, namespace=key.namespace)
            except NotFound:
                log.debug("%s %s/%s is gone", key.kind, key.namespace, key.name)
            except KubeError as error:
                log.warning("pods of %s %s/%s are not counted: %s", key.kind, key.namespace, key.name, error)
            self._known[key] = _Known(self._clock.monotonic(), owner)


def _takes(profile: str, sight: NodeSight, result: Result) -> bool:
    """Tell whether a profile takes its node for maintenance by this step, be it that a drain comes before or after."""
    entry, before, after = sight.entries.get(profile), begun.read(sight.node).get(profile), result.pending.get(profile)
    had_it = entry is not None and entry.current == State.IN_MAINTENANCE
    was_on_its_way = before is not None and before.next is State.IN_MAINTENANCE and before.is_of(entry)
    is_on_its_way = after is not None and after.next is State.IN_MAINTENANCE
    return not (had_it or was_on_its_way) and (is_on_its_way or _state_of(profile, result) == State.IN_MAINTENANCE)


def _state_of(profile: str, result: Result) -> str:
    entry = result.entries.get(profile)
    return "" if entry is None else entry.current


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(each)
