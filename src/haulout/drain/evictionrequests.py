"""The EvictionRequests of one drain: finding out whether there are any, following them, sending and clearing them.

    requests = EvictionRequests(client, Owner(name="n1"), gate=lane.gate, changed=bell.set)
    requests.want()                    # from then on `run` follows them
    requests.seen(pods)                # what `haulout.drain.ways` decides on
    problem = await requests.ask(pod)

There is one request for each pod, with a name that only this pod and this owner have. So whoever goes on with a drain
finds by the owner's label what was asked before, and a request that was sent twice is one. What was written shows at
once, though the watch may tell of it later.

`finish` leaves nothing behind: what still stands is withdrawn, and deleted once the controller has seen that. Whoever
ends without it (a crash, a handover) leaves it to a successor, or to `withdraw`.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from haulout.core.backoff import Backoff
from haulout.drain.ways import TAKEN_UP_WITHIN, Chore, Evictions, Reach, Verb, is_settled
from haulout.errors import AlreadyExists, ApiError, BadRequest, Forbidden, Invalid, KubeError, NotFound
from haulout.kube.cache import Cache, as_is, revision
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.follow import Selection
from haulout.kube.lifecycle import EVICTED, EVICTION_REQUESTS, EVICTIONS, Eviction, EvictionRequest, Intent, holds
from haulout.kube.objects import Pod, RawObject
from haulout.kube.patches import merge_patch

REQUESTER = "haulout.dev/drain"
OWNER_LABEL = "haulout.dev/drain-owner"

_BY_POD = "pod"
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LONGEST_BASE = 200  # of a name, to which some letters are added
_BACKOFF = Backoff(first=timedelta(seconds=2), limit=timedelta(minutes=1), jitter=0.2)
_SETTLED_WITHIN = timedelta(seconds=10)
_WITHDRAWN_AT_ONCE = 10  # requests
_FINAL = (BadRequest, Forbidden, NotFound, Invalid)  # answers that would be the same the next time


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """On whose behalf pods are asked to leave: what is the same for a successor, and for nobody else."""

    name: str
    reference: RawObject | None = None  # of a cluster-wide object: with it requests go when it is deleted

    @property
    def label(self) -> str:
        """The name, as far as it can be the value of a label."""
        return self.name if _LABEL_VALUE.fullmatch(self.name) else _digest(self.name)

    def request_for(self, pod: Pod) -> str:
        """Return the name of the request for a pod."""
        return f"{pod.name[:_LONGEST_BASE].rstrip('.-')}-haulout-{_digest(f'{self.name} {pod.uid}')}"


class EvictionRequests:
    """The requests of one owner, as far as they are known."""

    def __init__(
        self,
        client: Client,
        owner: Owner,
        *,
        gate: AbstractAsyncContextManager[Any],
        changed: Callable[[], None],
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._owner = owner
        self._gate = gate
        self._changed = changed
        self._wanted = asyncio.Event()
        self._told = asyncio.Event()  # something is new
        self._reach, self._why = Reach.UNKNOWN, ""
        self._are_there = True  # unless the server says otherwise
        mine = Selection(EVICTION_REQUESTS, labels=f"{OWNER_LABEL}={owner.label}")
        self._requests: Cache[EvictionRequest] = Cache(client, mine, row=as_is)
        self._evictions: Cache[Eviction] = Cache(
            client, Selection(EVICTIONS), row=as_is, indexes={_BY_POD: lambda it: (it.spec.target.pod.uid,)}
        )
        self._written: dict[str, EvictionRequest] = {}  # until the cache shows it
        self._deleted: set[str] = set()  # uids
        self._busy: set[str] = set()  # keys of those about which a chore is under way

    # Following

    @property
    def are_wanted(self) -> bool:
        """Whether they are followed."""
        return self._wanted.is_set()

    @property
    def trouble(self) -> str:
        """Why nothing is known of them, though there may be some; empty if there is no trouble."""
        return self._why if self._are_there and self._reach is not Reach.READY else ""

    def want(self) -> None:
        """Begin to follow them, if that has not happened yet."""
        self._wanted.set()

    async def run(self) -> None:
        """Follow them once they are wanted, until cancelled or it is clear that there are none."""
        await self._wanted.wait()
        alarm = asyncio.get_running_loop().call_later(TAKEN_UP_WITHIN.total_seconds(), self._give_up)
        try:
            self._are_there = await self._are_served()
            if not self._are_there:
                self._turn(Reach.OUT, "the cluster does not serve EvictionRequests")
                return
            async with asyncio.TaskGroup() as group:
                for cache in (self._requests, self._evictions):
                    cache.subscribe(lambda *_: self._tell())
                    group.create_task(cache.run())
                await self._requests.wait_synced()
                await self._evictions.wait_synced()
                self._turn(Reach.READY)
        finally:
            alarm.cancel()

    async def known(self) -> bool:
        """Return whether requests can be used, once that is known."""
        while self._reach is Reach.UNKNOWN:
            await self._next()
        return self._reach is Reach.READY

    def seen(self, pods: Iterable[Pod]) -> Evictions:
        """Return what is known of the requests of this drain, and of all Evictions of these pods."""
        if self._reach is not Reach.READY:
            return Evictions(reach=self._reach, why=self._why)
        return Evictions(
            reach=self._reach,
            requests={it.spec.target.pod.uid: it for it in self._all()},
            evictions={pod.uid: found for pod in pods if (found := tuple(self._evictions.by(_BY_POD, pod.uid)))},
        )

    async def _are_served(self) -> bool:
        failures = 0
        while True:
            try:
                return await serves(self._client, EVICTION_REQUESTS, EVICTIONS)
            except KubeError as error:
                self._why = str(error)
                failures += 1
                await self._clock.sleep(_BACKOFF.delay(failures, self._client.random))

    def _give_up(self) -> None:
        """Let pods leave the other way, until requests can be followed after all."""
        if self._reach is Reach.UNKNOWN:
            problems = (self._requests.health().problem, self._evictions.health().problem, self._why)
            why = next((it for it in problems if it), "the server does not answer")
            self._turn(Reach.OUT, f"EvictionRequests cannot be followed: {why}")

    def _turn(self, reach: Reach, why: str = "") -> None:
        self._reach, self._why = reach, why
        self._tell()

    def _tell(self) -> None:
        self._told.set()
        self._changed()

    async def _next(self) -> None:
        self._told.clear()
        await self._told.wait()

    def _all(self) -> list[EvictionRequest]:
        for key, it in list(self._written.items()):
            if self._requests.has_seen(revision(it.resource_version)):
                del self._written[key]
        known = {it.key: it for it in self._requests.all()} | self._written
        return [it for it in known.values() if it.uid not in self._deleted]

    # Acting

    async def ask(self, pod: Pod) -> str:
        """Ask for a pod to leave; return why that cannot be asked for this way, if so."""
        name = self._owner.request_for(pod)
        try:
            try:
                self._note(await self._client.create(EVICTION_REQUESTS, self._body(pod, name), namespace=pod.namespace))
            except AlreadyExists:
                await self._intend(pod.namespace, name, Intent.EVICTION)
        except _FINAL as error:
            return f"EvictionRequest {pod.namespace}/{name} is not taken: {error.message}"
        return ""

    async def do(self, chore: Chore) -> None:
        """Withdraw or delete a request; one about which something is under way is left alone."""
        request = chore.request
        if request.key in self._busy:
            return
        self._busy.add(request.key)
        try:
            async with self._gate:
                await (self._delete(request) if chore.verb is Verb.DELETE else self._withdraw(request))
        except KubeError:
            await self._clock.sleep(_BACKOFF.first)  # then what is seen leads here again
        finally:
            self._busy.discard(request.key)
            self._changed()

    async def finish(self, present: Collection[str] | None = None) -> str:
        """Clear all requests away, given which pods are here (None: any may be); return what is left, if anything."""
        try:
            async with asyncio.timeout(_SETTLED_WITHIN.total_seconds()):
                if not await self.known():
                    return ""
        except TimeoutError:
            return f"whether EvictionRequests are left behind could not be found out: {self._why or 'no answer'}"
        problems: list[str] = []
        standing = [it for it in self._all() if _stands(it) and (present is None or it.spec.target.pod.uid in present)]
        await self._each(standing, self._withdraw, problems)
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLED_WITHIN.total_seconds()):
                while any(it.status.observed_generation and not is_settled(it) for it in self._all()):
                    await self._next()
        await self._each(self._all(), self._delete, problems)
        left = [it.key for it in self._all()]
        return f"EvictionRequests are left behind: {', '.join(left)}: {problems[-1]}" if left and problems else ""

    async def _each(
        self,
        requests: Iterable[EvictionRequest],
        act: Callable[[EvictionRequest], Any],
        problems: list[str],
    ) -> None:
        async def one(request: EvictionRequest) -> None:
            try:
                async with self._gate:
                    await act(request)
            except KubeError as error:
                problems.append(error.message if isinstance(error, ApiError) else str(error))

        async with asyncio.TaskGroup() as group:
            for request in requests:
                group.create_task(one(request))

    async def _withdraw(self, request: EvictionRequest) -> None:
        with suppress(NotFound):
            await self._intend(request.namespace, request.name, Intent.WITHDRAWN)

    async def _intend(self, namespace: str, name: str, intent: Intent) -> None:
        patch = merge_patch({"spec": {"intent": str(intent)}})
        self._note(await self._client.patch(EVICTION_REQUESTS, name, patch, namespace=namespace))

    async def _delete(self, request: EvictionRequest) -> None:
        with suppress(NotFound):
            await self._client.delete(EVICTION_REQUESTS, request.name, namespace=request.namespace, uid=request.uid)
        self._deleted.add(request.uid)

    def _note(self, written: EvictionRequest) -> None:
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
                # The alpha has had both names; a server drops the one that it does not know.
                "requester": REQUESTER,
                "requesterName": REQUESTER,
                "intent": str(Intent.EVICTION),
            },
        }


async def withdraw(client: Client, owner: Owner) -> str:
    """Clear away what drains of this owner asked for and nobody goes on with; return what is left, if anything."""
    requests = EvictionRequests(client, owner, gate=asyncio.Semaphore(_WITHDRAWN_AT_ONCE), changed=lambda: None)
    requests.want()
    async with asyncio.TaskGroup() as group:
        following = group.create_task(requests.run())
        try:
            return await requests.finish() or requests.trouble
        finally:
            following.cancel()


def _stands(request: EvictionRequest) -> bool:
    return request.spec.intent == Intent.EVICTION and holds(request.status.conditions, EVICTED) is None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
