"""The reflector: lists a resource, watches it, and reconnects until cancelled.

A `Reflector` maintains the connection; a `ReflectorStore` (usually a `haulout.kube.informer.Informer`) stores the
objects. The reflector resumes the watch at the last resource version as long as the server has it, and relists
otherwise. It uses streaming lists (`sendInitialEvents`) where the server supports them, and paged lists otherwise.

The reflector closes a silent connection and opens a new one, which costs one request. A server sends bookmarks about
every minute, so a longer silence has one of three causes. Nothing was written at all, and the server may be silent. The
server is gone, although TCP has not noticed. Or, after a reconnect, the server is behind the watch's resource version
(etcd was restored from a backup), which no server reports. So the first silence after a reconnect is verified by a list
with limit 1.

A streamed list ends with a bookmark. If that bookmark does not come (lost, or never sent), the reflector lists by pages
once: existing objects must not stay unknown until the watch ends.

After a failure the reflector waits with exponential backoff and jitter, or for the server's Retry-After. It logs when a
problem begins, changes and ends, not at each attempt. After a server exceeds a limit (`haulout.kube.limits`), the
reflector relists with growing pauses until the server keeps to the limits.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, NoReturn, Protocol, TypeVar

from haulout.api.objects import Bookmark, Page, UndecodableObject, WatchEvent
from haulout.api.resources import Resource
from haulout.core.backoff import RECONNECT, Backoff
from haulout.core.memory import InterruptScope
from haulout.core.retry import Retry
from haulout.errors import BadRequest, Expired, Invalid, KubeError, LimitExceeded, NotFound, Unreachable
from haulout.kube.client import PAGE_SIZE, Client

T = TypeVar("T")
ListWatchEvent = WatchEvent[T] | WatchEvent[UndecodableObject] | Bookmark

log = logging.getLogger(__name__)

# minWatchTimeout of client-go (tools/cache/reflector.go). The server ends a watch after 1 to 2 times this, so that the
# reconnects of all clients spread.
_MIN_WATCH_TIMEOUT = timedelta(minutes=5)
_OPEN_TIMEOUT = timedelta(seconds=30)
# A watch that a proxy closes at once would otherwise be reopened in a tight loop. client-go calls that a "very short
# watch".
_MIN_WATCH_DURATION = timedelta(seconds=1)
_LIST_END_TIMEOUT = timedelta(seconds=20)  # since the last object
_LIST_TIMEOUT = timedelta(minutes=3)  # in total, however many objects are created meanwhile
_STABLE_AFTER = timedelta(seconds=30)  # a watch that lasted this long counts as working, even without events
_ESTABLISHED_AFTER = timedelta(seconds=5)  # without an error since the watch started
_LIMIT_STABLE_AFTER = timedelta(minutes=5)
# For a server that exceeds a limit: reading that much again costs seconds of CPU time.
_LIMIT_BACKOFF = Backoff(first=timedelta(seconds=5), factor=2, limit=timedelta(minutes=1), jitter=0.5)


class ReflectorStore(Protocol[T]):
    """The store that a reflector fills: a list from time to time, and the changes after it."""

    @property
    def last_resource_version(self) -> str:
        """Return the resource version from which a watch continues; empty while there is none."""
        ...

    def begin_list(self) -> None:
        """Start to collect a new list, by `add_listed`, until `finish_list`."""
        ...

    def add_listed(self, obj: T | UndecodableObject) -> None:
        """Add one object to the list being collected."""
        ...

    def discard_listed(self, obj: T | UndecodableObject) -> None:
        """Remove one object from the list being collected: it was deleted before the list was complete."""
        ...

    def finish_list(self, resource_version: str) -> None:
        """Replace the store with the collected list. Raise a `KubeError` to have the list repeated."""
        ...

    def apply(self, event: WatchEvent[T] | WatchEvent[UndecodableObject]) -> None:
        """Apply one watch event, which may be older than what the store has."""
        ...

    def advance(self, resource_version: str) -> None:
        """Record that there is no further change up to `resource_version`."""
        ...

    def is_ahead_of(self, resource_version: str) -> bool:
        """Return whether something newer than `resource_version` was seen."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ListWatch(Generic[T]):
    """The selection of objects to list and watch."""

    resource: Resource[T] = field(kw_only=False)
    namespace: str | None = None
    labels: str = ""
    fields: str = ""
    page_size: int = PAGE_SIZE
    # A connection silent for this long is closed. A server sends a bookmark about every minute
    # (defaultBookmarkFrequency in staging/src/k8s.io/apiserver/pkg/storage/cacher/cacher.go), so two were missed by
    # then.
    silence_timeout: timedelta = timedelta(seconds=150)


class _WatchSilent(Unreachable):
    """A watch received nothing for too long."""


class _ListWithoutEnd(Unreachable):
    """A streamed list does not end: its last bookmark was lost or never sent."""


class Reflector(Generic[T]):
    """Keeps a `ReflectorStore` up to date while `run` runs."""

    def __init__(
        self,
        client: Client,
        list_watch: ListWatch[T],
        store: ReflectorStore[T],
        *,
        on_health_change: Callable[[KubeError | None], None] = lambda _: None,
    ) -> None:
        self.problem: str | None = None  # why the reflector is disconnected now
        self.is_missing = False  # the server does not serve this resource
        self.last_received: float | None = None  # when the server last sent anything, on the event loop's clock
        self._client = client
        self._clock = client.clock
        self._list_watch = list_watch
        self._store = store
        self._on_health_change = on_health_change  # called with each failure, and with None on recovery
        self._retry: Retry  # of connecting, from the start of `run`
        self._limit_retry = Retry(client.clock, client.random, _LIMIT_BACKOFF)  # the server exceeded a limit
        self._was_expired = False  # the last failure was a 410
        self._must_list = True
        self._made_progress = False
        self._is_server_current = False  # since the last reconnect, the server is known not to be behind the store
        self._can_stream_list = True  # until the server rejects a streaming list
        self._page_next_list = False  # list by pages next: a streamed list did not end
        self._page_size = list_watch.page_size
        self._interrupt_scope = InterruptScope()

    def interrupt(self, error: LimitExceeded) -> None:
        """Fail with `error` now: the store is empty and must be listed again."""
        self._must_list = True
        if str(error) != self.problem:
            log.warning("%s; trying again", str(error))
        self.problem = str(error)  # set here because `run` may not be running; `_record_recovery` resets it
        self._on_health_change(error)
        self._interrupt_scope.interrupt(error)

    async def run(self) -> NoReturn:
        self._retry = Retry(self._clock, self._client.random, RECONNECT, stable_after=_STABLE_AFTER)
        while True:
            delay: timedelta | None = None
            started = self._clock.monotonic()
            self._made_progress = False
            try:
                async with self._interrupt_scope:
                    ended_silent = await self._list_and_watch()
            except KubeError as error:
                self._is_server_current = False
                # Only after minutes without an excess: a server that sends too much does so again with its next list,
                # which takes seconds to arrive.
                if self._clock.monotonic() - started > _LIMIT_STABLE_AFTER.total_seconds():
                    self._limit_retry.reset()
                self._record_failure(error)
                delay = self._retry_delay(error)
            # outside the except block: the traceback of the error keeps the current page in memory
            if delay is not None:
                await self._clock.sleep(delay)
                continue
            self._retry.reset()
            # The next connection may reach another server, which may be behind. Only after a silence was it just
            # verified.
            self._is_server_current = self._is_server_current and ended_silent
            if self._clock.monotonic() - started < _MIN_WATCH_DURATION.total_seconds():
                await self._clock.sleep(RECONNECT.delay(1, self._client.random))

    def _record_failure(self, error: KubeError) -> None:
        if isinstance(error, Expired):
            # If a paged list expires before its last page, the next list is unpaged, once (FullListIfExpired of
            # client-go's tools/pager/pager.go).
            expired_in_pages = self._must_list and not self._can_stream_list and self._page_size
            self._page_size = 0 if expired_in_pages else self._list_watch.page_size
            self._must_list = True
        else:
            self._page_size = self._list_watch.page_size
        if isinstance(error, LimitExceeded):
            self._must_list = True
        if str(error) != self.problem:
            log.warning("%s; trying again", str(error))
        self.problem = str(error)
        self.is_missing = isinstance(error, NotFound)
        self._on_health_change(error)

    def _record_recovery(self) -> None:
        if self.problem is not None and not self._must_list:
            log.info("watching %s again", self._list_watch.resource)
            self.problem, self.is_missing = None, False
            self._on_health_change(None)

    def _on_watch_established(self) -> None:
        """Record recovery: the watch was opened some time ago and has not failed since."""
        self._record_recovery()

    def _retry_delay(self, error: KubeError) -> timedelta:
        # Progress since the last failure makes this a new failure, not a repeated one. So does the first 410: the
        # server answers again, and only reports that the watch was interrupted for too long.
        is_expired, was_expired = isinstance(error, Expired), self._was_expired
        self._was_expired = is_expired
        if self._made_progress or (is_expired and not was_expired):
            self._retry.reset()
        delay = self._retry.delay(error)
        if isinstance(error, LimitExceeded):
            return self._limit_retry.delay(error)
        # relist at once after 410 Gone: the server works, only the watch was interrupted for too long
        return timedelta() if is_expired and self._retry.failures == 1 else delay

    async def _list_and_watch(self) -> bool:
        """List if needed, then apply changes until the watch ends. Return whether the watch ended in silence."""
        if self._must_list and (self._page_next_list or not self._can_stream_list):
            await self._list_pages()
        try:
            async with self._watch() as events:
                if self._must_list:
                    await self._stream_list(events)
                await self._apply(events)
        except _WatchSilent as silence:
            if self._must_list:
                self._page_next_list = True
                raise _ListWithoutEnd(self._endless_list, sent=True) from silence
            await self._verify()
            return True
        # An API server without WatchList answers 422: "sendInitialEvents is forbidden for watch unless the WatchList
        # feature gate is enabled". Extension API servers have their own feature gates, and older ones answer 400.
        except (BadRequest, Invalid) as error:
            if not (self._must_list and self._can_stream_list):
                raise
            log.info("streaming lists are not available (%s); listing in pages", error)
            self._can_stream_list = False
            return await self._list_and_watch()
        return False

    async def _verify(self) -> None:
        """Force a relist if the server is behind the store: a watch at a future resource version stays silent."""
        if self._is_server_current:
            return
        # A list without resourceVersion is a consistent read: from etcd, or from a watch cache that has caught up with
        # etcd (KEP-2340). With limit 1 it costs almost nothing.
        async with aclosing(self._pages(1)) as pages:
            first = await anext(pages)
        self._is_server_current = not self._store.is_ahead_of(first.resource_version)
        self._must_list = not self._is_server_current

    async def _stream_list(self, events: AsyncIterator[ListWatchEvent[T]]) -> None:
        self._store.begin_list()
        loop = asyncio.get_running_loop()
        list_deadline = loop.time() + _LIST_TIMEOUT.total_seconds()
        ends_within = _LIST_END_TIMEOUT.total_seconds()
        ends_by = loop.time() + ends_within
        async for event in events:
            now = self.last_received = loop.time()
            if not isinstance(event, Bookmark):
                # Changes that happen during the list are sent in between.
                handle = self._store.discard_listed if event.type == "DELETED" else self._store.add_listed
                handle(event.object)
                # Only progress of the list extends the deadline. A busy cluster sends MODIFIED without end, and would
                # hide that the final bookmark was lost.
                if event.type == "ADDED":
                    ends_by = now + ends_within
            elif event.ends_initial_list:
                self._finish_list(event.resource_version)
                return
            if now > min(ends_by, list_deadline):
                self._page_next_list = True
                raise _ListWithoutEnd(self._endless_list, sent=True)
        raise Unreachable(f"watching {self._list_watch.resource}: the server ended its list too early", sent=True)

    async def _list_pages(self) -> None:
        self._store.begin_list()
        resource_version = ""
        async with aclosing(self._pages(self._page_size)) as pages:
            async for page in pages:
                self.last_received = asyncio.get_running_loop().time()
                resource_version = page.resource_version
                self._add_page(page)
                del page  # a decoded page takes up to 32 times its bytes: free it while the next page is awaited
        self._finish_list(resource_version)

    def _add_page(self, page: Page[T | UndecodableObject]) -> None:
        for obj in page.items:
            self._store.add_listed(obj)

    def _pages(self, page_size: int) -> AsyncGenerator[Page[T | UndecodableObject], None]:
        list_watch = self._list_watch
        return self._client.pages(
            list_watch.resource,
            namespace=list_watch.namespace,
            labels=list_watch.labels,
            fields=list_watch.fields,
            page_size=page_size,
        )

    @property
    def _endless_list(self) -> str:
        return f"watching {self._list_watch.resource}: the streamed list does not end; listing in pages"

    def _finish_list(self, resource_version: str) -> None:
        self._store.finish_list(resource_version)
        self._must_list = self._page_next_list = False
        self._page_size = self._list_watch.page_size
        self._is_server_current = True

    async def _apply(self, events: AsyncIterator[ListWatchEvent[T]]) -> None:
        loop = asyncio.get_running_loop()
        async for event in events:
            self.last_received = loop.time()
            if not self._made_progress:
                self._made_progress = self._is_server_current = True
                if not self._limit_retry.failures:  # after a limit was exceeded, one event does not prove recovery
                    self._record_recovery()
            if isinstance(event, Bookmark):
                self._store.advance(event.resource_version)
            else:
                self._store.apply(event)

    @asynccontextmanager
    async def _watch(self) -> AsyncIterator[AsyncIterator[ListWatchEvent[T]]]:
        list_watch = self._list_watch
        try:
            async with (
                asyncio.timeout(None) as limit,
                self._client.watch(
                    list_watch.resource,
                    namespace=list_watch.namespace,
                    labels=list_watch.labels,
                    fields=list_watch.fields,
                    # With sendInitialEvents, an empty version asks for a consistent read (KEP-3157): the list must not
                    # come from a watch cache that is behind.
                    resource_version="" if self._must_list else self._store.last_resource_version,
                    initial_list=self._must_list,
                    watch_timeout=_MIN_WATCH_TIMEOUT * (1 + self._client.random.random()),
                    open_timeout=min(list_watch.silence_timeout, _OPEN_TIMEOUT),
                ) as events,
            ):
                with self._silence_watchdog(limit):
                    yield events
        except TimeoutError as error:
            silence = f"{list_watch.silence_timeout.total_seconds():g} s"
            raise _WatchSilent(f"watching {list_watch.resource}: nothing received for {silence}", sent=True) from error

    @contextmanager
    def _silence_watchdog(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Expire `limit` when the connection has been silent for too long.

        To reschedule a timer for each event costs more than to handle the event. So the timer only checks when the last
        event came.
        """
        loop = asyncio.get_running_loop()
        self.last_received = loop.time()
        established = loop.call_later(_ESTABLISHED_AFTER.total_seconds(), self._on_watch_established)
        watchdog: asyncio.TimerHandle

        def check() -> None:
            nonlocal watchdog
            remaining = (self.last_received or 0) + self._silence_limit() - loop.time()
            if remaining > 0:
                watchdog = loop.call_later(remaining, check)
            else:
                limit.reschedule(loop.time())

        watchdog = loop.call_later(self._silence_limit(), check)
        try:
            yield
        finally:
            watchdog.cancel()
            established.cancel()

    def _silence_limit(self) -> float:
        """Return the silence limit in seconds. It is shorter during a list, which a server sends without pauses."""
        silence = self._list_watch.silence_timeout
        return (min(silence, _LIST_END_TIMEOUT) if self._must_list else silence).total_seconds()
