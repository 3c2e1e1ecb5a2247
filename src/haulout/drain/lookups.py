"""Lookups of objects that decide about pods: DaemonSets, namespaces, PersistentVolumes and the node.

A result is kept for the whole drain. A failure is stored as result, too: it affects only the pods concerned, and the
lookup is retried with backoff.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from haulout.api.objects import Base, Node, Object, Taint
from haulout.api.resources import NAMESPACES, NODES, Resource
from haulout.core.backoff import Backoff
from haulout.core.retry import Retry
from haulout.drain.pod_filters import DaemonSetInfo, Toleration
from haulout.drain.pod_selection import LookupRequest
from haulout.drain.volumes import PERSISTENT_VOLUMES
from haulout.errors import ApiError, KubeError, NotFound
from haulout.kube.client import Client

DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True, model=Object)

_BACKOFF = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=1), jitter=0.2)
_REQUEST_TIMEOUT = timedelta(seconds=10)
# The readiness decides about advice, and the taints about DaemonSet pods. Both may change during a drain of hours.
_NODE_MAX_AGE = 60.0  # seconds


class _PodSpec(Base, frozen=True):
    tolerations: tuple[Toleration, ...] = ()


class _Template(Base, frozen=True):
    spec: _PodSpec = _PodSpec()


class _DaemonSetSpec(Base, frozen=True):
    template: _Template = _Template()


class _DaemonSet(Object, frozen=True):
    spec: _DaemonSetSpec = _DaemonSetSpec()


_DAEMON_SETS = DAEMON_SETS.with_model(_DaemonSet)


class LookupCache:
    """The lookup results of one drain. A result stays valid for the whole drain, except that about the node."""

    def __init__(self, client: Client) -> None:
        self.daemon_sets: dict[str, DaemonSetInfo] = {}
        self.namespaces: dict[str, Mapping[str, str] | str] = {}
        self.claims: dict[str, str] = {}  # by PersistentVolume: namespace/name, empty if it has none or it is unknown
        self.taints: tuple[Taint, ...] | str | None = None  # of the node, or why they are unknown
        self._client = client
        self._clock = client.clock
        self._node_readiness: tuple[bool, float] | None = None  # with the monotonic time of the lookup
        self._failures: dict[LookupRequest, tuple[Retry, float]] = {}  # with the monotonic time of the retry
        self._in_flight: set[LookupRequest] = set()

    @property
    def node_ready(self) -> bool | None:
        """Whether the node is ready; None if that was not looked up within the last minute."""
        if self._node_readiness is None or self._clock.monotonic() >= self._node_readiness[1] + _NODE_MAX_AGE:
            return None
        return self._node_readiness[0]

    @property
    def next_retry_at(self) -> float | None:
        """When the next lookup is due for a retry, on the monotonic clock."""
        return min((at for request, (_, at) in self._failures.items() if request not in self._in_flight), default=None)

    def forget_node(self) -> None:
        """Discard the node's results, because the node was changed."""
        self._node_readiness, self.taints = None, None

    def due_requests(self, requests: tuple[LookupRequest, ...]) -> list[LookupRequest]:
        """Return the lookups to start now: new requests and due retries. They count as in flight from now on."""
        now = self._clock.monotonic()
        due = [failed_request for failed_request, (_, at) in self._failures.items() if at <= now]
        started = [request for request in dict.fromkeys((*requests, *due)) if request not in self._in_flight]
        started = [request for request in started if request in due or request not in self._failures]
        self._in_flight.update(started)
        return started

    async def look_up(self, request: LookupRequest) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT.total_seconds()):
                await self._fetch(request)
        except TimeoutError as error:
            timeout = f"{_REQUEST_TIMEOUT.total_seconds():g} s"
            self._record_failure(request, error, f"no answer about {request.kind} {request.key} within {timeout}")
        except KubeError as error:
            self._record_failure(request, error, error.message if isinstance(error, ApiError) else str(error))
        else:
            self._failures.pop(request, None)
        finally:
            self._in_flight.discard(request)

    def _record_failure(self, request: LookupRequest, error: Exception, problem: str) -> None:
        self._store_failure(request, problem)
        retry, _ = self._failures.get(request) or (Retry(self._clock, self._client.random, _BACKOFF), 0.0)
        self._failures[request] = retry, self._clock.monotonic() + retry.delay(error).total_seconds()

    async def _fetch(self, request: LookupRequest) -> None:
        namespace, _, name = request.key.rpartition("/")
        match request.kind:
            case "daemonset":
                self.daemon_sets[request.key] = await self._fetch_daemon_set(name, namespace)
            case "namespace":
                self.namespaces[name] = (await self._client.get(NAMESPACES, name)).metadata.labels
            case "volume":
                self.claims[name] = await self._fetch_claim(name)
            case _:
                is_ready, self.taints = await self._fetch_node(name)
                self._node_readiness = is_ready, self._clock.monotonic()

    async def _fetch_daemon_set(self, name: str, namespace: str) -> DaemonSetInfo:
        try:
            found = await self._client.get(_DAEMON_SETS, name, namespace=namespace)
        except NotFound as error:
            # An answer, not a failure: kubectl evicts the pods of a missing DaemonSet with --force.
            return DaemonSetInfo(error.message, is_missing=True)
        return DaemonSetInfo(tolerations=found.spec.template.spec.tolerations)

    async def _fetch_claim(self, volume: str) -> str:
        try:
            return (await self._client.get(PERSISTENT_VOLUMES, volume)).claim
        except NotFound:
            return ""

    async def _fetch_node(self, name: str) -> tuple[bool, tuple[Taint, ...]]:
        try:
            node: Node = await self._client.get(NODES, name)
        except NotFound:
            return False, ()  # no kubelet will stop its pods any more
        return node.is_ready, node.spec.taints

    def _store_failure(self, request: LookupRequest, problem: str) -> None:
        if request.kind == "daemonset":
            # Stored as a result, so that the decision does not ask for it again at once, and shows the problem.
            self.daemon_sets[request.key] = DaemonSetInfo(problem)
        elif request.kind == "namespace":
            self.namespaces[request.key] = problem
        elif request.kind == "volume":
            self.claims[request.key] = ""
        else:
            # Ready, in doubt: the advice for a node that is not ready is to force-delete pods.
            self._node_readiness, self.taints = (True, self._clock.monotonic()), problem
