"""Following a resource: load it, watch it, and never give up.

A `Follower` keeps the connection; a `Copy` (mostly a `haulout.kube.cache.Cache`) keeps what it brings. The follower
resumes where it stopped as long as the server remembers that far back, and otherwise has everything sent anew. It uses
the server's streaming list where there is one, and pages otherwise.

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

from haulout.core.backoff import Backoff
from haulout.errors import ApiError, BadRequest, Expired, Invalid, KubeError, LimitExceeded, NotFound, Unreachable
from haulout.kube.client import PAGE_SIZE, Client
from haulout.kube.objects import Bookmark, Misfit, Page, WatchEvent
from haulout.kube.resources import Resource
from haulout.kube.shared_budget import Interruption

T = TypeVar("T")
Told = WatchEvent[T] | WatchEvent[Misfit] | Bookmark

log = logging.getLogger(__name__)

_SHORTEST_WATCH = timedelta(minutes=5)  # the server ends a watch after one to two times this, so that load spreads
_OPENING_WITHIN = timedelta(seconds=30)
_TOO_SHORT = timedelta(seconds=1)
_LIST_ENDS_WITHIN = timedelta(seconds=20)  # after its last object
_LIST_LASTS = timedelta(minutes=3)  # however many objects are made meanwhile
_SETTLED = timedelta(seconds=30)  # a watch that stood this long worked, though nothing came over it
_WELL_AFTER = timedelta(seconds=5)  # without an error following a watch's start
_LONGEST_PAUSE = timedelta(minutes=5)  # whatever a Retry-After says: a page of a load balancer must not blind us
_BACKOFF = Backoff(first=timedelta(seconds=1), factor=2, limit=timedelta(seconds=30), jitter=0.5)
# For a server that sends too much: reading that much again costs seconds of CPU time.
_EXCESS_BACKOFF = Backoff(first=timedelta(seconds=5), factor=2, limit=timedelta(minutes=1), jitter=0.5)


class Copy(Protocol[T]):
    """What a follower fills."""

    @property
    def position(self) -> str:
        """The resource version from which a watch continues; empty while there is none."""
        ...

    def begin(self) -> None:
        """Expect everything there is, by `collect`, until `complete`."""
        ...

    def collect(self, thing: T | Misfit) -> None:
        """Take one of the objects there are."""
        ...

    def discard(self, thing: T | Misfit) -> None:
        """Take back one that was collected: it went before the list was complete."""
        ...

    def complete(self, resource_version: str) -> None:
        """Make what was collected the state of things; raises a `KubeError` to have it loaded again."""
        ...

    def apply(self, event: WatchEvent[T] | WatchEvent[Misfit]) -> None:
        """Take one change."""
        ...

    def advance(self, resource_version: str) -> None:
        """Note that there is no change up to `resource_version`."""
        ...

    def is_ahead_of(self, resource_version: str) -> bool:
        """Tell whether something newer than `resource_version` was seen."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(Generic[T]):
    """Which objects are followed, and how."""

    resource: Resource[T] = field(kw_only=False)
    namespace: str | None = None
    labels: str = ""
    fields: str = ""
    page_size: int = PAGE_SIZE
    silence: timedelta = timedelta(seconds=150)  # after which a connection is given up


class _WentSilent(Unreachable):
    """Nothing was heard over a watch for too long."""


class _NoEnd(Unreachable):
    """A streamed list does not end."""


class Follower(Generic[T]):
    """Keeps a copy of a selection up to date for as long as `run` runs."""

    def __init__(
        self,
        client: Client,
        selection: Selection[T],
        copy: Copy[T],
        *,
        observe: Callable[[KubeError | None], None] = lambda _: None,
    ) -> None:
        self.problem: str | None = None  # why it is not following now
        self.is_missing = False  # the server knows no such kind of object
        self.heard: float | None = None  # when the server last said anything, on the loop's clock
        self._client = client
        self._clock = client.clock
        self._selection = selection
        self._copy = copy
        self._observe = observe  # called with each failure, and with None when it follows again
        self._excesses = 0  # in a row: the server exceeded a limit
        self._must_load = True
        self._progressed = False
        self._verified = False  # that the server is not behind us, since the last reconnect
        self._streams = True  # until the server says that it cannot
        self._pages_once = False  # the next list by pages: a streamed one did not end
        self._page_size = selection.page_size
        self._interruption = Interruption()

    def interrupt(self, error: LimitExceeded) -> None:
        """Fail with `error` now: the copy is empty, and everything has to be loaded anew."""
        self._must_load = True
        if str(error) != self.problem:
            log.warning("%s; trying again", str(error))
        self.problem = str(error)  # also if nothing runs that could fail now: `_well` tells when it follows again
        self._observe(error)
        self._interruption.end(error)

    async def run(self) -> NoReturn:
        """Follow until cancelled."""
        failures, was_expired = 0, False
        while True:
            pause: timedelta | None = None
            started = self._clock.monotonic()
            self._progressed = False
            try:
                async with self._interruption:
                    silent = await self._follow()
            except KubeError as error:
                lasted = self._clock.monotonic() - started
                # Having got somewhere since the last failure makes this new trouble, not more of the old. So does a
                # server that answers again: it only says for how long it did not.
                is_expired = isinstance(error, Expired)
                back = is_expired and not was_expired
                fresh = back or self._progressed or lasted > _SETTLED.total_seconds()
                failures, was_expired = 1 if fresh else failures + 1, is_expired
                self._verified = False
                self._excesses = 0 if lasted > _LONGEST_PAUSE.total_seconds() else self._excesses
                self._note(error)
                pause = self._pause(error, failures)
            if pause is not None:  # not above: the error's traceback keeps the page in memory that was being taken in
                await self._clock.sleep(pause)
                continue
            self._verified = self._verified and silent
            if self._clock.monotonic() - started < _TOO_SHORT.total_seconds():
                await self._clock.sleep(_BACKOFF.delay(1, self._client.random))

    def _note(self, error: KubeError) -> None:
        if isinstance(error, Expired):
            # A list that was gone before its last page was read is taken in one piece the next time, and only then.
            expired_in_pages = self._must_load and not self._streams and self._page_size
            self._page_size = 0 if expired_in_pages else self._selection.page_size
            self._must_load = True
        else:
            self._page_size = self._selection.page_size
        if isinstance(error, LimitExceeded):
            self._excesses += 1
            self._must_load = True
        if str(error) != self.problem:
            log.warning("%s; trying again", str(error))
        self.problem = str(error)
        self.is_missing = isinstance(error, NotFound)
        self._observe(error)

    def _well(self) -> None:
        if self.problem is not None and not self._must_load:
            log.info("following %s again", self._selection.resource)
            self.problem, self.is_missing = None, False
            self._observe(None)

    def _stands(self) -> None:
        """Take a watch for good that was opened some time ago, and had no trouble since."""
        self._well()

    def _pause(self, error: KubeError, failures: int) -> timedelta:
        if isinstance(error, Expired) and failures == 1:
            return timedelta()  # nothing is wrong with the server: we were away for too long
        if isinstance(error, LimitExceeded):
            return _EXCESS_BACKOFF.delay(self._excesses, self._client.random)
        asked_for = error.retry_after if isinstance(error, ApiError) else None
        return max(_BACKOFF.delay(failures, self._client.random), min(asked_for or timedelta(), _LONGEST_PAUSE))

    async def _follow(self) -> bool:
        """Load if needed, then take changes until the watch ends; tells whether it ended in silence."""
        if self._must_load and (self._pages_once or not self._streams):
            await self._load_pages()
        try:
            async with self._watch() as told:
                if self._must_load:
                    await self._load_stream(told)
                await self._apply(told)
        except _WentSilent as silence:
            if self._must_load:
                self._pages_once = True
                raise _NoEnd(self._endless, sent=True) from silence
            await self._verify()
            return True
        except (BadRequest, Invalid) as error:
            if not (self._must_load and self._streams):
                raise
            log.info("no streaming list (%s); loading by pages", error)
            self._streams = False
            return await self._follow()
        return False

    async def _verify(self) -> None:
        """Load anew if the server is behind us: a watch from its future is silent, and stays so."""
        if self._verified:
            return
        async with aclosing(self._pages(1)) as pages:
            first = await anext(pages)
        self._verified = not self._copy.is_ahead_of(first.resource_version)
        self._must_load = not self._verified

    async def _load_stream(self, told: AsyncIterator[Told[T]]) -> None:
        self._copy.begin()
        loop = asyncio.get_running_loop()
        until = loop.time() + _LIST_LASTS.total_seconds()
        ends_within = _LIST_ENDS_WITHIN.total_seconds()
        ends_by = loop.time() + ends_within
        async for event in told:
            now = self.heard = loop.time()
            if not isinstance(event, Bookmark):
                take = self._copy.discard if event.type == "DELETED" else self._copy.collect
                take(event.object)
                if event.type == "ADDED":
                    ends_by = now + ends_within
            elif event.ends_initial_list:
                self._loaded(event.resource_version)
                return
            if now > min(ends_by, until):
                self._pages_once = True
                raise _NoEnd(self._endless, sent=True)
        raise Unreachable(f"watching {self._selection.resource}: the server ended its list half-way", sent=True)

    async def _load_pages(self) -> None:
        self._copy.begin()
        resource_version = ""
        async with aclosing(self._pages(self._page_size)) as pages:
            async for page in pages:
                self.heard = asyncio.get_running_loop().time()
                resource_version = page.resource_version
                self._collect(page)
                del page  # decoded, it takes up to 32 times its bytes: not kept while the next one is awaited
        self._loaded(resource_version)

    def _collect(self, page: Page[T | Misfit]) -> None:
        for thing in page.items:
            self._copy.collect(thing)

    def _pages(self, page_size: int) -> AsyncGenerator[Page[T | Misfit], None]:
        of = self._selection
        return self._client.pages(
            of.resource, namespace=of.namespace, labels=of.labels, fields=of.fields, page_size=page_size
        )

    @property
    def _endless(self) -> str:
        return f"watching {self._selection.resource}: the list that the server streams has no end; loading by pages"

    def _loaded(self, resource_version: str) -> None:
        self._copy.complete(resource_version)
        self._must_load = self._pages_once = False
        self._page_size = self._selection.page_size
        self._verified = True

    async def _apply(self, told: AsyncIterator[Told[T]]) -> None:
        loop = asyncio.get_running_loop()
        async for event in told:
            self.heard = loop.time()
            if not self._progressed:
                self._progressed = self._verified = True
                if not self._excesses:  # one event of a watch that floods is no sign that it stopped
                    self._well()
            if isinstance(event, Bookmark):
                self._copy.advance(event.resource_version)
            else:
                self._copy.apply(event)

    @asynccontextmanager
    async def _watch(self) -> AsyncIterator[AsyncIterator[Told[T]]]:
        of = self._selection
        try:
            async with (
                asyncio.timeout(None) as limit,
                self._client.watch(
                    of.resource,
                    namespace=of.namespace,
                    labels=of.labels,
                    fields=of.fields,
                    resource_version="" if self._must_load else self._copy.position,
                    initial_list=self._must_load,
                    lasting=_SHORTEST_WATCH * (1 + self._client.random.random()),
                    opening_within=min(of.silence, _OPENING_WITHIN),
                ) as told,
            ):
                with self._unless_silent(limit):
                    yield told
        except TimeoutError as error:
            silence = f"{of.silence.total_seconds():g} s"
            raise _WentSilent(f"watching {of.resource}: nothing heard for {silence}", sent=True) from error

    @contextmanager
    def _unless_silent(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Let `limit` pass when nothing has been heard for too long.

        Moving a timer for each event would cost more than handling the event, so the timer only looks how long ago the
        last one came.
        """
        loop = asyncio.get_running_loop()
        self.heard = loop.time()
        well = loop.call_later(_WELL_AFTER.total_seconds(), self._stands)
        watchdog: asyncio.TimerHandle

        def look() -> None:
            nonlocal watchdog
            left = (self.heard or 0) + self._patience() - loop.time()
            if left > 0:
                watchdog = loop.call_later(left, look)
            else:
                limit.reschedule(loop.time())

        watchdog = loop.call_later(self._patience(), look)
        try:
            yield
        finally:
            watchdog.cancel()
            well.cancel()

    def _patience(self) -> float:
        """Return how many seconds of silence mean that nothing more will come: a list is sent without a pause."""
        silence = self._selection.silence
        return (min(silence, _LIST_ENDS_WITHIN) if self._must_load else silence).total_seconds()
