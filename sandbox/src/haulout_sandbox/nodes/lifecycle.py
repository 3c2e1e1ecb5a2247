"""Looks after nodes that fall silent or are not ready, and makes pods leave them.

- A node whose kubelet renewed neither its lease nor its status for the grace period is no longer known to be anything:
  its conditions become Unknown, and its pods not ready. The grace is that of kube-controller-manager, 50 s, where
  leases last the usual 40 s, and in proportion where heartbeats are rarer or more frequent.
- Conditions become taints, and cease to be. Taints with NoExecute make pods leave, after the time they tolerate. When
  no node at all is ready, that is more likely our own blindness: nobody is made to leave then.

Nothing is polled: each node has one instant at which it is looked at next. A heartbeat does not move that instant: when
it has come, the heartbeats since are looked at, and it is set anew. Zones get no treatment of their own, and nodes are
not tainted at a limited rate.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta

from haulout.core.backoff import Backoff
from haulout.errors import Conflict, Invalid, NotFound
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder, ObjectReference
from haulout.kube.follow import Selection
from haulout.kube.objects import Lease, RawObject
from haulout.kube.patches import Operation, json_patch
from haulout.kube.queue import Queue
from haulout.kube.resources import LEASES, NODES, PODS
from haulout_sandbox.nodes import health
from haulout_sandbox.nodes.conditions import merged, says
from haulout_sandbox.nodes.kubelet import LEASE_NAMESPACE
from haulout_sandbox.nodes.view import NodeView, PodView, View

STARTUP_GRACE = timedelta(seconds=60)

_RETRY = Backoff(first=timedelta(milliseconds=500), limit=timedelta(seconds=10), jitter=0.2)
_SHORTLY = timedelta(seconds=1)
_USUAL_LEASE_SECONDS = 40
_GRACE_PER_LEASE = 1.25


class NodeLifecycle:
    """Looks after nodes while `run` runs; somebody must run `view`, which may be shared."""

    def __init__(self, client: Client, view: View, *, events: EventRecorder | None = None, workers: int = 16) -> None:
        self._client = client
        self._clock = client.clock
        self._view = view
        self._events = events
        self._leases: Cache[Lease] = Cache(client, Selection(LEASES, namespace=LEASE_NAMESPACE), row=as_is)
        self._heard: dict[str, datetime] = {}  # when a kubelet last gave a sign of life, by our own clock
        self._taints_seen: dict[str, dict[str, datetime]] = {}  # by node and key: when we first saw it
        self._ready: set[str] = set()
        self._queue: Queue[str] = Queue(
            self._look, clock=client.clock, random=client.random, workers=workers, backoff=_RETRY, name="node lifecycle"
        )

    async def run(self) -> None:
        """Look after nodes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._leases.run())
            await self._leases.wait_synced()
            await self._view.wait_synced()
            ends = [
                self._leases.subscribe(self._on_lease),
                self._view.nodes.subscribe(self._on_node),
                self._view.pods.subscribe(self._on_pod),
            ]
            try:
                await self._queue.run()
            finally:
                for end in ends:
                    end()

    # What happens in the cluster

    def _on_lease(self, old: Lease | None, new: Lease | None) -> None:
        if new is None:
            return
        if old is None or old.spec.renew_time != new.spec.renew_time:
            self._heard[new.name] = self._clock.now()
        if old is None or old.spec.lease_duration_seconds != new.spec.lease_duration_seconds:
            self._queue.add(new.name)  # the grace is another

    def _on_node(self, old: NodeView | None, new: NodeView | None) -> None:
        node = new or old
        if node is None:
            return
        if old is None:
            self._record_node(node, "RegisteredNode", f"Registered Node {node.key} in Controller")
        if new is None:
            self._record_node(node, "RemovingNode", f"Removing Node {node.key} from Controller")
            self._heard.pop(node.key, None)
            self._taints_seen.pop(node.key, None)
        elif old is None or _heartbeats(old) != _heartbeats(new):
            self._heard[node.key] = self._clock.now()
        some_were_ready = bool(self._ready)
        if new is not None and new.ready == "True":
            self._ready.add(node.key)
        else:
            self._ready.discard(node.key)
        if bool(self._ready) != some_were_ready:  # whether pods are made to leave depends on it, everywhere
            self._look_at(it.key for it in self._view.nodes.all())
        if old is None or new is None or _state(old) != _state(new):
            self._queue.add(node.key)

    def _on_pod(self, _: PodView | None, new: PodView | None) -> None:
        if new is None or not new.node:
            return
        node = self._view.nodes.get(new.node)
        if node is None or (node.key in self._ready and not node.taints):
            return
        if node.key not in self._ready or any(it.effect == health.NO_EXECUTE for it in node.taints):
            self._queue.add(new.node)

    def _look_at(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._queue.add(name)

    # One look at one node

    async def _look(self, name: str) -> datetime | None:
        node = self._view.nodes.get(name)
        if node is None:
            return None
        now = self._clock.now()
        try:
            overdue_at = await self._note_silence(node, now)
            await self._taint(node, now)
            await self._mark_pods(node)
            leaves_at = await self._evict(node, now)
        except (Conflict, Invalid, NotFound):  # somebody else wrote or deleted it: the view will show it
            return now + _SHORTLY
        return min((it for it in (overdue_at, leaves_at) if it), default=None)

    async def _note_silence(self, node: NodeView, now: datetime) -> datetime | None:
        """Write down that a kubelet fell silent, if it did; return when it would have."""
        operations = health.silenced(node, now=now)
        if not operations:
            return None
        overdue_at = self._heard.setdefault(node.key, now) + self._grace(node)
        if now <= overdue_at:
            return overdue_at + timedelta(microseconds=1)
        await self._patch(node, operations, subresource="status")
        self._record("Node", node.key, "", node.uid, "NodeNotReady", f"Node {node.key} status is now: NodeNotReady")
        return None

    def _grace(self, node: NodeView) -> timedelta:
        if not node.conditions:
            return STARTUP_GRACE
        lease = self._leases.get(f"{LEASE_NAMESPACE}/{node.key}")
        seconds = (lease.spec.lease_duration_seconds if lease else None) or _USUAL_LEASE_SECONDS
        return timedelta(seconds=seconds * _GRACE_PER_LEASE)

    async def _taint(self, node: NodeView, now: datetime) -> None:
        if operations := health.tainted(node, evicts=bool(self._ready), now=now):
            await self._patch(node, operations)

    async def _patch(self, node: NodeView, operations: tuple[Operation, ...], subresource: str = "") -> None:
        with suppress(NotFound):
            await self._client.patch(NODES, node.key, json_patch(*operations), subresource=subresource)

    async def _mark_pods(self, node: NodeView) -> None:
        """Write down that pods are not ready on a node that nobody hears of: their kubelet cannot contradict."""
        if node.ready != "Unknown":
            return
        for pod in [it for it in self._view.pods.by("node", node.key) if it.is_ready]:
            await self._mark(pod, {"type": "Ready", "status": "False"})
            self._record("Pod", pod.name, pod.namespace, pod.uid, "NodeNotReady", "Node is not ready")

    async def _evict(self, node: NodeView, now: datetime) -> datetime | None:
        """Make pods leave that do not tolerate the taints any longer; return when the next must."""
        seen = self._taints_seen.setdefault(node.key, {})
        for key in {it.key for it in node.taints} - set(seen):
            seen[key] = now
        for key in set(seen) - {it.key for it in node.taints}:
            del seen[key]
        instants: list[datetime] = []
        for pod in list(self._view.pods.by("node", node.key)):
            if pod.deleted_at is not None:
                continue
            at = health.leaves_at(pod.tolerations, node.taints, seen_at=seen, now=now)
            if at is not None and at <= now:
                await self._send_away(pod)
            elif at is not None:
                instants.append(at)
        return min(instants, default=None)

    async def _send_away(self, pod: PodView) -> None:
        self._record(
            "Pod", pod.name, pod.namespace, pod.uid, "TaintManagerEviction", f"Marking for deletion Pod {pod.key}"
        )
        message = "Taint manager: deleting due to NoExecute taint"
        with suppress(NotFound):
            await self._mark(pod, health.disrupted("DeletionByTaintManager", message, generation=pod.generation))
            await self._client.delete(PODS, pod.name, namespace=pod.namespace, uid=pod.uid)

    async def _mark(self, pod: PodView, condition: RawObject) -> None:
        conditions: list[RawObject] = pod.status.get("conditions", [])
        if not says(conditions, condition):
            change = {"conditions": merged(conditions, [condition], now=self._clock.now())}
            await self._view.write(self._client, pod, change)

    def _record_node(self, node: NodeView, reason: str, note: str) -> None:
        self._record("Node", node.key, "", node.uid, reason, f"Node {node.key} event: {note}")

    def _record(self, kind: str, name: str, namespace: str, uid: str, reason: str, note: str) -> None:
        if self._events:
            regarding = ObjectReference(api_version="v1", kind=kind, name=name, namespace=namespace, uid=uid)
            self._events.record(regarding, reason=reason, note=note, action=reason)


def _heartbeats(node: NodeView) -> tuple[datetime | None, ...]:
    return tuple(it.last_heartbeat_time for it in node.conditions if it.type == "Ready")


def _state(node: NodeView) -> object:
    """Return all of a node that a look at it may rest on."""
    return node.unschedulable, node.taints, tuple((it.type, it.status) for it in node.conditions)
