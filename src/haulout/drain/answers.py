"""What the server was asked about things around the pods: their DaemonSets, namespaces and volumes, the node.

An answer is kept for as long as the drain lasts. A question that failed counts as answered with the failure, which
holds up only the pods that it is about, and is asked again after a while.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from haulout.core.backoff import Backoff
from haulout.drain.selection import DaemonSetAnswer
from haulout.drain.sorting import Question
from haulout.drain.tolerations import Toleration
from haulout.drain.volumes import PERSISTENT_VOLUMES
from haulout.errors import ApiError, KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.objects import Base, Node, Object, Taint
from haulout.kube.resources import NAMESPACES, NODES, Resource

DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True, model=Object)

_BACKOFF = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=1), jitter=0.2)
_WITHIN = timedelta(seconds=10)
_NODE_IS_FRESH = 60.0  # seconds


class _PodSpec(Base, frozen=True):
    tolerations: tuple[Toleration, ...] = ()


class _Template(Base, frozen=True):
    spec: _PodSpec = _PodSpec()


class _DaemonSetSpec(Base, frozen=True):
    template: _Template = _Template()


class _DaemonSet(Object, frozen=True):
    spec: _DaemonSetSpec = _DaemonSetSpec()


_DAEMON_SETS = DAEMON_SETS.of(_DaemonSet)


class Answers:
    """The answers of one drain."""

    def __init__(self, client: Client) -> None:
        self.daemon_sets: dict[str, DaemonSetAnswer] = {}
        self.namespaces: dict[str, Mapping[str, str] | str] = {}
        self.claims: dict[str, str] = {}  # by PersistentVolume: namespace/name, empty if it has none or that is unknown
        self.taints: tuple[Taint, ...] | str | None = None  # of the node, or why they are not known
        self._client = client
        self._clock = client.clock
        self._node: tuple[bool, float] | None = None  # and when that was, by the monotonic clock
        self._failures: dict[Question, tuple[int, float]] = {}  # how many in a row, when to ask again
        self._asking: set[Question] = set()

    @property
    def node_ready(self) -> bool | None:
        """Whether the node is ready; None if that was not asked of late."""
        if self._node is None or self._clock.monotonic() >= self._node[1] + _NODE_IS_FRESH:
            return None
        return self._node[0]

    @property
    def wakes_at(self) -> float | None:
        """When the next question is to be repeated, by the monotonic clock."""
        return min((at for question, (_, at) in self._failures.items() if question not in self._asking), default=None)

    def forget_node(self) -> None:
        """Ask for the node anew when it is needed next: it was changed."""
        self._node, self.taints = None, None

    def open(self, wanted: tuple[Question, ...]) -> list[Question]:
        """Return what is to be asked now: what is wanted, and what failed some time ago; each is then under way."""
        now = self._clock.monotonic()
        due = [question for question, (_, at) in self._failures.items() if at <= now]
        asked = [it for it in dict.fromkeys((*wanted, *due)) if it not in self._asking]
        asked = [it for it in asked if it in due or it not in self._failures]
        self._asking.update(asked)
        return asked

    async def ask(self, question: Question) -> None:
        """Get one answer."""
        try:
            async with asyncio.timeout(_WITHIN.total_seconds()):
                failed = await self._ask(question)
        except TimeoutError:
            failed = f"no answer about {question.kind} {question.key} within {_WITHIN.total_seconds():g} s"
        finally:
            self._asking.discard(question)
        if not failed:
            self._failures.pop(question, None)
            return
        self._fail(question, failed)
        failures = self._failures.get(question, (0, None))[0] + 1
        again_at = self._clock.monotonic() + _BACKOFF.delay(failures, self._client.random).total_seconds()
        self._failures[question] = failures, again_at

    async def _ask(self, question: Question) -> str:
        """Get one answer; return why there is none."""
        try:
            await self._learn(question)
        except KubeError as error:
            return error.message if isinstance(error, ApiError) else str(error)
        return ""

    async def _learn(self, question: Question) -> None:
        namespace, _, name = question.key.rpartition("/")
        match question.kind:
            case "daemonset":
                self.daemon_sets[question.key] = await self._daemon_set(name, namespace)
            case "namespace":
                self.namespaces[name] = (await self._client.get(NAMESPACES, name)).metadata.labels
            case "volume":
                self.claims[name] = await self._claim(name)
            case _:
                is_ready, self.taints = await self._look_at_node(name)
                self._node = is_ready, self._clock.monotonic()

    async def _daemon_set(self, name: str, namespace: str) -> DaemonSetAnswer:
        try:
            found = await self._client.get(_DAEMON_SETS, name, namespace=namespace)
        except NotFound as error:
            return DaemonSetAnswer(error.message, is_missing=True)
        return DaemonSetAnswer(tolerations=found.spec.template.spec.tolerations)

    async def _claim(self, volume: str) -> str:
        try:
            return (await self._client.get(PERSISTENT_VOLUMES, volume)).claim
        except NotFound:
            return ""

    async def _look_at_node(self, name: str) -> tuple[bool, tuple[Taint, ...]]:
        """Return whether the node is ready, and its taints."""
        try:
            node: Node = await self._client.get(NODES, name)
        except NotFound:
            return False, ()
        is_ready = any(it.type == "Ready" and it.status == "True" for it in node.status.conditions)
        return is_ready, node.spec.taints

    def _fail(self, question: Question, problem: str) -> None:
        if question.kind == "daemonset":
            self.daemon_sets[question.key] = DaemonSetAnswer(problem)
        elif question.kind == "namespace":
            self.namespaces[question.key] = problem
        elif question.kind == "volume":
            self.claims[question.key] = ""
        else:
            self._node, self.taints = (True, self._clock.monotonic()), problem
