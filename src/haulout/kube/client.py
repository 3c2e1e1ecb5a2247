"""Asking a cluster for things and telling it what to change.

The client prepares requests and understands answers; a `Transport` moves the bytes. It holds no state that matters, so
a process may have as many as it has clusters.

It repeats a request by itself only where that cannot do harm, a bounded number of times, and never sooner than the
server asked for:

- the request never left (connection refused): whatever it was;
- the server turned it away unprocessed (429): whatever it was, but an eviction, whose 429 is an answer;
- it may have taken effect (time-out, an answer cut short, 5xx): only if it was a read.

Everything else is the caller's business, because only the caller knows what a write that may have happened means. A
client made with `fenced` has each write ask for leave when it is about to go out: this is how a process that lost its
leadership while its event loop stood still is kept from writing in the name of a leader it no longer is.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, TypeVar

import msgspec

from haulout.core import duration
from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import (
    ApiError,
    Expired,
    GarbledAnswer,
    LimitExceeded,
    ServerFailure,
    TooManyRequests,
    Unreachable,
)
from haulout.kube import answers
from haulout.kube.calls import NO_ANSWER, OTHER, Call, Calls
from haulout.kube.impersonation import Headers
from haulout.kube.limits import OWN_CLUSTER, CacheBudget, Limits
from haulout.kube.meters import Meters
from haulout.kube.objects import Bookmark, Misfit, Object, Page, Version, WatchEvent, object_key
from haulout.kube.patches import Patch
from haulout.kube.resources import PODS, Resource
from haulout.kube.transport import Request, Response, Telling, Token, Transport

log = logging.getLogger(__name__)

T = TypeVar("T")
Query = tuple[tuple[str, str], ...]

PAGE_SIZE = 500
_TRIES = 4
_PAGE_WITHIN = timedelta(seconds=30)
_WHOLE_LIST_WITHIN = timedelta(minutes=5)  # and once: what takes so long must not be asked for over and over
_LIST_WITHIN = timedelta(minutes=15)  # all pages together: servers forget the moment that a list shows after five
_FEWER = 5  # times fewer objects are asked for when a page is too large
_EMPTY_PAGES = 100  # in a row: servers send none
_LONGEST_WAIT = timedelta(seconds=30)  # a longer Retry-After is the caller's to schedule
_BACKOFF = Backoff(first=timedelta(milliseconds=200), factor=2, limit=timedelta(seconds=5), jitter=0.5)
_OK = 200
_REFUSED = 300


class Client:
    """One cluster's API, as seen by one user."""

    def __init__(  # noqa: PLR0913 - what clients of one cluster differ in
        self,
        transport: Transport,
        *,
        clock: Clock,
        random: Random,
        field_manager: str = "haulout",
        may_write: Callable[[], None] | None = None,
        calls: Calls | None = None,
        meters: Meters | None = None,
        headers: Headers = (),
        token: Token | None = None,
        cached: CacheBudget | None = None,
    ) -> None:
        self.transport = transport
        self.clock = clock
        self.random = random
        self.field_manager = field_manager
        self.calls = calls or Calls(clock)  # what was asked so far, and how it was answered
        self.meters = meters or Meters()
        self.may_write = may_write  # asked before each write leaves
        self.cached = cached or CacheBudget(OWN_CLUSTER)  # what all caches of the cluster keep
        self.limits = self.cached.limits
        self._headers = headers  # of each request
        self._token = token  # of whoever asks, instead of the transport's own credentials

    def fenced(self, may_write: Callable[[], None]) -> "Client":
        """Return a client over the same transport whose every write calls `may_write` as it leaves, which may raise."""
        return self._copy(may_write=may_write)

    def fenced_as(self, other: "Client") -> "Client":
        """Return a client over the same transport whose writes ask for the same leave as those of another client."""
        return self._copy(may_write=other.may_write)

    def over(self, transport: Transport) -> "Client":
        """Return a client that differs in its transport only."""
        return self._copy(transport=transport)

    def impersonating(self, headers: Headers, *, field_manager: str) -> "Client":
        """Return a client over the same transport that asks for everything in the name of somebody else.

        For `headers` see `haulout.kube.impersonation`.
        """
        return self._copy(headers=headers, field_manager=field_manager)

    def holding(self, token: Token, *, field_manager: str) -> "Client":
        """Return a client over the same transport that shows this token, and none of the transport's credentials."""
        return self._copy(token=token, field_manager=field_manager)

    def _copy(
        self,
        *,
        transport: Transport | None = None,
        field_manager: str = "",
        may_write: Callable[[], None] | None = None,
        headers: Headers = (),
        token: Token | None = None,
    ) -> "Client":
        return Client(
            transport or self.transport,
            clock=self.clock,
            random=self.random,
            field_manager=field_manager or self.field_manager,
            may_write=may_write or self.may_write,
            calls=self.calls,
            meters=self.meters,
            headers=headers or self._headers,
            token=token or self._token,
            cached=self.cached,
        )

    async def close(self) -> None:
        """Give up all connections."""
        await self.transport.close()

    # Reading

    async def get(self, resource: Resource[T], name: str, *, namespace: str | None = None, subresource: str = "") -> T:
        """Return one object as it is now."""
        path = resource.path(name, namespace=namespace, subresource=subresource)
        doing = f"getting {_named(resource, name, namespace, subresource)}"
        call = _call("get", resource, subresource)
        found = await self._read(resource.model, Request(method="GET", path=path), doing=doing, call=call)
        answers.expect_name(found, name, doing=doing)
        return found

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        from_cache: bool = False,
        page_size: int = PAGE_SIZE,
    ) -> Page[T]:
        """Return all objects, of one moment.

        That moment is now, unless `from_cache` allows the server to answer from its memory, which is cheaper for it
        and may be some seconds old.
        """
        read = partial(self.pages, resource, namespace=namespace, labels=labels, fields=fields, from_cache=from_cache)
        try:
            pages = [page async for page in read(page_size=page_size)]
        except Expired:
            # The moment that the first page showed was compacted away before the last was read: take it in one piece.
            pages = [page async for page in read(page_size=0)]
        items = [item for page in pages for item in page.items]
        for item in items:
            if isinstance(item, Misfit):
                raise GarbledAnswer(f"listing {resource}: {item.key} does not fit its kind: {item.problem}")
        return Page(metadata=pages[-1].metadata, items=tuple(items))  # type: ignore[arg-type]  # no misfit is left

    async def pages(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        from_cache: bool = False,
        page_size: int = PAGE_SIZE,
    ) -> AsyncGenerator[Page[T | Misfit], None]:
        """Yield the pages of a list, all of the same moment; `Expired` when that moment is gone before the end.

        A page that is too large is asked for again with fewer objects. `LimitExceeded` when that does not help, or
        when the pages are too much together.
        """
        path = resource.path(namespace=namespace)
        doing = f"listing {_named(resource, '', namespace)}"
        query = _selection(labels, fields)
        query += (("resourceVersion", "0"),) if from_cache else ()
        following: Query = ()
        total = _ListTotal(self.limits, doing=doing)
        until = self.clock.monotonic() + _LIST_WITHIN.total_seconds()
        while True:
            timeout = _PAGE_WITHIN if page_size else _WHOLE_LIST_WITHIN
            limit: Query = (("limit", str(page_size)),) if page_size else ()
            request = Request(method="GET", path=path, query=query + limit + following, timeout=timeout)
            tries = _TRIES if page_size else 1
            try:
                body = await self._send(request, doing=doing, call=_call("list", resource), tries=tries)
            except LimitExceeded:
                if page_size <= 1:
                    raise
                page_size = max(page_size // _FEWER, 1)
                continue
            page = answers.decode_page(resource.model, body, doing=doing)
            total.add(page, size=len(body))
            token = page.metadata.continue_
            yield page
            if not token:
                return
            if self.clock.monotonic() > until:
                raise LimitExceeded(f"{doing}: the list has not ended within {duration.format(_LIST_WITHIN)}")
            # A continued list names its moment in the token, and must not name another.
            query = tuple(pair for pair in query if pair[0] != "resourceVersion")
            following = (("continue", token),)
            del page, body  # not kept in memory while the next page is awaited

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        initial_list: bool = False,
        lasting: timedelta | None = None,
        opening_within: timedelta = timedelta(seconds=30),
    ) -> AsyncIterator[AsyncIterator[WatchEvent[T] | WatchEvent[Misfit] | Bookmark]]:
        """Yield an iterator over what changes after `resource_version`.

        With `initial_list` the server first sends everything there is as `ADDED`, of a moment not older than
        `resource_version`, and then a bookmark that says so. The iterator ends when the server ends the watch, raises
        `Expired` when the version is too old and `Unreachable` when the connection breaks.
        """
        doing = f"watching {_named(resource, '', namespace)}"
        query = (*_selection(labels, fields), ("watch", "true"), ("allowWatchBookmarks", "true"))
        query += (("resourceVersion", resource_version),) if resource_version else ()
        query += (("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")) if initial_list else ()
        query += (("timeoutSeconds", str(round(lasting.total_seconds()))),) if lasting else ()
        path = resource.path(namespace=namespace)
        request = Request(
            method="GET", path=path, query=query, timeout=opening_within, headers=self._headers, token=self._token
        )
        began, code = self.clock.monotonic(), NO_ANSWER
        try:
            async with self.transport.stream(request) as stream:
                code = stream.status
                self.calls.note(_call("watch", resource), began=began, code=code)
                if stream.status != _OK:
                    body = b"\n".join([line async for line in stream.lines()])
                    raise answers.refusal(stream.status, stream.headers, body, doing=doing)
                lines = stream.told() if isinstance(stream, Telling) else stream.lines()
                told = (answers.decode_event(resource.model, line, doing=doing) async for line in lines if line)
                async with aclosing(told):
                    yield told
        except Unreachable as error:
            if code == NO_ANSWER:
                self.calls.note(_call("watch", resource), began=began, code=code)
            raise Unreachable(f"{doing}: {error}", sent=error.sent) from error

    # Writing

    async def create(
        self,
        resource: Resource[T],
        body: Mapping[str, Any] | msgspec.Struct,
        *,
        namespace: str | None = None,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> T:
        """Create an object; with `name` and `subresource`, post to that (a token, a binding)."""
        doing = f"creating {_named(resource, name or _name_in(body), namespace, subresource)}"
        path = resource.path(name, namespace=namespace, subresource=subresource)
        request = Request(
            method="POST", path=path, query=self._options(dry_run=dry_run), body=msgspec.json.encode(body)
        )
        return await self._read(resource.model, request, doing=doing, call=_call("create", resource, subresource))

    async def update(
        self,
        resource: Resource[T],
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> T:
        """Replace a whole object, if it still has the resourceVersion that is in `body`.

        Only for objects read as `RawObject`: what `body` lacks is gone afterwards. Mostly a patch is right.
        """
        metadata = body["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace")
        doing = f"updating {_named(resource, name, namespace, subresource)}"
        path = resource.path(name, namespace=namespace, subresource=subresource)
        query = self._options(dry_run=dry_run)
        request = Request(method="PUT", path=path, query=query, body=msgspec.json.encode(body))
        return await self._read(resource.model, request, doing=doing, call=_call("update", resource, subresource))

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        patch: Patch,
        *,
        namespace: str | None = None,
        subresource: str = "",
        dry_run: bool = False,
        force: bool = False,
    ) -> T:
        """Change an object; `force` takes fields over from another manager, for an apply only."""
        doing = f"patching {_named(resource, name, namespace, subresource)}"
        request = Request(
            method="PATCH",
            path=resource.path(name, namespace=namespace, subresource=subresource),
            query=self._options(dry_run=dry_run) + ((("force", "true"),) if force else ()),
            body=patch.body,
            content_type=patch.content_type,
        )
        return await self._read(resource.model, request, doing=doing, call=_call("patch", resource, subresource))

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        grace: timedelta | None = None,
        propagation: str | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete an object, if it is still the one with this `uid` and `resource_version`.

        `propagation` is Background, Foreground or Orphan; `grace` overrides what the object asks for.
        """
        options = _delete_options(
            uid=uid, resource_version=resource_version, grace=grace, propagation=propagation, dry_run=dry_run
        )
        request = Request(
            method="DELETE", path=resource.path(name, namespace=namespace), body=msgspec.json.encode(options)
        )
        doing = f"deleting {_named(resource, name, namespace)}"
        await self._send(request, doing=doing, call=_call("delete", resource))

    async def delete_all(
        self, resource: Resource[Any], *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> None:
        """Delete the objects that are selected."""
        request = Request(
            method="DELETE", path=resource.path(namespace=namespace), query=_selection(labels, fields), body=b"{}"
        )
        doing = f"deleting all {_named(resource, '', namespace)}"
        await self._send(request, doing=doing, call=_call("deletecollection", resource))

    async def evict(
        self,
        name: str,
        *,
        namespace: str,
        uid: str | None = None,
        grace: timedelta | None = None,
        dry_run: bool = False,
        api_version: str = "policy/v1",
    ) -> None:
        """Ask a pod to leave, if it is still the one with this `uid` and its disruption budgets allow it.

        `TooManyRequests` is the answer "not now", from a budget or a webhook, and is never repeated here. Servers
        before Kubernetes 1.22 want another `api_version`.
        """
        eviction = {
            "apiVersion": api_version,
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _delete_options(uid=uid, grace=grace),
        }
        request = Request(
            method="POST",
            path=PODS.path(name, namespace=namespace, subresource="eviction"),
            query=(("dryRun", "All"),) if dry_run else (),
            body=msgspec.json.encode(eviction),
        )
        doing = f"evicting {_named(PODS, name, namespace)}"
        await self._send(request, doing=doing, call=_call("create", PODS, "eviction"), wait_when_throttled=False)

    # About the cluster

    async def server_version(self) -> Version:
        """Return what the server says it is."""
        doing = "getting the server's version"
        return await self._read(Version, Request(method="GET", path="/version"), doing=doing, call=OTHER)

    async def request(self, request: Request, *, doing: str) -> Response:
        """Send any request, with the same rules for repeating it; raises unless it succeeds."""
        return await self._exchange(request, doing=doing, call=OTHER)

    # How a request travels

    def _options(self, *, dry_run: bool) -> Query:
        return (("fieldManager", self.field_manager), *((("dryRun", "All"),) if dry_run else ()))

    async def _read(self, model: type[T], request: Request, *, doing: str, call: Call) -> T:
        return answers.read(model, await self._exchange(request, doing=doing, call=call), doing=doing)

    async def _send(
        self, request: Request, *, doing: str, call: Call, wait_when_throttled: bool = True, tries: int = _TRIES
    ) -> bytes:
        response = await self._exchange(
            request, doing=doing, call=call, wait_when_throttled=wait_when_throttled, tries=tries
        )
        return response.body

    async def _exchange(
        self, request: Request, *, doing: str, call: Call, wait_when_throttled: bool = True, tries: int = _TRIES
    ) -> Response:
        reading = request.method == "GET"
        if self._headers or self._token:
            request = msgspec.structs.replace(request, headers=request.headers + self._headers, token=self._token)
        if self.may_write and not reading:
            request = msgspec.structs.replace(request, may_leave=self.may_write)
        attempt = 1
        while True:
            try:
                return await self._attempt(request, doing=doing, call=call)
            except (Unreachable, GarbledAnswer, TooManyRequests, ServerFailure) as error:
                pause = self._pause(error, attempt=attempt, reading=reading, wait_when_throttled=wait_when_throttled)
                if pause is None or attempt >= tries:
                    raise
                log.info("%s; trying again in %s", error, duration.format(pause))
            await self.clock.sleep(pause)
            attempt += 1

    async def _attempt(self, request: Request, *, doing: str, call: Call) -> Response:
        began = self.clock.monotonic()
        try:
            response = await self.transport.send(request)
        except Unreachable as error:
            self.calls.note(call, began=began, code=NO_ANSWER)
            raise Unreachable(f"{doing}: {error}", sent=error.sent) from error
        except (GarbledAnswer, LimitExceeded) as error:
            self.calls.note(call, began=began, code=NO_ANSWER)
            raise type(error)(f"{doing}: {error}") from error
        self.calls.note(call, began=began, code=response.status)
        if response.status < _OK or response.status >= _REFUSED:
            raise answers.refusal(response.status, response.headers, response.body, doing=doing)
        return response

    def _pause(
        self,
        error: Unreachable | GarbledAnswer | ApiError,
        *,
        attempt: int,
        reading: bool,
        wait_when_throttled: bool,
    ) -> timedelta | None:
        """Return how long to wait before repeating the request, or None if it must not be repeated."""
        asked_for = error.retry_after if isinstance(error, ApiError) else None
        if isinstance(error, TooManyRequests):
            harmless = wait_when_throttled
        else:
            harmless = reading or (isinstance(error, Unreachable) and not error.sent)
        if not harmless or (asked_for and asked_for > _LONGEST_WAIT):
            return None
        return max(_BACKOFF.delay(attempt, self.random), asked_for or timedelta())


class _ListTotal:
    """What the pages of one list are together."""

    def __init__(self, limits: Limits, *, doing: str) -> None:
        self._limits = limits
        self._doing = doing
        self._objects = self._bytes = self._empty = 0
        self._token = ""

    def add(self, page: Page[Any], *, size: int) -> None:
        """Add a page; raises `LimitExceeded`."""
        self._objects += len(page.items)
        self._bytes += size
        self._empty = 0 if page.items else self._empty + 1
        if self._objects > self._limits.list_objects:
            raise LimitExceeded(f"{self._doing}: more than {self._limits.list_objects} objects")
        if self._bytes > self._limits.list_bytes:
            raise LimitExceeded(f"{self._doing}: more than {self._limits.list_bytes >> 20} MiB on all pages")
        if self._empty > _EMPTY_PAGES or (self._token and page.metadata.continue_ == self._token):
            raise LimitExceeded(f"{self._doing}: the pages of the list do not end")
        self._token = page.metadata.continue_


def _call(verb: str, resource: Resource[Any], subresource: str = "") -> Call:
    return verb, resource.plural, resource.group, subresource


def _named(resource: Resource[Any], name: str, namespace: str | None, subresource: str = "") -> str:
    """Return `pods/eviction shop/cart-0`, as messages name it."""
    kind = f"{resource}/{subresource}" if subresource else str(resource)
    if not name:
        return f"{kind} in {namespace}" if namespace else kind
    return f"{kind} {object_key(name, namespace)}"


def _name_in(body: Mapping[str, Any] | msgspec.Struct) -> str:
    if isinstance(body, Object):
        return body.name
    metadata = body.get("metadata") if isinstance(body, Mapping) else None
    return str(metadata.get("name") or metadata.get("generateName") or "") if isinstance(metadata, Mapping) else ""


def _selection(labels: str, fields: str) -> Query:
    return tuple((key, value) for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value)


def _delete_options(
    *,
    uid: str | None = None,
    resource_version: str | None = None,
    grace: timedelta | None = None,
    propagation: str | None = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {key: value for key, value in preconditions.items() if value is not None} or None,
        "gracePeriodSeconds": None if grace is None else round(grace.total_seconds()),
        "propagationPolicy": propagation,
        "dryRun": ["All"] if dry_run else None,
    }
    return {key: value for key, value in options.items() if value is not None}
