"""Node lifecycle controller: marks silent nodes, taints unhealthy ones, and evicts their pods.

- When a kubelet has renewed neither its lease nor its status for the grace period, the conditions of its node become
  Unknown, and its pods not ready. The grace period is that of kube-controller-manager, 50 s, for the usual lease of 40
  s, and proportional for other heartbeat intervals.
- Conditions become taints, and taints are removed with them. NoExecute taints evict pods after the time that they
  tolerate. If no node at all is ready, the controller itself is more likely cut off, so it evicts nobody.

Nothing is polled: each node has one instant at which it is checked next. A heartbeat does not move that instant: when
it comes, the heartbeats since then are considered, and it is set anew. Zones get no special treatment, and tainting is
not rate limited.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta

from haulout.api.objects import Lease, RawObject
from haulout.api.resources import LEASES, NODES, PODS
from haulout.core.backoff import Backoff
from haulout.errors import Conflict, Invalid, NotFound
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import Operation, json_patch
from haulout.kube.recorder import EventRecorder, ObjectReference
from haulout.kube.reflector import ListWatch
from haulout.kube.workqueue import WorkQueue
from haulout_sandbox.nodes.conditions import has_condition, merge_conditions
from haulout_sandbox.nodes.informers import NodeInformers, NodeView, PodView
from haulout_sandbox.nodes.kubelet.kubelet import LEASE_NAMESPACE
from haulout_sandbox.nodes.nodelifecycle import decision

NODE_STARTUP_GRACE_PERIOD = timedelta(seconds=60)

_BACKOFF = Backoff(first=timedelta(milliseconds=500), limit=timedelta(seconds=10), jitter=0.2)
_RETRY_DELAY = timedelta(seconds=1)
_DEFAULT_LEASE_SECONDS = 40
_GRACE_PERIOD_PER_LEASE_DURATION = 1.25


class NodeLifecycleController:
    """Watches over nodes while `run` runs. The caller runs `informers`, which may be shared."""

    def __init__(
        self, client: Client, informers: NodeInformers, *, recorder: EventRecorder | None = None, workers: int = 16
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._informers = informers
        self._recorder = recorder
        self._leases: Informer[Lease] = Informer(client, ListWatch(LEASES, namespace=LEASE_NAMESPACE), transform=as_is)
        # when a kubelet last showed a heartbeat, by this controller's clock
        self._last_heartbeat_seen: dict[str, datetime] = {}
        # by node and key of the taint: when this controller first saw it
        self._taints_first_seen: dict[str, dict[str, datetime]] = {}
        self._ready_nodes: set[str] = set()
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=workers,
            backoff=_BACKOFF,
            name="node lifecycle",
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._leases.run())
            await self._leases.wait_synced()
            await self._informers.wait_synced()
            unsubscribes = [
                self._leases.subscribe(self._on_lease_change),
                self._informers.nodes.subscribe(self._on_node_change),
                self._informers.pods.subscribe(self._on_pod_change),
            ]
            try:
                await self._queue.run()
            finally:
                for unsubscribe in unsubscribes:
                    unsubscribe()

    # Informer events

    def _on_lease_change(self, old: Lease | None, new: Lease | None) -> None:
        if new is None:
            return
        if old is None or old.spec.renew_time != new.spec.renew_time:
            self._last_heartbeat_seen[new.name] = self._clock.now()
        if old is None or old.spec.lease_duration_seconds != new.spec.lease_duration_seconds:
            self._queue.add(new.name)  # another lease duration means another grace period

    def _on_node_change(self, old: NodeView | None, new: NodeView | None) -> None:
        node = new or old
        if node is None:
            return
        if old is None:
            self._record_node_event(node, "RegisteredNode", f"Registered Node {node.key} in Controller")
        if new is None:
            self._record_node_event(node, "RemovingNode", f"Removing Node {node.key} from Controller")
            self._last_heartbeat_seen.pop(node.key, None)
            self._taints_first_seen.pop(node.key, None)
        elif old is None or _heartbeat_times(old) != _heartbeat_times(new):
            self._last_heartbeat_seen[node.key] = self._clock.now()
        some_were_ready = bool(self._ready_nodes)
        if new is not None and new.ready_status == "True":
            self._ready_nodes.add(node.key)
        else:
            self._ready_nodes.discard(node.key)
        # whether all nodes are unready decides about evictions everywhere
        if bool(self._ready_nodes) != some_were_ready:
            self._enqueue(known.key for known in self._informers.nodes.all())
        if old is None or new is None or _relevant_fields(old) != _relevant_fields(new):
            self._queue.add(node.key)

    def _on_pod_change(self, _: PodView | None, new: PodView | None) -> None:
        if new is None or not new.node:
            return
        node = self._informers.nodes.get(new.node)
        if node is None or (node.key in self._ready_nodes and not node.taints):
            return
        if node.key not in self._ready_nodes or any(taint.effect == decision.NO_EXECUTE for taint in node.taints):
            self._queue.add(new.node)

    def _enqueue(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._queue.add(name)

    # One pass over one node

    async def _reconcile(self, name: str) -> datetime | None:
        node = self._informers.nodes.get(name)
        if node is None:
            return None
        now = self._clock.now()
        try:
            overdue_at = await self._mark_unknown_if_silent(node, now)
            await self._update_taints(node, now)
            await self._mark_pods_not_ready(node)
            next_eviction_at = await self._evict_by_taints(node, now)
        except (Conflict, Invalid, NotFound):  # another client wrote or deleted it: the informer will show that
            return now + _RETRY_DELAY
        return min((instant for instant in (overdue_at, next_eviction_at) if instant), default=None)

    async def _mark_unknown_if_silent(self, node: NodeView, now: datetime) -> datetime | None:
        """Set the conditions to Unknown if the kubelet is silent; return when that is due otherwise."""
        operations = decision.unknown_status_patch(node, now=now)
        if not operations:
            return None
        overdue_at = self._last_heartbeat_seen.setdefault(node.key, now) + self._grace_period(node)
        if now <= overdue_at:
            return overdue_at + timedelta(microseconds=1)
        await self._patch_node(node, operations, subresource="status")
        self._record_event(
            "Node", node.key, "", node.uid, "NodeNotReady", f"Node {node.key} status is now: NodeNotReady"
        )
        return None

    def _grace_period(self, node: NodeView) -> timedelta:
        if not node.conditions:
            return NODE_STARTUP_GRACE_PERIOD
        lease = self._leases.get(f"{LEASE_NAMESPACE}/{node.key}")
        seconds = (lease.spec.lease_duration_seconds if lease else None) or _DEFAULT_LEASE_SECONDS
        return timedelta(seconds=seconds * _GRACE_PERIOD_PER_LEASE_DURATION)

    async def _update_taints(self, node: NodeView, now: datetime) -> None:
        if operations := decision.taint_patch(node, may_evict=bool(self._ready_nodes), now=now):
            await self._patch_node(node, operations)

    async def _patch_node(self, node: NodeView, operations: tuple[Operation, ...], subresource: str = "") -> None:
        with suppress(NotFound):
            await self._client.patch(NODES, node.key, json_patch(*operations), subresource=subresource)

    async def _mark_pods_not_ready(self, node: NodeView) -> None:
        """Mark the pods of a silent node as not ready, since their kubelet cannot report."""
        if node.ready_status != "Unknown":
            return
        for pod in [candidate for candidate in self._informers.pods.by_index("node", node.key) if candidate.is_ready]:
            await self._set_pod_condition(pod, {"type": "Ready", "status": "False"})
            self._record_event("Pod", pod.name, pod.namespace, pod.uid, "NodeNotReady", "Node is not ready")

    async def _evict_by_taints(self, node: NodeView, now: datetime) -> datetime | None:
        """Evict pods that no longer tolerate the taints; return when the next eviction is due."""
        first_seen = self._taints_first_seen.setdefault(node.key, {})
        for key in {taint.key for taint in node.taints} - set(first_seen):
            first_seen[key] = now
        for key in set(first_seen) - {taint.key for taint in node.taints}:
            del first_seen[key]
        instants: list[datetime] = []
        for pod in list(self._informers.pods.by_index("node", node.key)):
            if pod.deleted_at is not None:
                continue
            evict_at = decision.eviction_time(pod.tolerations, node.taints, first_observed_at=first_seen, now=now)
            if evict_at is not None and evict_at <= now:
                await self._evict_pod(pod)
            elif evict_at is not None:
                instants.append(evict_at)
        return min(instants, default=None)

    async def _evict_pod(self, pod: PodView) -> None:
        self._record_event(
            "Pod", pod.name, pod.namespace, pod.uid, "TaintManagerEviction", f"Marking for deletion Pod {pod.key}"
        )
        message = "Taint manager: deleting due to NoExecute taint"
        with suppress(NotFound):
            await self._set_pod_condition(
                pod, decision.disruption_target_condition("DeletionByTaintManager", message, generation=pod.generation)
            )
            await self._client.delete(PODS, pod.name, namespace=pod.namespace, uid=pod.uid)

    async def _set_pod_condition(self, pod: PodView, condition: RawObject) -> None:
        conditions: list[RawObject] = pod.status.get("conditions", [])
        if not has_condition(conditions, condition):
            status = {"conditions": merge_conditions(conditions, [condition], now=self._clock.now())}
            await self._informers.patch_pod_status(self._client, pod, status)

    def _record_node_event(self, node: NodeView, reason: str, note: str) -> None:
        self._record_event("Node", node.key, "", node.uid, reason, f"Node {node.key} event: {note}")

    def _record_event(self, kind: str, name: str, namespace: str, uid: str, reason: str, note: str) -> None:
        if self._recorder:
            regarding = ObjectReference(api_version="v1", kind=kind, name=name, namespace=namespace, uid=uid)
            self._recorder.event(regarding, reason=reason, note=note, action=reason)


def _heartbeat_times(node: NodeView) -> tuple[datetime | None, ...]:
    return tuple(condition.last_heartbeat_time for condition in node.conditions if condition.type == "Ready")


def _relevant_fields(node: NodeView) -> object:
    """Return the fields of a node that a pass may depend on."""
    return node.unschedulable, node.taints, tuple((condition.type, condition.status) for condition in node.conditions)
