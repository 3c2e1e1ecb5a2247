"""Counts the pods of nodes that go into maintenance, by owner, as the SAP maintenance-controller does.

    counter.record_decision(observed, decision)  # a decision was written: it may take the node into maintenance
    await counter.wait_listed("n1")              # its pods are listed: the drain may start

The pods must be listed before a drain evicts them, whichever chain the drain is in. Nothing else waits for this. Owners
are fetched in the background and cached for a minute, since nodes of a cluster run pods of the same owners. What cannot
be fetched is not counted; nothing else depends on it.

Prometheus sees the increase of a counter only if it has scraped the counter before. So when a profile requires
maintenance, the series of the node's pods are initialized to 0, at a limited rate: if very many nodes require
maintenance at once, some are skipped.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from haulout.api.objects import Object
from haulout.api.resources import PODS
from haulout.api.workloads import WORKLOAD_KINDS
from haulout.controllers.profiles.machine import transitions
from haulout.controllers.profiles.metrics import Owner, ProfileMetrics, RescheduledPod, rescheduled_pods
from haulout.controllers.profiles.observation import Decision
from haulout.controllers.profiles.plugin import ObservedNode, State
from haulout.drain.lookups import DAEMON_SETS
from haulout.drain.pod_informers import node_field_selector
from haulout.errors import KubeError, NotFound
from haulout.kube.client import Client

log = logging.getLogger(__name__)

_PODS = PODS.with_model(Object)
_OWNERS = {
    **{kind: it.with_model(Owner) for kind, it in WORKLOAD_KINDS.items()},
    DAEMON_SETS.kind: DAEMON_SETS.with_model(Owner),
}
_CONCURRENCY = 8
_MAX_ROUNDS = 3  # of lookups: Pods to ReplicaSets to Deployments
_OWNER_TTL = timedelta(minutes=1)
_LIST_TIMEOUT = timedelta(seconds=5)  # then the drain starts without counting
_INITIALIZE_INTERVAL = timedelta(milliseconds=200)
_MAX_TO_INITIALIZE = 100


class _OwnerKey(NamedTuple):
    namespace: str
    kind: str
    name: str


class _CachedOwner(NamedTuple):
    at: float
    owner: Owner | None


class RescheduledPodCounter:
    """Counts in background tasks while `run` runs."""

    def __init__(self, client: Client, metrics: ProfileMetrics) -> None:
        self._client = client
        self._clock = client.clock
        self._metrics = metrics
        self._group: asyncio.TaskGroup | None = None
        self._listing: dict[str, asyncio.Event] = {}  # by node: set when its pods are listed
        self._owners: dict[_OwnerKey, _CachedOwner] = {}
        self._lists, self._gets = asyncio.Semaphore(_CONCURRENCY), asyncio.Semaphore(_CONCURRENCY)
        self._to_initialize: deque[tuple[str, str]] = deque()
        self._has_work = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await self._initialize_series()
            finally:
                self._group = None

    def record_decision(self, observed: ObservedNode, decision: Decision) -> None:
        """Count pods if a written decision enters maintenance; `observed` is the node before the write."""
        for report in decision.reports:
            if _enters_maintenance(report.name, observed, decision):
                self._start_counting(observed.node.name, report.name)
            elif report.next == State.REQUIRED != report.state and len(self._to_initialize) < _MAX_TO_INITIALIZE:
                self._to_initialize.append((observed.node.name, report.name))
                self._has_work.set()

    def _start_counting(self, node: str, profile: str) -> None:
        if self._group is not None:
            listed = self._listing[node] = asyncio.Event()
            self._group.create_task(self._record(node, profile, listed))

    async def wait_listed(self, node: str) -> None:
        """Wait until the pods of a node are listed, if they are being listed, but at most `_LIST_TIMEOUT`."""
        listing = self._listing.get(node)
        if listing is None:
            return
        try:
            async with asyncio.timeout(_LIST_TIMEOUT.total_seconds()):
                await listing.wait()
        # A metric must not delay maintenance: the drain starts uncounted.
        except TimeoutError:
            log.warning("the pods of node %s could not be listed in time to be counted", node)

    async def _record(self, node: str, profile: str, listed: asyncio.Event) -> None:
        try:
            pods = await self._pods(node)
        finally:
            # Also after a failure, because a drain waits for it.
            listed.set()
            if self._listing.get(node) is listed:
                del self._listing[node]
        self._metrics.record_rescheduled(await self._rescheduled_pods(pods), profile=profile)

    async def _initialize_series(self) -> None:
        while True:
            while self._to_initialize:
                node, profile = self._to_initialize.popleft()
                self._metrics.initialize_rescheduled(
                    await self._rescheduled_pods(await self._pods(node)), profile=profile
                )
                await self._clock.sleep(_INITIALIZE_INTERVAL)
            self._has_work.clear()
            await self._has_work.wait()

    async def _pods(self, node: str) -> Sequence[Object]:
        try:
            async with self._lists:
                return (await self._client.list(_PODS, fields=node_field_selector(node))).items
        except KubeError as error:
            log.warning("pods of node %s are not counted: %s", node, error)
            return ()

    async def _rescheduled_pods(self, pods: Sequence[Object]) -> tuple[RescheduledPod, ...]:
        """Return the pods with their owners; fetch owners that are not cached."""
        for _ in range(_MAX_ROUNDS):
            # Owners are found level by level: the owner of a ReplicaSet is known only after the ReplicaSet was
            # fetched.
            missing: dict[_OwnerKey, None] = {}
            found = rescheduled_pods(pods, self._owner_lookup(missing))
            if not missing:
                break
            await _run_all(self._fetch_owner(key) for key in missing)
        return found

    def _owner_lookup(self, missing: dict[_OwnerKey, None]) -> Callable[[str, str, str], Owner | None]:
        oldest = self._clock.monotonic() - _OWNER_TTL.total_seconds()
        for key in [key for key, entry in self._owners.items() if entry.at < oldest]:
            del self._owners[key]

        def find(namespace: str, kind: str, name: str) -> Owner | None:
            key = _OwnerKey(namespace, kind, name)
            cached = self._owners.get(key)
            if cached is None:
                missing[key] = None
                return None
            return cached.owner

        return find

    async def _fetch_owner(self, key: _OwnerKey) -> None:
        async with self._gets:
            owner: Owner | None = None
            try:
                owner = await self._client.get(_OWNERS[key.kind], key.name, namespace=key.namespace)
            except NotFound:
                log.debug("%s %s/%s no longer exists", key.kind, key.namespace, key.name)
            except KubeError as error:
                log.warning("pods of %s %s/%s are not counted: %s", key.kind, key.namespace, key.name, error)
            # Stored in the case of an error, too. Otherwise each of a thousand pods of the owner would repeat the
            # failing request.
            self._owners[key] = _CachedOwner(self._clock.monotonic(), owner)


def _enters_maintenance(profile: str, observed: ObservedNode, decision: Decision) -> bool:
    """Return whether a profile takes the node into maintenance by this decision, with a pending drain or without."""
    status, before, after = (
        observed.statuses.get(profile),
        transitions.read_pending(observed.node).get(profile),
        decision.pending.get(profile),
    )
    was_in_maintenance = status is not None and status.current == State.IN_MAINTENANCE
    was_pending = before is not None and before.next is State.IN_MAINTENANCE and before.belongs_to(status)
    is_pending = after is not None and after.next is State.IN_MAINTENANCE
    return not (was_in_maintenance or was_pending) and (
        is_pending or _state_of(profile, decision) == State.IN_MAINTENANCE
    )


def _state_of(profile: str, decision: Decision) -> str:
    status = decision.statuses.get(profile)
    return "" if status is None else status.current


async def _run_all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(each)
