"""The sandbox's scheduler: binds pending pods to nodes.

One loop schedules one pod after the other, by priority and then by waiting time; `framework` chooses the node. A
decision counts at once (the pod is assumed), also before the cluster shows it, so that two pods never get the same last
slot of a node. Bindings are sent in the background, many at a time. A binding contains the pod's uid. If it is refused,
or its outcome is unknown, the scheduler reads the pod.

A pod without a feasible node gets a condition and an event, and is then parked. It is retried when a change may help: a
node is added or changed, a pod leaves a node, and, for pods with inter-pod rules, any pod is bound to one. A pod with
the same requirements as one that failed since the last such change fails without a search, so ten thousand pods that
wait for a node cost little more than one.
"""

import asyncio
import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from haulout.api.objects import RawObject
from haulout.api.resources import PODS
from haulout.core.backoff import Backoff
from haulout.errors import Conflict, NotFound
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder, EventType, ObjectReference
from haulout.kube.workqueue import WorkQueue
from haulout_sandbox.nodes.conditions import has_condition, merge_conditions, new_condition
from haulout_sandbox.nodes.informers import NodeInformers, NodeView, PodView
from haulout_sandbox.nodes.scheduler.cache import SchedulerCache
from haulout_sandbox.nodes.scheduler.framework import NodeSnapshot, schedule_pod

_ROUND_KEY = "round"
_BINDINGS = PODS.with_model(RawObject)
_PODS_PER_YIELD = 100  # decisions before other tasks get a turn
_BACKOFF = Backoff(first=timedelta(milliseconds=250), limit=timedelta(seconds=10), jitter=0.2)
_CONFLICT_DELAY = timedelta(milliseconds=250)
_MAX_INSTANT = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _AssumedPod:
    """A pod that the scheduler assigned to a node, until the cluster shows it."""

    pod: PodView
    node: str


class Scheduler:
    """Schedules pods while `run` runs. The caller runs `informers`, which may be shared.

    `name` is the `schedulerName` of its pods.
    """

    def __init__(
        self,
        client: Client,
        informers: NodeInformers,
        *,
        name: str = "default-scheduler",
        recorder: EventRecorder | None = None,
        workers: int = 32,
    ) -> None:
        self.name = name
        self._client = client
        self._clock = client.clock
        self._informers = informers
        self._recorder = recorder
        self._cache = SchedulerCache()
        self._snapshot: NodeSnapshot | None = None  # None: must be rebuilt
        self._start_index = 0
        self._active_queue = _ActiveQueue()
        self._unschedulable_pods: dict[str, PodView] = {}  # pods without a feasible node
        self._known_failures: dict[object, str] = {}  # requirements that failed since the last relevant change, and why
        self._assumed_pods: dict[str, _AssumedPod] = {}
        # messages of unschedulable pods that are not in their status yet
        self._unreported_failures: dict[str, str] = {}
        self._scheduling_queue: WorkQueue[str] = WorkQueue(
            self._schedule_all, clock=client.clock, random=client.random, workers=1, backoff=_BACKOFF, name="scheduler"
        )
        self._binding_queue: WorkQueue[str] = WorkQueue(
            self._bind_or_report,
            clock=client.clock,
            random=client.random,
            workers=workers,
            backoff=_BACKOFF,
            name="scheduler",
        )

    async def run(self) -> None:
        await self._informers.wait_synced()
        unsubscribes = [
            self._informers.nodes.subscribe(self._on_node_change),
            self._informers.pods.subscribe(self._on_pod_change),
        ]
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._scheduling_queue.run())
                tasks.create_task(self._binding_queue.run())
        finally:
            for unsubscribe in unsubscribes:
                unsubscribe()

    # Informer events

    def _on_node_change(self, old: NodeView | None, new: NodeView | None) -> None:
        if old is not None and new is not None and _relevant_node_fields(old) == _relevant_node_fields(new):
            return
        self._snapshot = None
        self._move_to_active_queue(self._unschedulable_pods.values())

    def _on_pod_change(self, old: PodView | None, new: PodView | None) -> None:
        pod = new or old
        if pod is None:
            return
        assumed = self._assumed_pods.get(pod.key)
        if assumed and (new is None or new.uid != assumed.pod.uid or new.node):
            del self._assumed_pods[pod.key]
            assumed = None
        if new is not None and new.node and not new.is_finished:
            self._cache.add_pod(new, new.node)
        elif assumed is None:
            self._cache.remove_pod(pod.key)
        if new is not None and assumed is None and self._is_schedulable(new):
            self._enqueue(new)
        else:
            self._forget(pod.key)
        if old is not None and old.node and not old.is_finished and (new is None or new.is_finished):
            self._move_to_active_queue(self._unschedulable_pods.values())
        elif new is not None and new.node and (old is None or not old.node or old.labels != new.labels):
            self._move_to_active_queue(
                waiting_pod for waiting_pod in self._unschedulable_pods.values() if _depends_on_other_pods(waiting_pod)
            )

    def _is_schedulable(self, pod: PodView) -> bool:
        is_pending = not pod.node and not pod.is_gated and not pod.is_finished and pod.deleted_at is None
        return is_pending and pod.scheduler == self.name

    def _enqueue(self, pod: PodView) -> None:
        unschedulable = self._unschedulable_pods.get(pod.key)
        if unschedulable and unschedulable.uid == pod.uid and _equivalence_key(unschedulable) == _equivalence_key(pod):
            self._unschedulable_pods[pod.key] = pod
            return
        self._unschedulable_pods.pop(pod.key, None)
        self._active_queue.add(pod)
        self._scheduling_queue.add(_ROUND_KEY)

    def _forget(self, key: str) -> None:
        self._active_queue.remove(key)
        self._unschedulable_pods.pop(key, None)
        self._unreported_failures.pop(key, None)

    def _move_to_active_queue(self, pods: Iterable[PodView]) -> None:
        self._known_failures.clear()
        for pod in list(pods):
            del self._unschedulable_pods[pod.key]
            self._active_queue.add(pod)
        if self._active_queue:
            self._scheduling_queue.add(_ROUND_KEY)

    # Scheduling

    async def _schedule_all(self, _: str) -> None:
        while self._active_queue:
            for _index in range(min(len(self._active_queue), _PODS_PER_YIELD)):
                self._schedule_one(self._active_queue.pop())
            await self._clock.sleep(timedelta())

    def _schedule_one(self, pod: PodView) -> None:
        if self._snapshot is None:
            self._snapshot = NodeSnapshot(self._informers.nodes.all())
        message = self._known_failures.get(_equivalence_key(pod)) if self._known_failures else None
        if message is None:
            self._start_index += 1
            result = schedule_pod(pod, self._snapshot, self._cache, start=self._start_index)
            if result.node:
                self._cache.add_pod(pod, result.node)
                self._assumed_pods[pod.key] = _AssumedPod(pod, result.node)
                self._binding_queue.add(pod.key)
                return
            message = result.failure_message
        if not _depends_on_other_pods(pod):
            self._known_failures[_equivalence_key(pod)] = message
        self._unschedulable_pods[pod.key] = pod
        self._unreported_failures[pod.key] = message
        self._binding_queue.add(pod.key)

    # Bindings and status

    async def _bind_or_report(self, key: str) -> datetime | None:
        if assumed := self._assumed_pods.get(key):
            await self._bind(assumed)
        elif message := self._unreported_failures.get(key):
            return await self._report_unschedulable(key, message)
        return None

    async def _bind(self, assumed: _AssumedPod) -> None:
        pod, node = assumed.pod, assumed.node
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._client.create(_BINDINGS, binding, namespace=pod.namespace, name=pod.name, subresource="binding")
        except (Conflict, NotFound):
            await self._resolve_failed_binding(assumed)
        else:
            self._record_event(
                pod, "Normal", "Scheduled", f"Successfully assigned {pod.key} to {node}", action="Binding"
            )

    async def _resolve_failed_binding(self, assumed: _AssumedPod) -> None:
        """Read a pod whose binding was refused: it is deleted, terminating, replaced, or already bound."""
        pod = assumed.pod
        try:
            live: PodView | None = await self._informers.get_live_pod(self._client, pod)
        except NotFound:
            live = None
        if self._assumed_pods.get(pod.key) is not assumed:  # the cluster has shown it meanwhile
            return
        if live and live.uid == pod.uid and live.node:
            self._assumed_pods[pod.key] = _AssumedPod(pod, live.node)
            self._cache.add_pod(pod, live.node)
            return
        del self._assumed_pods[pod.key]
        self._cache.remove_pod(pod.key)
        self._move_to_active_queue(self._unschedulable_pods.values())
        if live and self._is_schedulable(live):
            self._enqueue(live)

    async def _report_unschedulable(self, key: str, message: str) -> datetime | None:
        pod = self._unschedulable_pods.get(key)
        if pod is None:
            return None
        status = pod.status
        pod_scheduled = new_condition("PodScheduled", "False", "Unschedulable", message)
        if not has_condition(status.get("conditions", []), pod_scheduled):
            conditions = merge_conditions(status.get("conditions", []), [pod_scheduled], now=self._clock.now())
            try:
                await self._informers.patch_pod_status(self._client, pod, {"conditions": conditions})
            except NotFound:
                return None
            except Conflict:  # another client wrote it: a watch event follows
                return self._clock.now() + _CONFLICT_DELAY
            self._record_event(pod, "Warning", "FailedScheduling", message, action="Scheduling")
        if self._unreported_failures.get(key) == message:
            del self._unreported_failures[key]
        return None

    def _record_event(self, pod: PodView, event_type: EventType, reason: str, note: str, *, action: str) -> None:
        if self._recorder:
            regarding = ObjectReference(
                api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid
            )
            self._recorder.event(regarding, reason=reason, note=note, action=action, type=event_type)


class _ActiveQueue:
    """Pods that wait to be scheduled, the most important first."""

    def __init__(self) -> None:
        self._pods: dict[str, PodView] = {}
        self._heap: list[tuple[int, datetime, str, str]] = []  # may contain outdated entries

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, pod: PodView) -> None:
        """Add the pod, or replace its previous state."""
        previous = self._pods.get(pod.key)
        self._pods[pod.key] = pod
        if previous is None or previous.uid != pod.uid or previous.priority != pod.priority:
            heapq.heappush(self._heap, _priority_key(pod))

    def remove(self, key: str) -> None:
        self._pods.pop(key, None)

    def pop(self) -> PodView:
        while True:
            entry = heapq.heappop(self._heap)
            pod = self._pods.get(entry[2])
            if pod is not None and _priority_key(pod) == entry:
                del self._pods[pod.key]
                return pod


def _priority_key(pod: PodView) -> tuple[int, datetime, str, str]:
    return -pod.priority, pod.created_at or _MAX_INSTANT, pod.key, pod.uid


def _relevant_node_fields(node: NodeView) -> Any:
    """Return the fields of a node that scheduling may depend on."""
    return node.labels, node.unschedulable, node.taints, node.allocatable


def _equivalence_key(pod: PodView) -> Any:
    """Return the fields of a pod that scheduling may depend on."""
    return pod.scheduling_key, pod.namespace, tuple(pod.labels.items())


def _depends_on_other_pods(pod: PodView) -> bool:
    affinity = pod.affinity
    return bool(pod.spreads or affinity.pod_affinity.required or affinity.pod_anti_affinity.required)
