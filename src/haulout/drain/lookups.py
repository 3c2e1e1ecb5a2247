"""What the server was asked about things around the pods: their DaemonSets, namespaces and volumes, the node.

An answer is kept for as long as the drain lasts. A question that failed counts as answered with the failure, which
holds up only the pods that it is about, and is asked again after a while.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from haulout.api.objects import Base, Node, Object, Taint
from haulout.api.resources import NAMESPACES, NODES, Resource
from haulout.core.backoff import Backoff
from haulout.drain.pod_filters import DaemonSetInfo
from haulout.drain.pod_selection import LookupRequest
from haulout.drain.tolerations import Toleration
from haulout.drain.volumes import PERSISTENT_VOLUMES
from haulout.errors import ApiError, KubeError, NotFound
from haulout.kube.client import Client

DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True, model=Object)

_BACKOFF = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=1), jitter=0.2)
_REQUEST_TIMEOUT = timedelta(seconds=10)
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
    """The answers of one drain."""

    def __init__(self, client: Client) -> None:
        self.daemon_sets: dict[str, DaemonSetInfo] = {}
        self.namespaces: dict[str, Mapping[str, str] | str] = {}
        self.claims: dict[str, str] = {}  # by PersistentVolume: namespace/name, empty if it has none or that is unknown
        self.taints: tuple[Taint, ...] | str | None = None  # of the node, or why they are not known
        self._client = client
        self._clock = client.clock
        self._node_readiness: tuple[bool, float] | None = None  # and when that was, by the monotonic clock
        self._failures: dict[LookupRequest, tuple[int, float]] = {}  # how many in a row, when to ask again
        self._in_flight: set[LookupRequest] = set()

    @property
    def node_ready(self) -> bool | None:
        """Whether the node is ready; None if that was not asked of late."""
        if self._node_readiness is None or self._clock.monotonic() >= self._node_readiness[1] + _NODE_MAX_AGE:
            return None
        return self._node_readiness[0]

    @property
    def next_retry_at(self) -> float | None:
        """When the next question is to be repeated, by the monotonic clock."""
        return min((at for request, (_, at) in self._failures.items() if request not in self._in_flight), default=None)

    def forget_node(self) -> None:
        """Ask for the node anew when it is needed next: it was changed."""
        self._node_readiness, self.taints = None, None

    def due_requests(self, requests: tuple[LookupRequest, ...]) -> list[LookupRequest]:
        """Return what is to be asked now: what is wanted, and what failed some time ago; each is then under way."""
        now = self._clock.monotonic()
        due = [failed_request for failed_request, (_, at) in self._failures.items() if at <= now]
        started = [request for request in dict.fromkeys((*requests, *due)) if request not in self._in_flight]
        started = [request for request in started if request in due or request not in self._failures]
        self._in_flight.update(started)
        return started

    async def look_up(self, request: LookupRequest) -> None:
        """Get one answer."""
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT.total_seconds()):
                problem = await self._look_up(request)
        except TimeoutError:
            problem = f"no answer about {request.kind} {request.key} within {_REQUEST_TIMEOUT.total_seconds():g} s"
        finally:
            self._in_flight.discard(request)
        if not problem:
            self._failures.pop(request, None)
            return
        self._store_failure(request, problem)
        failures = self._failures.get(request, (0, None))[0] + 1
        retry_at = self._clock.monotonic() + _BACKOFF.delay(failures, self._client.random).total_seconds()
        self._failures[request] = failures, retry_at

    async def _look_up(self, request: LookupRequest) -> str:
        """Get one answer; return why there is none."""
        try:
            await self._fetch(request)
        except KubeError as error:
            return error.message if isinstance(error, ApiError) else str(error)
        return ""

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
            return DaemonSetInfo(error.message, is_missing=True)
        return DaemonSetInfo(tolerations=found.spec.template.spec.tolerations)

    async def _fetch_claim(self, volume: str) -> str:
        try:
            return (await self._client.get(PERSISTENT_VOLUMES, volume)).claim
        except NotFound:
            return ""

    async def _fetch_node(self, name: str) -> tuple[bool, tuple[Taint, ...]]:
        """Return whether the node is ready, and its taints."""
        try:
            node: Node = await self._client.get(NODES, name)
        except NotFound:
            return False, ()
        is_ready = any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
        return is_ready, node.spec.taints

    def _store_failure(self, request: LookupRequest, problem: str) -> None:
        if request.kind == "daemonset":
            self.daemon_sets[request.key] = DaemonSetInfo(problem)
        elif request.kind == "namespace":
            self.namespaces[request.key] = problem
        elif request.kind == "volume":
            self.claims[request.key] = ""
        else:
            self._node_readiness, self.taints = (True, self._clock.monotonic()), problem
