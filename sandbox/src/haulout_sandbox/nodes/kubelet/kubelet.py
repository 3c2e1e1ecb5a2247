"""The sandbox's kubelets: one component that simulates the kubelets of all machines.

It registers nodes, renews their leases, posts their conditions, and runs the pods that are bound to them
(`pod_lifecycle`), with delays from a seeded distribution or from a pod's annotations (`delays`). All machines share one
informer of pods and one delaying queue: an idle machine costs only its heartbeats, which are as rare as `heartbeat`
says. A lease lasts four heartbeats, like a kubelet's.

Methods simulate events of machines: `kill` stops a kubelet (its containers continue), `revive` starts it again,
`reboot` stops the machine for a while and loses its containers, `set_not_ready` makes it report NotReady, and `remove`
removes the machine. Only this much is kept in memory. Everything else is in the cluster, so a restarted component
continues. A node that a client deletes is not registered again until `revive`.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from haulout.api.resources import LEASES, NODES, PODS
from haulout.core.backoff import Backoff
from haulout.core.timestamps import micro_time
from haulout.errors import AlreadyExists, Conflict, Invalid, NotFound
from haulout.kube.client import Client
from haulout.kube.informer import revision
from haulout.kube.patches import json_patch, merge_patch
from haulout.kube.recorder import EventRecorder, EventType, ObjectReference
from haulout.kube.workqueue import WorkQueue
from haulout_sandbox.nodes.conditions import parse_time
from haulout_sandbox.nodes.informers import NodeInformers, NodeView, PodView, WrittenObject
from haulout_sandbox.nodes.kubelet import node_status
from haulout_sandbox.nodes.kubelet.delays import Delays
from haulout_sandbox.nodes.kubelet.node_status import Machine, MachineAddresses
from haulout_sandbox.nodes.kubelet.own_writes import OwnWrites
from haulout_sandbox.nodes.kubelet.pod_lifecycle import HostStatus, PodDecision, decide

LEASE_NAMESPACE = "kube-node-lease"

_BACKOFF = Backoff(first=timedelta(milliseconds=500), limit=timedelta(seconds=10), jitter=0.2)
_RETRY_DELAY = timedelta(seconds=1)
_LEASE_DURATION_PERIODS = 4  # heartbeats
_NODES, _LEASES = (
    NODES.with_model(WrittenObject),
    LEASES.with_model(WrittenObject),
)  # the responses to heartbeats are not read
HEARTBEAT_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

Key = tuple[str, str]  # what (node, lease, pod), and the key of that object


@dataclass(slots=True)
class _Kubelet:
    machine: Machine
    addresses: MachineAddresses
    boot_id: str = ""
    booted_at: datetime | None = None
    is_up: bool = True
    restarts_at: datetime | None = None  # when a rebooting machine is up again
    problem: str = ""
    problem_ends_at: datetime | None = None
    may_register: bool = True  # False after a client deleted the node
    is_started: bool = False  # renews its lease
    status_posted_at: datetime | None = None  # when it last posted its conditions
    pod_ips: dict[str, str] = field(default_factory=dict)  # of its pods, by uid
    _host: HostStatus | None = None

    @property
    def host(self) -> HostStatus:
        """Return what its pods need to know of the host; constant until the next boot."""
        if self._host is None or self._host.booted_at is not self.booted_at:
            self._host = HostStatus(ip=self.addresses.ip, booted_at=self.booted_at)
        return self._host

    def reset(self) -> None:
        """Clear what a kubelet loses at a restart."""
        self.is_up, self.restarts_at, self.status_posted_at = True, None, None
        self.may_register, self.is_started = True, False


class Kubelets:
    """The kubelets of all machines, active while `run` runs. The caller runs `informers`, which may be shared.

    Heartbeats are counted from `heartbeat_epoch`: a restarted component keeps their phase, and a run that begins there
    is reproducible.
    """

    def __init__(
        self,
        client: Client,
        informers: NodeInformers,
        *,
        delays: Delays | None = None,
        heartbeat: timedelta = timedelta(seconds=10),
        status_interval: timedelta = timedelta(minutes=5),
        heartbeat_epoch: datetime = HEARTBEAT_EPOCH,
        recorder: EventRecorder | None = None,
        workers: int = 64,
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._informers = informers
        self._delays = delays or Delays()
        self._heartbeat = heartbeat
        self._status_interval = status_interval
        self._heartbeat_epoch = heartbeat_epoch
        self._recorder = recorder
        self._kubelets: dict[str, _Kubelet] = {}
        self._last_number = 0
        self._own_writes = OwnWrites()
        self._queue: WorkQueue[Key] = WorkQueue(
            self._reconcile, clock=client.clock, random=client.random, workers=workers, backoff=_BACKOFF, name="kubelet"
        )
        self._handlers: dict[str, Callable[[str], Awaitable[datetime | None]]] = {
            "node": self._reconcile_node,
            "lease": self._renew_lease,
            "pod": self._reconcile_pod,
        }

    async def run(self) -> None:
        await self._informers.wait_synced()
        unsubscribes = [
            self._informers.nodes.subscribe(self._on_node_change),
            self._informers.pods.subscribe(self._on_pod_change),
        ]
        for name in self._kubelets:
            self._queue.add(("node", name))
        try:
            await self._queue.run()
        finally:
            for unsubscribe in unsubscribes:
                unsubscribe()

    # Events of machines

    def add(self, machine: Machine) -> None:
        if machine.name in self._kubelets:
            raise ValueError(f"there is already a machine {machine.name}: remove it first, or choose another name")
        self._last_number += 1
        self._kubelets[machine.name] = _Kubelet(machine, MachineAddresses(self._last_number))
        self._queue.add(("node", machine.name))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._kubelets)

    def kill(self, name: str) -> None:
        """Stop a kubelet: no heartbeats and no pod updates; its containers continue."""
        kubelet = self._kubelet(name)
        kubelet.is_up, kubelet.restarts_at = False, None

    def revive(self, name: str) -> None:
        """Start a kubelet again; it registers its node if that was deleted."""
        self._kubelet(name).reset()
        self._enqueue_node_and_pods(name)

    def reboot(self, name: str, duration: timedelta) -> None:
        """Reboot a machine: it is silent for `duration`, and its containers are lost and started again."""
        kubelet = self._kubelet(name)
        kubelet.is_up, kubelet.restarts_at = False, self._clock.now() + duration
        self._queue.add_at(("node", name), kubelet.restarts_at)

    def set_not_ready(self, name: str, problem: str) -> None:
        """Make a kubelet report its node as not ready because of `problem`; an empty problem ends that."""
        kubelet = self._kubelet(name)
        kubelet.problem, kubelet.problem_ends_at = problem, None
        self._queue.add(("node", name))

    async def remove(self, name: str) -> None:
        """Remove a machine for good, with its node and lease; its pods are left to the cluster."""
        self.remove_without_node(name)
        with suppress(NotFound):
            await self._client.delete(NODES, name)
        with suppress(NotFound):
            await self._client.delete(LEASES, name, namespace=LEASE_NAMESPACE)

    def remove_without_node(self, name: str) -> None:
        """Remove a machine for good, but leave its node and lease."""
        self._kubelet(name)
        del self._kubelets[name]
        for kind in ("node", "lease"):
            self._queue.forget((kind, name))

    def _kubelet(self, name: str) -> _Kubelet:
        if name not in self._kubelets:
            raise KeyError(f"there is no machine {name}")
        return self._kubelets[name]

    def _enqueue_node_and_pods(self, name: str) -> None:
        self._queue.add(("node", name))
        for pod in self._informers.pods.by_index("node", name):
            self._queue.add(("pod", pod.key))

    # Informer events

    def _on_node_change(self, old: NodeView | None, new: NodeView | None) -> None:
        node = new or old
        kubelet = self._kubelets.get(node.key) if node else None
        if node is None or kubelet is None:
            return
        if new is None:
            kubelet.may_register, kubelet.is_started = False, False
        elif old is None or not node_status.is_reported(new, problem=kubelet.problem, boot=kubelet.boot_id):
            self._queue.add(("node", node.key))

    def _on_pod_change(self, old: PodView | None, new: PodView | None) -> None:
        if new is not None:
            if new.node in self._kubelets and self._own_writes.must_sync(new):
                self._queue.add(("pod", new.key))
        elif old is not None and (kubelet := self._kubelets.get(old.node)):
            self._own_writes.forget(old.key)
            kubelet.pod_ips.pop(old.uid, None)
            self._queue.forget(("pod", old.key))

    async def _reconcile(self, key: Key) -> datetime | None:
        kind, name = key
        return await self._handlers[kind](name)

    # Nodes

    async def _reconcile_node(self, name: str) -> datetime | None:
        kubelet = self._kubelets.get(name)
        if kubelet is None:
            return None
        now = self._clock.now()
        if not kubelet.is_up:
            if kubelet.restarts_at is None or now < kubelet.restarts_at:
                return kubelet.restarts_at
            self._finish_reboot(kubelet, now)
        if kubelet.problem_ends_at and now >= kubelet.problem_ends_at:
            kubelet.problem, kubelet.problem_ends_at = "", None
        if node := self._informers.nodes.get(name):
            return await self._post_status(kubelet, node, now)
        return await self._register_node(kubelet, now) if kubelet.may_register else None

    def _finish_reboot(self, kubelet: _Kubelet, now: datetime) -> None:
        """Complete a reboot: everything that ran on the machine is lost."""
        name = kubelet.machine.name
        kubelet.reset()
        # Whole seconds, as the start times of containers: containers that start now must not count as lost.
        kubelet.boot_id, kubelet.booted_at = node_status.new_boot_id(name, now.isoformat()), now.replace(microsecond=0)
        boot_delay = self._delays.boot_delay(name, kubelet.boot_id)
        if boot_delay:
            kubelet.problem, kubelet.problem_ends_at = node_status.STARTING_PROBLEM, now + boot_delay
        self._enqueue_node_and_pods(name)
        self._record_node_event(
            name, "Warning", "Rebooted", f"Node {name} has been rebooted, boot id: {kubelet.boot_id}"
        )

    async def _register_node(self, kubelet: _Kubelet, now: datetime) -> datetime:
        machine = kubelet.machine
        boot = kubelet.boot_id or node_status.new_boot_id(machine.name, now.isoformat())
        body = node_status.node_object(
            machine,
            addresses=kubelet.addresses,
            boot=boot,
            booted_at=kubelet.booted_at or now,
            problem=kubelet.problem,
            now=now,
        )
        # Created now or already there: the informer shows it, which continues the registration.
        with suppress(AlreadyExists):
            await self._client.create(NODES, body)
            kubelet.boot_id, kubelet.status_posted_at = boot, now
            self._record_node_event(machine.name, "Normal", "Starting", "Starting kubelet.")
        return now + _RETRY_DELAY

    async def _post_status(self, kubelet: _Kubelet, node: NodeView, now: datetime) -> datetime | None:
        """Post the conditions if they changed or were not posted for long."""
        if not kubelet.is_started:
            self._start_with_node(kubelet, node)
        due_at = (
            self._next_heartbeat(node.key, kubelet.status_posted_at, interval=self._status_interval)
            if kubelet.status_posted_at
            else now
        )
        if now < due_at and node_status.is_reported(node, problem=kubelet.problem, boot=kubelet.boot_id):
            return _earliest(due_at, kubelet.problem_ends_at)
        operations = node_status.heartbeat_patch(
            node, problem=kubelet.problem, boot=kubelet.boot_id, booted_at=kubelet.booted_at or now, now=now
        )
        try:
            await self._client.patch(_NODES, node.key, json_patch(*operations), subresource="status")
        except (Invalid, Conflict):  # the conditions have moved: the informer will show them
            return now + _RETRY_DELAY
        except NotFound:
            return None
        kubelet.status_posted_at = now
        return _earliest(self._next_heartbeat(node.key, now, interval=self._status_interval), kubelet.problem_ends_at)

    def _start_with_node(self, kubelet: _Kubelet, node: NodeView) -> None:
        """Start with a registered node, whoever registered it."""
        kubelet.is_started = kubelet.may_register = True
        kubelet.boot_id = kubelet.boot_id or node.boot_id or node_status.new_boot_id(node.key, node.uid)
        if kubelet.booted_at is None and (text := node.annotations.get(node_status.BOOTED_AT_ANNOTATION)):
            with suppress(ValueError):
                kubelet.booted_at = parse_time(text)
        self._queue.add(("lease", node.key))

    async def _renew_lease(self, name: str) -> datetime | None:
        """Renew the lease of a node while the node exists."""
        kubelet, node = self._kubelets.get(name), self._informers.nodes.get(name)
        if kubelet is None or node is None or not kubelet.is_up:
            return None
        now = self._clock.now()
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": max(round(_LEASE_DURATION_PERIODS * self._heartbeat.total_seconds()), 1),
            "renewTime": micro_time(now),
        }
        try:
            await self._client.patch(_LEASES, name, merge_patch({"spec": spec}), namespace=LEASE_NAMESPACE)
        except NotFound:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid}
            body = {"metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}, "spec": spec}
            await self._client.create(LEASES, body, namespace=LEASE_NAMESPACE)
        return self._next_heartbeat(name, now, interval=self._heartbeat)

    def _next_heartbeat(self, name: str, after: datetime, *, interval: timedelta) -> datetime:
        """Return a machine's next heartbeat; each machine has its own phase, to spread the load."""
        offset = interval * self._delays.heartbeat_phase(name)
        periods = (after - self._heartbeat_epoch - offset) // interval + 1
        return self._heartbeat_epoch + offset + periods * interval

    # Pods

    async def _reconcile_pod(self, key: str) -> datetime | None:
        while True:
            pod = self._informers.pods.get(key)
            kubelet = self._kubelets.get(pod.node) if pod else None
            if pod is None or kubelet is None or not kubelet.is_up or self._own_writes.has_unobserved_write(pod):
                return None
            decision = self._decide(kubelet, pod)
            if decision.delete:
                await self._delete_pod(pod)
                return None
            if decision.status is None:
                return decision.requeue_at and _round_up_to_second(decision.requeue_at)
            written_revision = await self._write_status(pod, decision)
            cached = self._informers.pods.get(key)
            cached_revision = revision(cached.resource_version) if cached and cached.uid == pod.uid else None
            if written_revision is None:
                if cached is pod:  # another client wrote or deleted it: the informer will show that
                    return self._clock.now() + _RETRY_DELAY
                continue
            must_sync_again = not decision.is_final or (
                decision.requeue_at is not None and decision.requeue_at <= self._clock.now()
            )
            if cached_revision is not None and cached_revision < written_revision:
                self._own_writes.record(pod, written_revision, must_sync_again=must_sync_again)
            elif cached_revision != written_revision or must_sync_again:
                continue
            return None if must_sync_again else decision.requeue_at and _round_up_to_second(decision.requeue_at)

    async def _write_status(self, pod: PodView, decision: PodDecision) -> int | None:
        """Write a pod's status; return the revision of the write, or None if the pod has changed."""
        self._own_writes.begin(pod.key)
        try:
            written_revision = await self._informers.patch_pod_status(self._client, pod, decision.status or {})
        except (NotFound, Conflict):
            return None
        finally:
            self._own_writes.end(pod.key)
        self._record_pod_event(pod, decision)
        return written_revision

    def _decide(self, kubelet: _Kubelet, pod: PodView) -> PodDecision:
        if pod.is_mirror and pod.deleted_at is not None:
            return PodDecision(delete=True)  # the containers of a static pod continue
        needs_ip = not pod.ip and not pod.host_network and not pod.is_finished and pod.deleted_at is None
        ip = self._ip_for(kubelet, pod) if needs_ip else pod.ip
        return decide(pod, host=kubelet.host, ip=ip, delays=self._delays, now=self._clock.now())

    def _ip_for(self, kubelet: _Kubelet, pod: PodView) -> str:
        if pod.uid not in kubelet.pod_ips:
            cached_ips = (pod_view.ip for pod_view in self._informers.pods.by_index("node", pod.node))
            kubelet.pod_ips[pod.uid] = kubelet.addresses.pod_ip((*cached_ips, *kubelet.pod_ips.values()))
        return kubelet.pod_ips[pod.uid]

    async def _delete_pod(self, pod: PodView) -> None:
        # NotFound: already deleted. Conflict: another pod has this name now.
        with suppress(NotFound, Conflict):
            await self._client.delete(PODS, pod.name, namespace=pod.namespace, uid=pod.uid, grace=timedelta())

    # Events

    def _record_pod_event(self, pod: PodView, decision: PodDecision) -> None:
        if self._recorder and decision.reason:
            event_type: EventType = "Warning" if decision.reason == "BackOff" else "Normal"
            regarding = ObjectReference(
                api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid
            )
            self._recorder.event(
                regarding, reason=decision.reason, note=decision.note, action=decision.reason, type=event_type
            )

    def _record_node_event(self, name: str, event_type: EventType, reason: str, note: str) -> None:
        if self._recorder:  # kubelets use the node's name as its uid in events
            regarding = ObjectReference(api_version="v1", kind="Node", name=name, uid=name)
            self._recorder.event(regarding, reason=reason, note=note, action=reason, type=event_type)


def _round_up_to_second(instant: datetime) -> datetime:
    """Return the next whole second: kubelets check their pods once per second."""
    return instant if not instant.microsecond else instant.replace(microsecond=0) + _RETRY_DELAY


def _earliest(a: datetime, b: datetime | None) -> datetime:
    return a if b is None else min(a, b)
