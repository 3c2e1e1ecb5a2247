"""The EvictionRequests of one drain: discovers the API, watches, creates, withdraws and deletes them.

    manager = EvictionRequestManager(client, RequestOwner(name="n1"), limiter=limiter, on_change=wake.set)
    manager.enable()                    # from then on `run` watches them
    manager.observe(pods)               # input for `haulout.drain.eviction_api`
    problem = await manager.create(pod)

There is one request per pod, with a name derived from the pod's UID and the owner. A successor finds existing requests
by the owner's label, and a repeated create finds the request that exists. `observe` includes our own writes before the
watch delivers them.

`finish` leaves nothing behind: remaining requests are withdrawn, and deleted once the controller has observed that. A
drain that ends without it (a crash, a handover) leaves them to its successor. If none comes, those with an owner
reference are deleted with that object.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from haulout.api import annotations
from haulout.api.evictionrequest import (
    EVICTED,
    EVICTION_REQUESTS,
    EVICTIONS,
    Eviction,
    EvictionRequest,
    Intent,
    true_condition,
)
from haulout.api.objects import Pod, RawObject
from haulout.core.backoff import Backoff
from haulout.core.retry import Retry
from haulout.drain.eviction_api import (
    PICKUP_TIMEOUT,
    CleanupVerb,
    EvictionRequestAvailability,
    EvictionRequestCleanup,
    EvictionRequestView,
    is_final,
)
from haulout.errors import AlreadyExists, ApiError, BadRequest, Forbidden, Invalid, KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.informer import Informer, as_is, revision
from haulout.kube.patches import merge_patch
from haulout.kube.reflector import ListWatch

REQUESTER = annotations.DRAIN
OWNER_LABEL = annotations.DRAIN_OWNER

_BY_POD = "pod"
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_MAX_NAME_PREFIX = 200  # of the pod name, followed by a digest
_BACKOFF = Backoff(first=timedelta(seconds=2), limit=timedelta(minutes=1), jitter=0.2)
_FINISH_TIMEOUT = timedelta(seconds=10)
_PERMANENT_ERRORS = (BadRequest, Forbidden, NotFound, Invalid)  # retrying would get the same answer


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOwner:
    """On whose behalf pods are evicted: the same for a successor, and different for every other owner."""

    name: str
    reference: RawObject | None = None  # of a cluster-scoped object, for garbage collection

    @property
    def label(self) -> str:
        """The name as a label value; a digest if it is not a valid one."""
        # Names of objects may have 253 characters, label values 63.
        return self.name if _LABEL_VALUE.fullmatch(self.name) else _digest(self.name)

    def request_name(self, pod: Pod) -> str:
        return f"{pod.name[:_MAX_NAME_PREFIX].rstrip('.-')}-haulout-{_digest(f'{self.name} {pod.uid}')}"


class EvictionRequestManager:
    """The EvictionRequests of one owner. Other owners may have requests for the same pods."""

    def __init__(
        self,
        client: Client,
        owner: RequestOwner,
        *,
        limiter: AbstractAsyncContextManager[Any],
        on_change: Callable[[], None],
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._owner = owner
        self._limiter = limiter
        self._on_change = on_change
        self._enabled = asyncio.Event()
        self._changed_event = asyncio.Event()  # set on every change
        self._availability, self._unavailable_reason = EvictionRequestAvailability.UNKNOWN, ""
        self._is_served = True  # until discovery tells otherwise
        selection = ListWatch(EVICTION_REQUESTS, labels=f"{OWNER_LABEL}={owner.label}")
        self._requests: Informer[EvictionRequest] = Informer(client, selection, transform=as_is)
        self._evictions: Informer[Eviction] = Informer(
            client,
            ListWatch(EVICTIONS),
            transform=as_is,
            indexes={_BY_POD: lambda eviction: (eviction.spec.target.pod.uid,)},
        )
        self._written: dict[str, EvictionRequest] = {}  # by key, until the informer has them
        self._deleted: set[str] = set()  # UIDs
        self._busy: set[str] = set()  # keys of requests that are being cleaned up

    # Watching

    @property
    def is_enabled(self) -> bool:
        """Whether EvictionRequests are or will be watched."""
        return self._enabled.is_set()

    @property
    def problem(self) -> str:
        """Why requests are unknown although the cluster may have some; empty if there is no problem."""
        return (
            self._unavailable_reason
            if self._is_served and self._availability is not EvictionRequestAvailability.READY
            else ""
        )

    def enable(self) -> None:
        self._enabled.set()

    async def run(self) -> None:
        """Wait for `enable`, then watch until cancelled. Return if the cluster does not serve EvictionRequests."""
        await self._enabled.wait()
        # A cluster in which the watch is forbidden must still be drained.
        timeout = asyncio.get_running_loop().call_later(PICKUP_TIMEOUT.total_seconds(), self._mark_unavailable)
        try:
            self._is_served = await self._detect()
            if not self._is_served:
                self._set_availability(
                    EvictionRequestAvailability.UNAVAILABLE, "the cluster does not serve EvictionRequests"
                )
                return
            async with asyncio.TaskGroup() as group:
                for cache in (self._requests, self._evictions):
                    cache.subscribe(lambda *_: self._notify())
                    group.create_task(cache.run())
                await self._requests.wait_synced()
                await self._evictions.wait_synced()
                self._set_availability(EvictionRequestAvailability.READY)
        finally:
            timeout.cancel()

    async def wait_available(self) -> bool:
        """Wait until availability is known; return whether requests can be used."""
        while self._availability is EvictionRequestAvailability.UNKNOWN:
            await self._wait_for_change()
        return self._availability is EvictionRequestAvailability.READY

    def observe(self, pods: Iterable[Pod]) -> EvictionRequestView:
        """Return the requests of this drain, and all Evictions of these pods."""
        if self._availability is not EvictionRequestAvailability.READY:
            return EvictionRequestView(availability=self._availability, unavailable_reason=self._unavailable_reason)
        return EvictionRequestView(
            availability=self._availability,
            requests={request.spec.target.pod.uid: request for request in self._known_requests()},
            evictions={pod.uid: found for pod in pods if (found := tuple(self._evictions.by_index(_BY_POD, pod.uid)))},
        )

    async def _detect(self) -> bool:
        retry = Retry(self._clock, self._client.random, _BACKOFF)
        while True:
            try:
                return await serves(self._client, EVICTION_REQUESTS, EVICTIONS)
            except KubeError as error:
                self._unavailable_reason = str(error)
                await retry.wait(error)

    def _mark_unavailable(self) -> None:
        """Evict pods directly until the watch is available."""
        if self._availability is EvictionRequestAvailability.UNKNOWN:
            problems = (self._requests.health().problem, self._evictions.health().problem, self._unavailable_reason)
            reason = next((problem for problem in problems if problem), "the API server does not answer")
            self._set_availability(EvictionRequestAvailability.UNAVAILABLE, f"cannot watch EvictionRequests: {reason}")

    def _set_availability(self, availability: EvictionRequestAvailability, reason: str = "") -> None:
        self._availability, self._unavailable_reason = availability, reason
        self._notify()

    def _notify(self) -> None:
        self._changed_event.set()
        self._on_change()

    async def _wait_for_change(self) -> None:
        self._changed_event.clear()
        await self._changed_event.wait()

    def _known_requests(self) -> list[EvictionRequest]:
        for key, request in list(self._written.items()):
            if self._requests.has_observed(revision(request.resource_version)):
                del self._written[key]
        known = {request.key: request for request in self._requests.all()} | self._written
        return [request for request in known.values() if request.uid not in self._deleted]

    # Writing

    async def create(self, pod: Pod) -> str:
        """Request the eviction of a pod. Return the error if a retry would fail as well, empty on success."""
        name = self._owner.request_name(pod)
        try:
            try:
                self._remember(
                    await self._client.create(EVICTION_REQUESTS, self._body(pod, name), namespace=pod.namespace)
                )
            except AlreadyExists:
                # A predecessor's request, or our own whose response was lost. It may have been withdrawn meanwhile.
                await self._set_intent(pod.namespace, name, Intent.EVICTION)
        except _PERMANENT_ERRORS as error:
            return f"EvictionRequest {pod.namespace}/{name} was rejected: {error.message}"
        return ""

    async def clean_up(self, cleanup: EvictionRequestCleanup) -> None:
        """Withdraw or delete a request, unless another cleanup of it is in progress."""
        request = cleanup.request
        if request.key in self._busy:
            return
        self._busy.add(request.key)
        try:
            async with self._limiter:
                await (self._delete(request) if cleanup.verb is CleanupVerb.DELETE else self._withdraw(request))
        except KubeError:
            await self._clock.sleep(_BACKOFF.first)  # the next decision requests the cleanup again
        finally:
            self._busy.discard(request.key)
            self._on_change()

    async def finish(self, present: Collection[str] | None = None) -> str:
        """Withdraw and delete all requests; return a message about what is left, empty if nothing is.

        `present` are the UIDs of the pods on the node; None if unknown.
        """
        try:
            async with asyncio.timeout(_FINISH_TIMEOUT.total_seconds()):
                if not await self.wait_available():
                    return ""
        except TimeoutError:
            return (
                f"could not check whether EvictionRequests are left behind: {self._unavailable_reason or 'no answer'}"
            )
        problems: list[str] = []
        active = [
            request
            for request in self._known_requests()
            if _is_active(request) and (present is None or request.spec.target.pod.uid in present)
        ]
        await self._for_each(active, self._withdraw, problems)
        with suppress(TimeoutError):
            async with asyncio.timeout(_FINISH_TIMEOUT.total_seconds()):
                # A withdrawn request is deleted only after its controller has seen that. Otherwise its responders might
                # go on with the eviction.
                while any(
                    request.status.observed_generation and not is_final(request) for request in self._known_requests()
                ):
                    await self._wait_for_change()
        await self._for_each(self._known_requests(), self._delete, problems)
        remaining = [request.key for request in self._known_requests()]
        return (
            f"could not delete EvictionRequests {', '.join(remaining)}: {problems[-1]}"
            if remaining and problems
            else ""
        )

    async def _for_each(
        self,
        requests: Iterable[EvictionRequest],
        act: Callable[[EvictionRequest], Any],
        problems: list[str],
    ) -> None:
        async def execute(request: EvictionRequest) -> None:
            try:
                async with self._limiter:
                    await act(request)
            except KubeError as error:
                problems.append(error.message if isinstance(error, ApiError) else str(error))

        async with asyncio.TaskGroup() as group:
            for request in requests:
                group.create_task(execute(request))

    async def _withdraw(self, request: EvictionRequest) -> None:
        with suppress(NotFound):
            await self._set_intent(request.namespace, request.name, Intent.WITHDRAWN)

    async def _set_intent(self, namespace: str, name: str, intent: Intent) -> None:
        patch = merge_patch({"spec": {"intent": str(intent)}})
        self._remember(await self._client.patch(EVICTION_REQUESTS, name, patch, namespace=namespace))

    async def _delete(self, request: EvictionRequest) -> None:
        with suppress(NotFound):
            await self._client.delete(EVICTION_REQUESTS, request.name, namespace=request.namespace, uid=request.uid)
        # Also after 404, and before the watch reports it: `finish` must not report it as left behind.
        self._deleted.add(request.uid)

    def _remember(self, written: EvictionRequest) -> None:
        self._written[written.key] = written

    def _body(self, pod: Pod, name: str) -> RawObject:
        owners = [] if self._owner.reference is None else [self._owner.reference]
        return {
            "apiVersion": EVICTION_REQUESTS.api_version,
            "kind": EVICTION_REQUESTS.kind,
            "metadata": {
                "name": name,
                "namespace": pod.namespace,
                "labels": {OWNER_LABEL: self._owner.label},
                "ownerReferences": owners,
            },
            "spec": {
                "target": {"pod": {"name": pod.name, "uid": pod.uid}},
                # The alpha API has had both names; a server drops the unknown one.
                "requester": REQUESTER,
                "requesterName": REQUESTER,
                "intent": str(Intent.EVICTION),
            },
        }


def _is_active(request: EvictionRequest) -> bool:
    return request.spec.intent == Intent.EVICTION and true_condition(request.status.conditions, EVICTED) is None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
