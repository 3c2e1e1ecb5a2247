"""The sandbox's scheduler: puts pods that have no node on one.

One loop decides, one pod after the other, the highest priority first and then the longest waiting; `placement` says
where to. What it decided counts at once, also while the cluster has not yet heard of it, so two pods never get the same
last place. The bindings themselves are sent in the background, many at a time. A binding names the pod's uid. One that
was refused, or whose outcome is unknown, is settled by looking at the pod.

A pod that fits nowhere is told so, in its status and by an event, and then rests. It is tried again when something
happens that may help it: a node comes or changes, a pod leaves a node, and, for those with rules about other pods, any
pod comes to one. A pod that asks for the same as one that was refused since is refused without looking, so ten thousand
pods that wait for a node cost little more than one.
"""

import asyncio
import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from haulout.core.backoff import Backoff
from haulout.errors import Conflict, NotFound
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder, EventType, ObjectReference
from haulout.kube.objects import RawObject
from haulout.kube.queue import Queue
from haulout.kube.resources import PODS
from haulout_sandbox.nodes.conditions import condition, merged, says
from haulout_sandbox.nodes.occupancy import Occupancy
from haulout_sandbox.nodes.placement import Fleet, place
from haulout_sandbox.nodes.view import NodeView, PodView, View

_ROUND = "round"
_BINDINGS = PODS.of(RawObject)
_BREATH = 100  # decisions, before others get a turn
_RETRY = Backoff(first=timedelta(milliseconds=250), limit=timedelta(seconds=10), jitter=0.2)
_SHORTLY = timedelta(milliseconds=250)
_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Decision:
    """A pod that we put on a node, until the cluster shows it there."""

    pod: PodView
    node: str


class Scheduler:
    """Puts pods on nodes while `run` runs; somebody must run `view`, which may be shared.

    `name` is the `schedulerName` of the pods that it cares for.
    """

    def __init__(
        self,
        client: Client,
        view: View,
        *,
        name: str = "default-scheduler",
        events: EventRecorder | None = None,
        workers: int = 32,
    ) -> None:
        self.name = name
        self._client = client
        self._clock = client.clock
        self._view = view
        self._events = events
        self._occupancy = Occupancy()
        self._fleet: Fleet | None = None  # None: to be looked at anew
        self._start = 0
        self._waiting = _Line()
        self._resting: dict[str, PodView] = {}  # fit nowhere
        self._refused: dict[object, str] = {}  # what was asked for in vain since something last happened, and why
        self._decisions: dict[str, _Decision] = {}
        self._verdicts: dict[str, str] = {}  # what the status of a resting pod is to say
        self._rounds: Queue[str] = Queue(
            self._round, clock=client.clock, random=client.random, workers=1, backoff=_RETRY, name="scheduler"
        )
        self._writes: Queue[str] = Queue(
            self._write, clock=client.clock, random=client.random, workers=workers, backoff=_RETRY, name="scheduler"
        )

    async def run(self) -> None:
        """Schedule until cancelled."""
        await self._view.wait_synced()
        ends = [self._view.nodes.subscribe(self._on_node), self._view.pods.subscribe(self._on_pod)]
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._rounds.run())
                tasks.create_task(self._writes.run())
        finally:
            for end in ends:
                end()

    # What happens in the cluster

    def _on_node(self, old: NodeView | None, new: NodeView | None) -> None:
        if old is not None and new is not None and _offer(old) == _offer(new):
            return
        self._fleet = None
        self._wake(self._resting.values())

    def _on_pod(self, old: PodView | None, new: PodView | None) -> None:
        pod = new or old
        if pod is None:
            return
        decision = self._decisions.get(pod.key)
        if decision and (new is None or new.uid != decision.pod.uid or new.node):
            del self._decisions[pod.key]
            decision = None
        if new is not None and new.node and not new.ended:
            self._occupancy.put(new, new.node)
        elif decision is None:
            self._occupancy.take(pod.key)
        if new is not None and decision is None and self._is_waiting(new):
            self._consider(new)
        else:
            self._forget(pod.key)
        if old is not None and old.node and not old.ended and (new is None or new.ended):
            self._wake(self._resting.values())
        elif new is not None and new.node and (old is None or not old.node or old.labels != new.labels):
            self._wake(it for it in self._resting.values() if _minds_others(it))

    def _is_waiting(self, pod: PodView) -> bool:
        waits = not pod.node and not pod.is_gated and not pod.ended and pod.deleted_at is None
        return waits and pod.scheduler == self.name

    def _consider(self, pod: PodView) -> None:
        resting = self._resting.get(pod.key)
        if resting and resting.uid == pod.uid and _wish(resting) == _wish(pod):
            self._resting[pod.key] = pod
            return
        self._resting.pop(pod.key, None)
        self._waiting.add(pod)
        self._rounds.add(_ROUND)

    def _forget(self, key: str) -> None:
        self._waiting.drop(key)
        self._resting.pop(key, None)
        self._verdicts.pop(key, None)

    def _wake(self, pods: Iterable[PodView]) -> None:
        self._refused.clear()
        for pod in list(pods):
            del self._resting[pod.key]
            self._waiting.add(pod)
        if self._waiting:
            self._rounds.add(_ROUND)

    # Deciding

    async def _round(self, _: str) -> None:
        while self._waiting:
            for _decision in range(min(len(self._waiting), _BREATH)):
                self._decide(self._waiting.pop())
            await self._clock.sleep(timedelta())

    def _decide(self, pod: PodView) -> None:
        if self._fleet is None:
            self._fleet = Fleet(self._view.nodes.all())
        message = self._refused.get(_wish(pod)) if self._refused else None
        if message is None:
            self._start += 1
            placement = place(pod, self._fleet, self._occupancy, start=self._start)
            if placement.node:
                self._occupancy.put(pod, placement.node)
                self._decisions[pod.key] = _Decision(pod, placement.node)
                self._writes.add(pod.key)
                return
            message = placement.message
        if not _minds_others(pod):
            self._refused[_wish(pod)] = message
        self._resting[pod.key] = pod
        self._verdicts[pod.key] = message
        self._writes.add(pod.key)

    # Telling the cluster

    async def _write(self, key: str) -> datetime | None:
        if decision := self._decisions.get(key):
            await self._bind(decision)
        elif message := self._verdicts.get(key):
            return await self._tell(key, message)
        return None

    async def _bind(self, decision: _Decision) -> None:
        pod, node = decision.pod, decision.node
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._client.create(_BINDINGS, binding, namespace=pod.namespace, name=pod.name, subresource="binding")
        except (Conflict, NotFound):
            await self._settle(decision)
        else:
            self._record(pod, "Normal", "Scheduled", f"Successfully assigned {pod.key} to {node}", action="Binding")

    async def _settle(self, decision: _Decision) -> None:
        """Find out what became of a pod that was not ours to bind: gone, leaving, another one, or bound already."""
        pod = decision.pod
        try:
            found: PodView | None = await self._view.read(self._client, pod)
        except NotFound:
            found = None
        if self._decisions.get(pod.key) is not decision:  # the cluster has shown it meanwhile
            return
        if found and found.uid == pod.uid and found.node:
            self._decisions[pod.key] = _Decision(pod, found.node)
            self._occupancy.put(pod, found.node)
            return
        del self._decisions[pod.key]
        self._occupancy.take(pod.key)
        self._wake(self._resting.values())
        if found and self._is_waiting(found):
            self._consider(found)

    async def _tell(self, key: str, message: str) -> datetime | None:
        pod = self._resting.get(key)
        if pod is None:
            return None
        status = pod.status
        wanted = condition("PodScheduled", "False", "Unschedulable", message)
        if not says(status.get("conditions", []), wanted):
            conditions = merged(status.get("conditions", []), [wanted], now=self._clock.now())
            try:
                await self._view.write(self._client, pod, {"conditions": conditions})
            except NotFound:
                return None
            except Conflict:  # somebody else wrote it, of which we shall hear
                return self._clock.now() + _SHORTLY
            self._record(pod, "Warning", "FailedScheduling", message, action="Scheduling")
        if self._verdicts.get(key) == message:
            del self._verdicts[key]
        return None

    def _record(self, pod: PodView, kind: EventType, reason: str, note: str, *, action: str) -> None:
        if self._events:
            regarding = ObjectReference(
                api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid
            )
            self._events.record(regarding, reason=reason, note=note, action=action, type=kind)


class _Line:
    """Pods that wait for a decision, the most important first."""

    def __init__(self) -> None:
        self._pods: dict[str, PodView] = {}
        self._heap: list[tuple[int, datetime, str, str]] = []  # may hold entries that no longer count

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, pod: PodView) -> None:
        """Have the pod wait, or wait on as it now is."""
        known = self._pods.get(pod.key)
        self._pods[pod.key] = pod
        if known is None or known.uid != pod.uid or known.priority != pod.priority:
            heapq.heappush(self._heap, _rank(pod))

    def drop(self, key: str) -> None:
        """Let it wait no more."""
        self._pods.pop(key, None)

    def pop(self) -> PodView:
        """Return the first in line, which then is no longer in it."""
        while True:
            entry = heapq.heappop(self._heap)
            pod = self._pods.get(entry[2])
            if pod is not None and _rank(pod) == entry:
                del self._pods[pod.key]
                return pod


def _rank(pod: PodView) -> tuple[int, datetime, str, str]:
    return -pod.priority, pod.created_at or _NEVER, pod.key, pod.uid


def _offer(node: NodeView) -> Any:
    """Return all of a node that a decision may rest on."""
    return node.labels, node.unschedulable, node.taints, node.allocatable


def _wish(pod: PodView) -> Any:
    """Return all of a pod that a decision may rest on."""
    return pod.wishes, pod.namespace, tuple(pod.labels.items())


def _minds_others(pod: PodView) -> bool:
    affinity = pod.affinity
    return bool(pod.spreads or affinity.pod_affinity.required or affinity.pod_anti_affinity.required)
