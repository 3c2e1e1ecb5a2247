"""Following a resource: load it, watch it, and never give up.

A `Reflector` keeps the connection; a `ReflectorStore` (mostly a `haulout.kube.informer.Informer`) keeps what it
brings. The follower resumes where it stopped as long as the server remembers that far back, and otherwise has
everything sent anew. It uses the server's streaming list where there is one, and pages otherwise.

A connection that has gone silent is given up and opened anew, which costs one request: a server sends bookmarks about
every minute, so a longer silence means that nothing at all was written (then it may be silent), or that nobody is
there, whatever TCP believes; or, after a reconnect, that the server is behind us (etcd was restored from a backup),
which it would never say. So the first silence after a reconnect is verified by a list of one.

A streamed list ends with a bookmark that says so. When it does not come (it was lost on the way, or a server never
sends it) the list is taken by pages instead, that once: what is there must not stay unknown until the watch ends.

Trouble is met with growing, jittered pauses, or with the pause the server asks for; it is logged when it begins,
changes and ends, not on every try. A server that exceeds a limit (`haulout.kube.limits`) is asked for everything anew,
less and less often until it keeps to its limits.
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
from haulout.core.backoff import Backoff
from haulout.core.memory_quota import InterruptScope
from haulout.errors import ApiError, BadRequest, Expired, Invalid, KubeError, LimitExceeded, NotFound, Unreachable
from haulout.kube.client import PAGE_SIZE, Client

T = TypeVar("T")
ListWatchEvent = WatchEvent[T] | WatchEvent[UndecodableObject] | Bookmark

log = logging.getLogger(__name__)

_MIN_WATCH_TIMEOUT = timedelta(minutes=5)  # the server ends a watch after one to two times this, so that load spreads
_OPEN_TIMEOUT = timedelta(seconds=30)
_MIN_WATCH_DURATION = timedelta(seconds=1)
_LIST_END_TIMEOUT = timedelta(seconds=20)  # after its last object
_LIST_TIMEOUT = timedelta(minutes=3)  # however many objects are made meanwhile
_STABLE_AFTER = timedelta(seconds=30)  # a watch that stood this long worked, though nothing came over it
_ESTABLISHED_AFTER = timedelta(seconds=5)  # without an error following a watch's start
_MAX_RETRY_AFTER = timedelta(minutes=5)  # whatever a Retry-After says: a page of a load balancer must not blind us
_BACKOFF = Backoff(first=timedelta(seconds=1), factor=2, limit=timedelta(seconds=30), jitter=0.5)
# For a server that sends too much: reading that much again costs seconds of CPU time.
_LIMIT_BACKOFF = Backoff(first=timedelta(seconds=5), factor=2, limit=timedelta(minutes=1), jitter=0.5)


class ReflectorStore(Protocol[T]):
    """What a follower fills."""

    @property
    def last_resource_version(self) -> str:
        """The resource version from which a watch continues; empty while there is none."""
        ...

    def begin_list(self) -> None:
        """Expect everything there is, by `add_listed`, until `finish_list`."""
        ...

    def add_listed(self, obj: T | UndecodableObject) -> None:
        """Take one of the objects there are."""
        ...

    def discard_listed(self, obj: T | UndecodableObject) -> None:
        """Take back one that was collected: it went before the list was complete."""
        ...

    def finish_list(self, resource_version: str) -> None:
        """Make what was collected the state of things; raises a `KubeError` to have it loaded again."""
        ...

    def apply(self, event: WatchEvent[T] | WatchEvent[UndecodableObject]) -> None:
        """Take one change."""
        ...

    def advance(self, resource_version: str) -> None:
        """Note that there is no change up to `resource_version`."""
        ...

    def is_ahead_of(self, resource_version: str) -> bool:
        """Tell whether something newer than `resource_version` was seen."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ListWatch(Generic[T]):
    """Which objects are followed, and how."""

    resource: Resource[T] = field(kw_only=False)
    namespace: str | None = None
    labels: str = ""
    fields: str = ""
    page_size: int = PAGE_SIZE
    silence_timeout: timedelta = timedelta(seconds=150)  # after which a connection is given up


class _WatchSilent(Unreachable):
    """Nothing was heard over a watch for too long."""


class _ListWithoutEnd(Unreachable):
    """A streamed list does not end."""


class Reflector(Generic[T]):
    """Keeps a copy of a selection up to date for as long as `run` runs."""

    def __init__(
        self,
        client: Client,
        list_watch: ListWatch[T],
        store: ReflectorStore[T],
        *,
        on_health_change: Callable[[KubeError | None], None] = lambda _: None,
    ) -> None:
        self.problem: str | None = None  # why it is not following now
        self.is_missing = False  # the server knows no such kind of object
        self.last_received: float | None = None  # when the server last said anything, on the loop's clock
        self._client = client
        self._clock = client.clock
        self._list_watch = list_watch
        self._store = store
        self._on_health_change = on_health_change  # called with each failure, and with None when it follows again
        self._limit_failures = 0  # in a row: the server exceeded a limit
        self._must_list = True
        self._made_progress = False
        self._is_server_current = False  # that the server is not behind us, since the last reconnect
        self._can_stream_list = True  # until the server says that it cannot
        self._page_next_list = False  # the next list by pages: a streamed one did not end
        self._page_size = list_watch.page_size
        self._interrupt_scope = InterruptScope()

    def interrupt(self, error: LimitExceeded) -> None:
        """Fail with `error` now: the copy is empty, and everything has to be loaded anew."""
        self._must_list = True
        if str(error) != self.problem:
            log.warning("%s; trying again", str(error))
        self.problem = str(
            error
        )  # also if nothing runs that could fail now: `_record_recovery` tells when it follows again
        self._on_health_change(error)
        self._interrupt_scope.interrupt(error)

    async def run(self) -> NoReturn:
        """Follow until cancelled."""
        failures, was_expired = 0, False
        while True:
            delay: timedelta | None = None
            started = self._clock.monotonic()
            self._made_progress = False
            try:
                async with self._interrupt_scope:
                    ended_silent = await self._list_and_watch()
            except KubeError as error:
                elapsed = self._clock.monotonic() - started
                # Having got somewhere since the last failure makes this new trouble, not more of the old. So does a
                # server that answers again: it only says for how long it did not.
                is_expired = isinstance(error, Expired)
                is_first_expiry = is_expired and not was_expired
                is_new_failure = is_first_expiry or self._made_progress or elapsed > _STABLE_AFTER.total_seconds()
                failures, was_expired = 1 if is_new_failure else failures + 1, is_expired
                self._is_server_current = False
                self._limit_failures = 0 if elapsed > _MAX_RETRY_AFTER.total_seconds() else self._limit_failures
                self._record_failure(error)
                delay = self._retry_delay(error, failures)
            if delay is not None:  # not above: the error's traceback keeps the page in memory that was being taken in
                await self._clock.sleep(delay)
                continue
            self._is_server_current = self._is_server_current and ended_silent
            if self._clock.monotonic() - started < _MIN_WATCH_DURATION.total_seconds():
                await self._clock.sleep(_BACKOFF.delay(1, self._client.random))

    def _record_failure(self, error: KubeError) -> None:
        if isinstance(error, Expired):
            # A list that was gone before its last page was read is taken in one piece the next time, and only then.
            expired_in_pages = self._must_list and not self._can_stream_list and self._page_size
            self._page_size = 0 if expired_in_pages else self._list_watch.page_size
            self._must_list = True
        else:
            self._page_size = self._list_watch.page_size
        if isinstance(error, LimitExceeded):
            self._limit_failures += 1
            self._must_list = True
        if str(error) != self.problem:
            log.warning("%s; trying again", str(error))
        self.problem = str(error)
        self.is_missing = isinstance(error, NotFound)
        self._on_health_change(error)

    def _record_recovery(self) -> None:
        if self.problem is not None and not self._must_list:
            log.info("following %s again", self._list_watch.resource)
            self.problem, self.is_missing = None, False
            self._on_health_change(None)

    def _on_watch_established(self) -> None:
        """Take a watch for good that was opened some time ago, and had no trouble since."""
        self._record_recovery()

    def _retry_delay(self, error: KubeError, failures: int) -> timedelta:
        if isinstance(error, Expired) and failures == 1:
            return timedelta()  # nothing is wrong with the server: we were away for too long
        if isinstance(error, LimitExceeded):
            return _LIMIT_BACKOFF.delay(self._limit_failures, self._client.random)
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        return max(_BACKOFF.delay(failures, self._client.random), min(retry_after or timedelta(), _MAX_RETRY_AFTER))

    async def _list_and_watch(self) -> bool:
        """Load if needed, then take changes until the watch ends; tells whether it ended in silence."""
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
        except (BadRequest, Invalid) as error:
            if not (self._must_list and self._can_stream_list):
                raise
            log.info("no streaming list (%s); loading by pages", error)
            self._can_stream_list = False
            return await self._list_and_watch()
        return False

    async def _verify(self) -> None:
        """Load anew if the server is behind us: a watch from its future is silent, and stays so."""
        if self._is_server_current:
            return
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
                handle = self._store.discard_listed if event.type == "DELETED" else self._store.add_listed
                handle(event.object)
                if event.type == "ADDED":
                    ends_by = now + ends_within
            elif event.ends_initial_list:
                self._finish_list(event.resource_version)
                return
            if now > min(ends_by, list_deadline):
                self._page_next_list = True
                raise _ListWithoutEnd(self._endless_list, sent=True)
        raise Unreachable(f"watching {self._list_watch.resource}: the server ended its list half-way", sent=True)

    async def _list_pages(self) -> None:
        self._store.begin_list()
        resource_version = ""
        async with aclosing(self._pages(self._page_size)) as pages:
            async for page in pages:
                self.last_received = asyncio.get_running_loop().time()
                resource_version = page.resource_version
                self._add_page(page)
                del page  # decoded, it takes up to 32 times its bytes: not kept while the next one is awaited
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
        return f"watching {self._list_watch.resource}: the list that the server streams has no end; loading by pages"

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
                if not self._limit_failures:  # one event of a watch that floods is no sign that it stopped
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
            raise _WatchSilent(f"watching {list_watch.resource}: nothing heard for {silence}", sent=True) from error

    @contextmanager
    def _silence_watchdog(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Let `limit` pass when nothing has been heard for too long.

        Moving a timer for each event would cost more than handling the event, so the timer only looks how long ago the
        last one came.
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
        """Return how many seconds of silence mean that nothing more will come: a list is sent without a pause."""
        silence = self._list_watch.silence_timeout
        return (min(silence, _LIST_END_TIMEOUT) if self._must_list else silence).total_seconds()
