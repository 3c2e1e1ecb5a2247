"""The sandbox's kubelets: one component that stands in for the kubelets of all its machines.

It registers their nodes, renews their leases, posts their conditions, and leads the pods that are bound to them through
their lives (`pods`), with delays from a seeded distribution or as a pod's annotations say (`delays`). All machines
share one copy of the pods, and one queue of instants at which there is something to do: an idle machine costs its
heartbeats and nothing else, and these come as rarely as `heartbeat` says. A lease lasts four of them, as a kubelet's.

What happens to machines is told by methods: `kill` makes a kubelet fall silent (its containers go on), `revive` brings
it back, `reboot` silences the machine for a while and loses its containers, `ail` has it say that it is not ready, and
`remove` takes the machine away. That much is remembered here only. Everything else is in the cluster, so a successor of
this component goes on where it stopped. A node that somebody deletes is not registered again until `revive`.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from haulout.core.backoff import Backoff
from haulout.errors import AlreadyExists, Conflict, Invalid, NotFound
from haulout.kube.cache import revision
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder, EventType, ObjectReference
from haulout.kube.objects import RawObject, object_key
from haulout.kube.patches import json_patch, merge_patch
from haulout.kube.queue import Queue
from haulout.kube.resources import LEASES, NODES, PODS
from haulout.kube.timestamps import micro_time
from haulout_sandbox.nodes import machines
from haulout_sandbox.nodes.conditions import instant
from haulout_sandbox.nodes.delays import Delays
from haulout_sandbox.nodes.machines import Addresses, Machine
from haulout_sandbox.nodes.own import OwnWrites
from haulout_sandbox.nodes.pods import Host, Step, next_step
from haulout_sandbox.nodes.view import NodeView, PodView, View, Written

LEASE_NAMESPACE = "kube-node-lease"

_RETRY = Backoff(first=timedelta(milliseconds=500), limit=timedelta(seconds=10), jitter=0.2)
_SHORTLY = timedelta(seconds=1)
_LEASE_LASTS = 4  # heartbeats
_NODES, _LEASES = NODES.of(Written), LEASES.of(Written)  # the answers to heartbeats are not read
BEATS_FROM = datetime(2000, 1, 1, tzinfo=UTC)

Key = tuple[str, str]  # what (node, lease, pod, mirror) and which


@dataclass(slots=True)
class _Kubelet:
    """One machine, and how it is."""

    machine: Machine
    addresses: Addresses
    boot_id: str = ""
    booted_at: datetime | None = None
    is_up: bool = True
    back_at: datetime | None = None  # when a machine that reboots is up again
    problem: str = ""
    problem_ends_at: datetime | None = None
    may_register: bool = True  # not after somebody deleted the node
    has_begun: bool = False  # to renew its lease and to mirror its static pods
    told_at: datetime | None = None  # when it last posted its conditions
    ips: dict[str, str] = field(default_factory=dict)  # of its pods, by uid
    _host: Host | None = None

    @property
    def host(self) -> Host:
        """What its pods must know; the same until the machine is started again."""
        if self._host is None or self._host.booted_at is not self.booted_at:
            self._host = Host(ip=self.addresses.ip, booted_at=self.booted_at)
        return self._host

    def begin_anew(self) -> None:
        """Forget what a kubelet that starts does not know."""
        self.is_up, self.back_at, self.told_at = True, None, None
        self.may_register, self.has_begun = True, False


@dataclass(frozen=True, slots=True)
class _Static:
    """A pod that only its kubelet decides about."""

    node: str
    manifest: RawObject


class Kubelets:
    """The kubelets of all machines, while `run` runs; somebody must run `view`, which may be shared.

    Heartbeats are counted from `beats_from`: a successor keeps the beat, and a run that begins there repeats itself.
    """

    def __init__(
        self,
        client: Client,
        view: View,
        *,
        delays: Delays | None = None,
        heartbeat: timedelta = timedelta(seconds=10),
        status_every: timedelta = timedelta(minutes=5),
        beats_from: datetime = BEATS_FROM,
        events: EventRecorder | None = None,
        workers: int = 64,
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._view = view
        self._delays = delays or Delays()
        self._heartbeat = heartbeat
        self._status_every = status_every
        self._beats_from = beats_from
        self._events = events
        self._kubelets: dict[str, _Kubelet] = {}
        self._numbers = 0
        self._own = OwnWrites()
        self._statics: dict[str, _Static] = {}  # by the key of the pod that mirrors it
        self._queue: Queue[Key] = Queue(
            self._work, clock=client.clock, random=client.random, workers=workers, backoff=_RETRY, name="kubelet"
        )
        self._kinds: dict[str, Callable[[str], Awaitable[datetime | None]]] = {
            "node": self._look_at_node,
            "lease": self._renew,
            "pod": self._look_at_pod,
            "mirror": self._mirror,
        }

    async def run(self) -> None:
        """Be the kubelets until cancelled."""
        await self._view.wait_synced()
        ends = [self._view.nodes.subscribe(self._on_node), self._view.pods.subscribe(self._on_pod)]
        for name in self._kubelets:
            self._queue.add(("node", name))
        try:
            await self._queue.run()
        finally:
            for end in ends:
                end()

    # What happens to machines

    def add(self, machine: Machine, *, static_pods: Iterable[RawObject] = ()) -> None:
        """Put a machine into the cluster, with the static pods of these manifests."""
        if machine.name in self._kubelets:
            raise ValueError(f"there is already a machine {machine.name}: remove it first, or choose another name")
        self._numbers += 1
        self._kubelets[machine.name] = _Kubelet(machine, Addresses(self._numbers))
        for manifest in static_pods:
            meta = manifest["metadata"]
            key = object_key(f"{meta['name']}-{machine.name}", meta.get("namespace", "kube-system"))
            self._statics[key] = _Static(machine.name, manifest)
        self._queue.add(("node", machine.name))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all machines."""
        return tuple(self._kubelets)

    def kill(self, name: str) -> None:
        """Silence a kubelet: no heartbeats, nothing done about its pods, whose containers go on."""
        kubelet = self._kubelet(name)
        kubelet.is_up, kubelet.back_at = False, None

    def revive(self, name: str) -> None:
        """Start a kubelet again; it registers its node if that is gone."""
        self._kubelet(name).begin_anew()
        self._look_at_all(name)

    def reboot(self, name: str, duration: timedelta) -> None:
        """Reboot a machine, which is silent for `duration`; all its containers are lost, and started again."""
        kubelet = self._kubelet(name)
        kubelet.is_up, kubelet.back_at = False, self._clock.now() + duration
        self._queue.wake_at(("node", name), kubelet.back_at)

    def ail(self, name: str, problem: str) -> None:
        """Have a kubelet say that its node is not ready, because of `problem`; none if that is empty."""
        kubelet = self._kubelet(name)
        kubelet.problem, kubelet.problem_ends_at = problem, None
        self._queue.add(("node", name))

    async def remove(self, name: str) -> None:
        """Take a machine away for good, and its node and lease with it; its pods are left to the cluster."""
        self.discard(name)
        with suppress(NotFound):
            await self._client.delete(NODES, name)
        with suppress(NotFound):
            await self._client.delete(LEASES, name, namespace=LEASE_NAMESPACE)

    def discard(self, name: str) -> None:
        """Take a machine away for good; its node and lease are left to whoever finds them."""
        self._kubelet(name)
        del self._kubelets[name]
        self._statics = {key: static for key, static in self._statics.items() if static.node != name}
        for kind in ("node", "lease"):
            self._queue.forget((kind, name))

    def _kubelet(self, name: str) -> _Kubelet:
        if name not in self._kubelets:
            raise KeyError(f"there is no machine {name}")
        return self._kubelets[name]

    def _look_at_all(self, name: str) -> None:
        self._queue.add(("node", name))
        for pod in self._view.pods.by("node", name):
            self._queue.add(("pod", pod.key))

    # What happens in the cluster

    def _on_node(self, old: NodeView | None, new: NodeView | None) -> None:
        node = new or old
        kubelet = self._kubelets.get(node.key) if node else None
        if node is None or kubelet is None:
            return
        if new is None:
            kubelet.may_register, kubelet.has_begun = False, False
        elif old is None or not machines.is_told(new, problem=kubelet.problem, boot=kubelet.boot_id):
            self._queue.add(("node", node.key))

    def _on_pod(self, old: PodView | None, new: PodView | None) -> None:
        if new is not None:
            if new.node in self._kubelets and self._own.is_news(new):
                self._queue.add(("pod", new.key))
        elif old is not None and (kubelet := self._kubelets.get(old.node)):
            self._own.forget(old.key)
            kubelet.ips.pop(old.uid, None)
            self._queue.forget(("pod", old.key))
            if old.key in self._statics:
                self._queue.add(("mirror", old.key))

    async def _work(self, key: Key) -> datetime | None:
        kind, name = key
        return await self._kinds[kind](name)

    # Nodes

    async def _look_at_node(self, name: str) -> datetime | None:
        kubelet = self._kubelets.get(name)
        if kubelet is None:
            return None
        now = self._clock.now()
        if not kubelet.is_up:
            if kubelet.back_at is None or now < kubelet.back_at:
                return kubelet.back_at
            self._come_back(kubelet, now)
        if kubelet.problem_ends_at and now >= kubelet.problem_ends_at:
            kubelet.problem, kubelet.problem_ends_at = "", None
        if node := self._view.nodes.get(name):
            return await self._post(kubelet, node, now)
        return await self._register(kubelet, now) if kubelet.may_register else None

    def _come_back(self, kubelet: _Kubelet, now: datetime) -> None:
        """Start a machine again that was rebooted: everything that ran on it is lost."""
        name = kubelet.machine.name
        kubelet.begin_anew()
        # Whole seconds, as those in which containers say when they were started: those that start now are not lost.
        kubelet.boot_id, kubelet.booted_at = machines.boot_id(name, now.isoformat()), now.replace(microsecond=0)
        takes = self._delays.to_boot(name, kubelet.boot_id)
        if takes:
            kubelet.problem, kubelet.problem_ends_at = machines.NOT_YET_READY, now + takes
        self._look_at_all(name)
        self._tell_of_node(name, "Warning", "Rebooted", f"Node {name} has been rebooted, boot id: {kubelet.boot_id}")

    async def _register(self, kubelet: _Kubelet, now: datetime) -> datetime:
        machine = kubelet.machine
        boot = kubelet.boot_id or machines.boot_id(machine.name, now.isoformat())
        body = machines.node_object(
            machine,
            addresses=kubelet.addresses,
            boot=boot,
            booted_at=kubelet.booted_at or now,
            problem=kubelet.problem,
            now=now,
        )
        # Whether it is ours or was there before: the view will show it, and we go on from there.
        with suppress(AlreadyExists):
            await self._client.create(NODES, body)
            kubelet.boot_id, kubelet.told_at = boot, now
            self._tell_of_node(machine.name, "Normal", "Starting", "Starting kubelet.")
        return now + _SHORTLY

    async def _post(self, kubelet: _Kubelet, node: NodeView, now: datetime) -> datetime | None:
        """Post the conditions, if they changed or were not posted for long."""
        if not kubelet.has_begun:
            self._begin(kubelet, node)
        due = self._next_beat(node.key, kubelet.told_at, every=self._status_every) if kubelet.told_at else now
        if now < due and machines.is_told(node, problem=kubelet.problem, boot=kubelet.boot_id):
            return _earliest(due, kubelet.problem_ends_at)
        operations = machines.heartbeat(
            node, problem=kubelet.problem, boot=kubelet.boot_id, booted_at=kubelet.booted_at or now, now=now
        )
        try:
            await self._client.patch(_NODES, node.key, json_patch(*operations), subresource="status")
        except (Invalid, Conflict):  # its conditions are not where they were: the view will show it
            return now + _SHORTLY
        except NotFound:
            return None
        kubelet.told_at = now
        return _earliest(self._next_beat(node.key, now, every=self._status_every), kubelet.problem_ends_at)

    def _begin(self, kubelet: _Kubelet, node: NodeView) -> None:
        """Begin with a node that is registered, by us or by a predecessor."""
        kubelet.has_begun = kubelet.may_register = True
        kubelet.boot_id = kubelet.boot_id or node.boot_id or machines.boot_id(node.key, node.uid)
        if kubelet.booted_at is None and (text := node.annotations.get(machines.BOOTED_AT)):
            with suppress(ValueError):
                kubelet.booted_at = instant(text)
        self._queue.add(("lease", node.key))
        for key, static in self._statics.items():
            if static.node == node.key:
                self._queue.add(("mirror", key))

    async def _renew(self, name: str) -> datetime | None:
        """Renew the lease of a node, for as long as there is a node."""
        kubelet, node = self._kubelets.get(name), self._view.nodes.get(name)
        if kubelet is None or node is None or not kubelet.is_up:
            return None
        now = self._clock.now()
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": max(round(_LEASE_LASTS * self._heartbeat.total_seconds()), 1),
            "renewTime": micro_time(now),
        }
        try:
            await self._client.patch(_LEASES, name, merge_patch({"spec": spec}), namespace=LEASE_NAMESPACE)
        except NotFound:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid}
            body = {"metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}, "spec": spec}
            await self._client.create(LEASES, body, namespace=LEASE_NAMESPACE)
        return self._next_beat(name, now, every=self._heartbeat)

    def _next_beat(self, name: str, after: datetime, *, every: timedelta) -> datetime:
        """Return when a machine's heart beats next: at its own times, so that not all beat at once."""
        offset = every * self._delays.phase(name)
        beats = (after - self._beats_from - offset) // every + 1
        return self._beats_from + offset + beats * every

    # Pods

    async def _look_at_pod(self, key: str) -> datetime | None:
        while True:
            pod = self._view.pods.get(key)
            kubelet = self._kubelets.get(pod.node) if pod else None
            if pod is None or kubelet is None or not kubelet.is_up or self._own.awaits(pod):
                return None
            step = self._next_step(kubelet, pod)
            if step.delete:
                await self._delete(pod)
                return None
            if step.status is None:
                return step.wakes_at and _on_the_second(step.wakes_at)
            written = await self._write(pod, step)
            shown = self._view.pods.get(key)
            at = revision(shown.resource_version) if shown and shown.uid == pod.uid else None
            if written is None:
                if shown is pod:  # somebody else wrote or deleted it: the view will show it
                    return self._clock.now() + _SHORTLY
                continue
            is_due = not step.is_last or (step.wakes_at is not None and step.wakes_at <= self._clock.now())
            if at is not None and at < written:
                self._own.note(pod, written, is_due=is_due)
            elif at != written or is_due:
                continue
            return None if is_due else step.wakes_at and _on_the_second(step.wakes_at)

    async def _write(self, pod: PodView, step: Step) -> int | None:
        """Write a pod's status; return the revision at which it then is, or None if it is not as we know it."""
        self._own.begin(pod.key)
        try:
            written = await self._view.write(self._client, pod, step.status or {})
        except (NotFound, Conflict):
            return None
        finally:
            self._own.end(pod.key)
        self._tell_of_pod(pod, step)
        return written

    def _next_step(self, kubelet: _Kubelet, pod: PodView) -> Step:
        if pod.is_mirror and pod.deleted_at is not None:
            return Step(delete=True)  # its containers go on, and it is mirrored anew
        needs_ip = not pod.ip and not pod.host_network and not pod.ended and pod.deleted_at is None
        ip = self._ip_for(kubelet, pod) if needs_ip else pod.ip
        return next_step(pod, host=kubelet.host, ip=ip, delays=self._delays, now=self._clock.now())

    def _ip_for(self, kubelet: _Kubelet, pod: PodView) -> str:
        if pod.uid not in kubelet.ips:
            shown = (it.ip for it in self._view.pods.by("node", pod.node))
            kubelet.ips[pod.uid] = kubelet.addresses.pod_ip((*shown, *kubelet.ips.values()))
        return kubelet.ips[pod.uid]

    async def _delete(self, pod: PodView) -> None:
        # NotFound: it is gone already. Conflict: another pod has its name now.
        with suppress(NotFound, Conflict):
            await self._client.delete(PODS, pod.name, namespace=pod.namespace, uid=pod.uid, grace=timedelta())

    async def _mirror(self, key: str) -> datetime | None:
        """See to it that the cluster knows of a static pod."""
        static = self._statics.get(key)
        node = self._view.nodes.get(static.node) if static else None
        if static is None or node is None or not self._kubelets[node.key].is_up or self._view.pods.get(key):
            return None
        body = machines.mirror_pod(static.manifest, node=node)
        with suppress(AlreadyExists):
            await self._client.create(PODS, body, namespace=body["metadata"]["namespace"])
        return None

    # Events

    def _tell_of_pod(self, pod: PodView, step: Step) -> None:
        if self._events and step.reason:
            kind: EventType = "Warning" if step.reason == "BackOff" else "Normal"
            regarding = ObjectReference(
                api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid
            )
            self._events.record(regarding, reason=step.reason, note=step.note, action=step.reason, type=kind)

    def _tell_of_node(self, name: str, kind: EventType, reason: str, note: str) -> None:
        if self._events:  # kubelets know their node by its name alone, also where a uid is wanted
            regarding = ObjectReference(api_version="v1", kind="Node", name=name, uid=name)
            self._events.record(regarding, reason=reason, note=note, action=reason, type=kind)


def _on_the_second(at: datetime) -> datetime:
    """Return the next whole second: kubelets look at what their pods do once a second."""
    return at if not at.microsecond else at.replace(microsecond=0) + _SHORTLY


def _earliest(one: datetime, other: datetime | None) -> datetime:
    return one if other is None else min(one, other)
