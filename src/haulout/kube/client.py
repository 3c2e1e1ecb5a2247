"""A Kubernetes API client: get, list, watch, create, update, patch, delete, evict.

The client builds requests and decodes responses; a `Transport` moves the bytes. The client keeps no state that a
process depends on, so a process may have one for each cluster.

The client repeats a request only where that is safe, a bounded number of times, and never before the server's
Retry-After has passed:

- The request was never sent (connection refused): any request.
- The server rejected the request unprocessed (429): any request except an eviction, whose 429 is an answer.
- The request may have taken effect (timeout, truncated response, 5xx): reads only.

All other failures are raised, because only the caller knows what a write that may have happened means. A client made by
`with_fence` calls the fence immediately before each write is sent. This prevents writes of a process that lost
leadership while its event loop was blocked.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, TypeVar

import msgspec

from haulout.api.objects import Bookmark, Object, Page, UndecodableObject, VersionInfo, WatchEvent, object_key
from haulout.api.resources import PODS, Resource
from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.core.text import format_duration
from haulout.errors import (
    ApiError,
    Expired,
    LimitExceeded,
    MalformedResponse,
    NotFound,
    ServerFailure,
    TooManyRequests,
    Unreachable,
)
from haulout.kube import responses
from haulout.kube.limits import OWN_CLUSTER, CacheQuota, Limits
from haulout.kube.metrics import NO_RESPONSE, OTHER, KubeMetrics, RequestKind, RequestMetrics
from haulout.kube.patches import Patch
from haulout.kube.transport import DecodedStream, Headers, Request, Response, Token, Transport

log = logging.getLogger(__name__)

T = TypeVar("T")
Query = tuple[tuple[str, str], ...]

# As client-go's pager (tools/pager/pager.go) and kubectl: large enough to keep the number of requests low, small enough
# that neither side holds more than some megabytes of a page.
PAGE_SIZE = 500
_MAX_ATTEMPTS = 4
_PAGE_TIMEOUT = timedelta(seconds=30)
# A list that takes this long costs the server much memory. It gets one attempt: a repetition would add to an overload.
_UNPAGED_LIST_TIMEOUT = timedelta(minutes=5)
# For all pages together. An API server compacts etcd every 5 minutes (DefaultCompactInterval in
# staging/src/k8s.io/apiserver/pkg/storage/storagebackend/config.go), so the revision of a list rarely lives for 10.
# Only a server that invents pages without end reaches 15.
_LIST_TIMEOUT = timedelta(minutes=15)
_PAGE_SIZE_DIVISOR = 5  # page size is divided by this when a page is too large
_MAX_EMPTY_PAGES = 100  # in a row; a correct server sends none
_MAX_RETRY_AFTER = timedelta(seconds=30)  # the caller handles a longer Retry-After
_BACKOFF = Backoff(first=timedelta(milliseconds=200), factor=2, limit=timedelta(seconds=5), jitter=0.5)
_OK = 200
_FIRST_NON_SUCCESS = 300


class Client:
    """A client for the API of one cluster, with the credentials of one user."""

    def __init__(  # noqa: PLR0913
        self,
        transport: Transport,
        *,
        clock: Clock,
        random: Random,
        field_manager: str = "haulout",
        fence: Callable[[], None] | None = None,
        request_metrics: RequestMetrics | None = None,
        metrics: KubeMetrics | None = None,
        headers: Headers = (),
        token: Token | None = None,
        cache_quota: CacheQuota | None = None,
    ) -> None:
        self.transport = transport
        self.clock = clock
        self.random = random
        self.field_manager = field_manager
        self.request_metrics = request_metrics or RequestMetrics(clock)  # requests and their outcome so far
        self.metrics = metrics or KubeMetrics()
        self.fence = fence  # called before each write is sent; may raise
        self.cache_quota = cache_quota or CacheQuota(OWN_CLUSTER)  # shared by all caches of this cluster
        self.limits = self.cache_quota.limits
        self._headers = headers  # added to each request
        self._token = token  # sent instead of the transport's credentials

    def with_fence(self, fence: Callable[[], None]) -> "Client":
        """Return a client over the same transport that calls `fence` before each write is sent. `fence` may raise."""
        return self._copy(fence=fence)

    def with_fence_of(self, other: "Client") -> "Client":
        """Return a client over the same transport that has the fence of another client."""
        return self._copy(fence=other.fence)

    def with_transport(self, transport: Transport) -> "Client":
        return self._copy(transport=transport)

    def impersonate(self, headers: Headers, *, field_manager: str) -> "Client":
        """Return a client over the same transport that impersonates a user in all requests.

        `haulout.kube.transport` builds the `headers`.
        """
        return self._copy(headers=headers, field_manager=field_manager)

    def with_token(self, token: Token, *, field_manager: str) -> "Client":
        """Return a client over the same transport that sends this token instead of the transport's credentials."""
        return self._copy(token=token, field_manager=field_manager)

    def _copy(
        self,
        *,
        transport: Transport | None = None,
        field_manager: str = "",
        fence: Callable[[], None] | None = None,
        headers: Headers = (),
        token: Token | None = None,
    ) -> "Client":
        return Client(
            transport or self.transport,
            clock=self.clock,
            random=self.random,
            field_manager=field_manager or self.field_manager,
            fence=fence or self.fence,
            request_metrics=self.request_metrics,
            metrics=self.metrics,
            headers=headers or self._headers,
            token=token or self._token,
            cache_quota=self.cache_quota,
        )

    async def close(self) -> None:
        await self.transport.close()

    # Reading

    async def get(self, resource: Resource[T], name: str, *, namespace: str | None = None, subresource: str = "") -> T:
        path = resource.path(name, namespace=namespace, subresource=subresource)
        doing = f"getting {_describe(resource, name, namespace, subresource)}"
        kind = _request_kind("get", resource, subresource)
        found = await self._read(resource.model, Request(method="GET", path=path), doing=doing, kind=kind)
        # A proxy that serves a cached or foreign answer must not make a caller act on another object.
        responses.expect_name(found, name, doing=doing)
        return found

    async def find(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T | None:
        """Return an object; None if it does not exist."""
        try:
            return await self.get(resource, name, namespace=namespace)
        except NotFound:
            return None

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
        """Return all objects, at one resource version.

        The list is current. With `from_cache` the server may answer from its watch cache, which is cheaper and may be
        some seconds old.
        """
        read = partial(self.pages, resource, namespace=namespace, labels=labels, fields=fields, from_cache=from_cache)
        try:
            pages = [page async for page in read(page_size=page_size)]
        except Expired:
            # The revision of the first page was compacted before the last page was read: list again without pages.
            pages = [page async for page in read(page_size=0)]
        items = [item for page in pages for item in page.items]
        for item in items:
            if isinstance(item, UndecodableObject):
                raise MalformedResponse(f"listing {resource}: {item.key} cannot be decoded: {item.problem}")
        return Page(metadata=pages[-1].metadata, items=tuple(items))  # type: ignore[arg-type]  # checked above

    async def pages(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        from_cache: bool = False,
        page_size: int = PAGE_SIZE,
    ) -> AsyncGenerator[Page[T | UndecodableObject], None]:
        """Yield the pages of a list, all at one resource version.

        Raise `Expired` if the server compacts that version before the last page. A page that is too large is requested
        again with a smaller `limit`. Raise `LimitExceeded` if that does not help, or if all pages together are too
        large.
        """
        path = resource.path(namespace=namespace)
        doing = f"listing {_describe(resource, '', namespace)}"
        query = _selector_query(labels, fields)
        query += (("resourceVersion", "0"),) if from_cache else ()
        continuation: Query = ()
        total = _ListTotal(self.limits, doing=doing)
        deadline = self.clock.monotonic() + _LIST_TIMEOUT.total_seconds()
        while True:
            timeout = _PAGE_TIMEOUT if page_size else _UNPAGED_LIST_TIMEOUT
            limit: Query = (("limit", str(page_size)),) if page_size else ()
            request = Request(method="GET", path=path, query=query + limit + continuation, timeout=timeout)
            tries = _MAX_ATTEMPTS if page_size else 1
            try:
                body = await self._send(request, doing=doing, kind=_request_kind("list", resource), tries=tries)
            except LimitExceeded:
                if page_size <= 1:
                    raise
                page_size = max(page_size // _PAGE_SIZE_DIVISOR, 1)
                continue
            page = responses.decode_page(resource.model, body, doing=doing)
            total.add(page, size=len(body))
            token = page.metadata.continue_
            # Yield before the deadline is checked: if this is the last page, the list is complete.
            yield page
            if not token:
                return
            if self.clock.monotonic() > deadline:
                raise LimitExceeded(f"{doing}: the list has not ended within {format_duration(_LIST_TIMEOUT)}")
            # The continue token contains the resource version. The API server answers 400 to a request that has both
            # ("specifying resource version is not allowed when using continue").
            query = tuple(pair for pair in query if pair[0] != "resourceVersion")
            continuation = (("continue", token),)
            del page, body  # frees the memory while the next page is awaited

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
        watch_timeout: timedelta | None = None,
        open_timeout: timedelta = timedelta(seconds=30),
    ) -> AsyncIterator[AsyncIterator[WatchEvent[T] | WatchEvent[UndecodableObject] | Bookmark]]:
        """Yield an iterator over the changes after `resource_version`.

        With `initial_list` the server first sends all objects as `ADDED`, at a version not older than
        `resource_version`, and then a bookmark that marks the end of the list (KEP-3157). The iterator ends when the
        server ends the watch. It raises `Expired` when the version is too old and `Unreachable` when the connection
        breaks.
        """
        doing = f"watching {_describe(resource, '', namespace)}"
        query = (*_selector_query(labels, fields), ("watch", "true"), ("allowWatchBookmarks", "true"))
        query += (("resourceVersion", resource_version),) if resource_version else ()
        query += (("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")) if initial_list else ()
        query += (("timeoutSeconds", str(round(watch_timeout.total_seconds()))),) if watch_timeout else ()
        path = resource.path(namespace=namespace)
        request = Request(
            method="GET", path=path, query=query, timeout=open_timeout, headers=self._headers, token=self._token
        )
        started, code = self.clock.monotonic(), NO_RESPONSE
        try:
            async with self.transport.stream(request) as stream:
                code = stream.status
                self.request_metrics.observe(_request_kind("watch", resource), started=started, code=code)
                if stream.status != _OK:
                    # A refused watch (410, 403) has an ordinary body, not events.
                    body = b"\n".join([line async for line in stream.lines()])
                    raise responses.error_from_response(stream.status, stream.headers, body, doing=doing)
                lines = stream.events() if isinstance(stream, DecodedStream) else stream.lines()
                events = (responses.decode_event(resource.model, line, doing=doing) async for line in lines if line)
                async with aclosing(events):
                    yield events
        except Unreachable as error:
            if code == NO_RESPONSE:
                self.request_metrics.observe(_request_kind("watch", resource), started=started, code=code)
            # After the watch began, a lost connection is no failed request: it was counted with its status when it
            # began.
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
        """Create an object. With `name` and `subresource`, post to that subresource (a token request, a binding)."""
        doing = f"creating {_describe(resource, name or _name_of(body), namespace, subresource)}"
        path = resource.path(name, namespace=namespace, subresource=subresource)
        request = Request(
            method="POST", path=path, query=self._options(dry_run=dry_run), body=msgspec.json.encode(body)
        )
        return await self._read(
            resource.model, request, doing=doing, kind=_request_kind("create", resource, subresource)
        )

    async def update(
        self,
        resource: Resource[T],
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> T:
        """Replace a whole object if its resourceVersion is still that of `body`.

        Use this only for objects read as `RawObject`: fields that `body` lacks are removed. A patch is usually the
        better choice.
        """
        metadata = body["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace")
        doing = f"updating {_describe(resource, name, namespace, subresource)}"
        path = resource.path(name, namespace=namespace, subresource=subresource)
        query = self._options(dry_run=dry_run)
        request = Request(method="PUT", path=path, query=query, body=msgspec.json.encode(body))
        return await self._read(
            resource.model, request, doing=doing, kind=_request_kind("update", resource, subresource)
        )

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
        """Patch an object.

        `force` takes fields over from other field managers; it is valid for server-side apply only.
        """
        doing = f"patching {_describe(resource, name, namespace, subresource)}"
        request = Request(
            method="PATCH",
            path=resource.path(name, namespace=namespace, subresource=subresource),
            query=self._options(dry_run=dry_run) + ((("force", "true"),) if force else ()),
            body=patch.body,
            content_type=patch.content_type,
        )
        return await self._read(
            resource.model, request, doing=doing, kind=_request_kind("patch", resource, subresource)
        )

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
        """Delete an object if its `uid` and `resource_version` still match.

        `propagation` is Background, Foreground or Orphan. `grace` overrides the pod's terminationGracePeriodSeconds.
        """
        options = _delete_options(
            uid=uid, resource_version=resource_version, grace=grace, propagation=propagation, dry_run=dry_run
        )
        request = Request(
            method="DELETE", path=resource.path(name, namespace=namespace), body=msgspec.json.encode(options)
        )
        doing = f"deleting {_describe(resource, name, namespace)}"
        await self._send(request, doing=doing, kind=_request_kind("delete", resource))

    async def delete_collection(
        self, resource: Resource[Any], *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> None:
        request = Request(
            method="DELETE", path=resource.path(namespace=namespace), query=_selector_query(labels, fields), body=b"{}"
        )
        doing = f"deleting all {_describe(resource, '', namespace)}"
        await self._send(request, doing=doing, kind=_request_kind("deletecollection", resource))

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
        """Evict a pod if its `uid` still matches and its PodDisruptionBudgets allow the eviction.

        Raise `TooManyRequests` when a PodDisruptionBudget or an admission webhook refuses for now. The client never
        repeats such a request. Servers before Kubernetes 1.22 need `api_version="policy/v1beta1"`.
        """
        eviction = {
            "apiVersion": api_version,
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            # Without the UID, a repeated request could evict a pod that was created under the same name since (a
            # StatefulSet reuses names).
            "deleteOptions": _delete_options(uid=uid, grace=grace),
        }
        request = Request(
            method="POST",
            path=PODS.path(name, namespace=namespace, subresource="eviction"),
            query=(("dryRun", "All"),) if dry_run else (),
            body=msgspec.json.encode(eviction),
        )
        doing = f"evicting {_describe(PODS, name, namespace)}"
        # A 429 of pkg/registry/core/pod/storage/eviction.go means that a PodDisruptionBudget refuses. That may last for
        # hours, so the drain decides when to try again, and reports the refusal meanwhile.
        await self._send(
            request, doing=doing, kind=_request_kind("create", PODS, "eviction"), wait_when_throttled=False
        )

    # About the cluster

    async def server_version(self) -> VersionInfo:
        doing = "getting the server's version"
        return await self._read(VersionInfo, Request(method="GET", path="/version"), doing=doing, kind=OTHER)

    async def request(self, request: Request, *, doing: str) -> Response:
        """Send any request with the same retry rules. Raise unless the server answers 2xx."""
        return await self._exchange(request, doing=doing, kind=OTHER)

    # Sending

    def _options(self, *, dry_run: bool) -> Query:
        return (("fieldManager", self.field_manager), *((("dryRun", "All"),) if dry_run else ()))

    async def _read(self, model: type[T], request: Request, *, doing: str, kind: RequestKind) -> T:
        return responses.decode_response(model, await self._exchange(request, doing=doing, kind=kind), doing=doing)

    async def _send(
        self,
        request: Request,
        *,
        doing: str,
        kind: RequestKind,
        wait_when_throttled: bool = True,
        tries: int = _MAX_ATTEMPTS,
    ) -> bytes:
        response = await self._exchange(
            request, doing=doing, kind=kind, wait_when_throttled=wait_when_throttled, tries=tries
        )
        return response.body

    async def _exchange(
        self,
        request: Request,
        *,
        doing: str,
        kind: RequestKind,
        wait_when_throttled: bool = True,
        tries: int = _MAX_ATTEMPTS,
    ) -> Response:
        is_read = request.method == "GET"
        if self._headers or self._token:
            request = msgspec.structs.replace(request, headers=request.headers + self._headers, token=self._token)
        # Reads are not fenced: they change nothing, and informers keep running until the deposed leader has stopped.
        if self.fence and not is_read:
            request = msgspec.structs.replace(request, before_send=self.fence)
        attempt = 1
        while True:
            try:
                return await self._attempt(request, doing=doing, kind=kind)
            except (Unreachable, MalformedResponse, TooManyRequests, ServerFailure) as error:
                pause = self._retry_delay(
                    error, attempt=attempt, is_read=is_read, wait_when_throttled=wait_when_throttled
                )
                if pause is None or attempt >= tries:
                    raise
                log.info("%s; trying again in %s", error, format_duration(pause))
            await self.clock.sleep(pause)
            attempt += 1

    async def _attempt(self, request: Request, *, doing: str, kind: RequestKind) -> Response:
        started = self.clock.monotonic()
        try:
            response = await self.transport.send(request)
        except Unreachable as error:
            self.request_metrics.observe(kind, started=started, code=NO_RESPONSE)
            raise Unreachable(f"{doing}: {error}", sent=error.sent) from error
        except (MalformedResponse, LimitExceeded) as error:
            self.request_metrics.observe(kind, started=started, code=NO_RESPONSE)
            # Both have one argument, so the type survives: callers treat an exceeded limit unlike a broken response.
            raise type(error)(f"{doing}: {error}") from error
        self.request_metrics.observe(kind, started=started, code=response.status)
        if response.status < _OK or response.status >= _FIRST_NON_SUCCESS:
            raise responses.error_from_response(response.status, response.headers, response.body, doing=doing)
        return response

    def _retry_delay(
        self,
        error: Unreachable | MalformedResponse | ApiError,
        *,
        attempt: int,
        is_read: bool,
        wait_when_throttled: bool,
    ) -> timedelta | None:
        """Return how long to wait before the request is repeated, or None if it must not be repeated."""
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        if isinstance(error, TooManyRequests):
            # API priority and fairness rejects a request before it is executed
            # (staging/src/k8s.io/apiserver/pkg/server/filters/priority-and-fairness.go), so a write can be repeated,
            # too. client-go does the same (rest/with_retry.go).
            is_safe = wait_when_throttled
        else:
            # A write whose response was lost, or that failed with a 5xx, may have taken effect.
            is_safe = is_read or (isinstance(error, Unreachable) and not error.sent)
        # Sleeping longer would hold a worker of the queue. The queue backs off at least as long as `retry_after` says.
        if not is_safe or (retry_after and retry_after > _MAX_RETRY_AFTER):
            return None
        return max(_BACKOFF.delay(attempt, self.random), retry_after or timedelta())


class _ListTotal:
    """Totals over the pages of one list."""

    def __init__(self, limits: Limits, *, doing: str) -> None:
        self._limits = limits
        self._doing = doing
        self._objects = self._bytes = self._empty = 0
        self._token = ""

    def add(self, page: Page[Any], *, size: int) -> None:
        """Add a page. Raise `LimitExceeded` if the list is too large or its pages do not end."""
        self._objects += len(page.items)
        self._bytes += size
        self._empty = 0 if page.items else self._empty + 1
        if self._objects > self._limits.list_objects:
            raise LimitExceeded(f"{self._doing}: more than {self._limits.list_objects} objects")
        if self._bytes > self._limits.list_bytes:
            raise LimitExceeded(f"{self._doing}: more than {self._limits.list_bytes >> 20} MiB on all pages")
        if self._empty > _MAX_EMPTY_PAGES or (self._token and page.metadata.continue_ == self._token):
            raise LimitExceeded(f"{self._doing}: the pages of the list do not end")
        self._token = page.metadata.continue_


def _request_kind(verb: str, resource: Resource[Any], subresource: str = "") -> RequestKind:
    return verb, resource.plural, resource.group, subresource


def _describe(resource: Resource[Any], name: str, namespace: str | None, subresource: str = "") -> str:
    """Return the object as error messages name it: `pods/eviction shop/cart-0`."""
    kind = f"{resource}/{subresource}" if subresource else str(resource)
    if not name:
        return f"{kind} in {namespace}" if namespace else kind
    return f"{kind} {object_key(name, namespace)}"


def _name_of(body: Mapping[str, Any] | msgspec.Struct) -> str:
    if isinstance(body, Object):
        return body.name
    metadata = body.get("metadata") if isinstance(body, Mapping) else None
    return str(metadata.get("name") or metadata.get("generateName") or "") if isinstance(metadata, Mapping) else ""


def _selector_query(labels: str, fields: str) -> Query:
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
        # The storage layer checks them in the transaction that deletes the object (Preconditions in
        # staging/src/k8s.io/apiserver/pkg/storage/interfaces.go).
        "preconditions": {key: value for key, value in preconditions.items() if value is not None} or None,
        "gracePeriodSeconds": None if grace is None else round(grace.total_seconds()),
        "propagationPolicy": propagation,
        "dryRun": ["All"] if dry_run else None,
    }
    return {key: value for key, value in options.items() if value is not None}
