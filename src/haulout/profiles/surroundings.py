"""What there is beside nodes, for checks to look at: followed as far as the configuration needs it, and no further.

    surroundings = Surroundings(controller, client, outside=Network(client=client))
    await surroundings.prepare(configuration)       # what it needs is read before it counts
    controller.use(configuration)

A change of something that a check may look at is told to the controller by its topic, which wakes the nodes that wait
for it. What has not been read yet, or cannot be read, is no empty list: whoever looks at it gets `NotKnown`, and is
woken when it is known.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from haulout.drain import workloads
from haulout.drain.answers import DAEMON_SETS
from haulout.drain.workloads import KINDS, Find, Reference, Scaled, UnreadableRecord
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.objects import Lease, Node, object_key
from haulout.kube.resources import LEASES, PODS
from haulout.kube.sources import NotKnown, Sources
from haulout.profiles import topics
from haulout.profiles.answers import Answers
from haulout.profiles.fitting import Room, room_beside
from haulout.profiles.mailroom import Mailroom
from haulout.profiles.model import Configuration
from haulout.profiles.performing import HYPERVISORS
from haulout.profiles.plugin import Need, NodeSight, Outside, Sights
from haulout.profiles.podrows import DaemonSetFields, PodFields, PodRow, RawRow, daemon_set_row, pod_rows, raw_row
from haulout.profiles.scenery import Aside, Scenery
from haulout.profiles.sights import NodeSights
from haulout.profiles.steps import Sending
from haulout.profiles.telling import Teller
from haulout.profiles.throttled import Throttled
from haulout.profiles.workloads import Interest

BY_NODE = "node"
_CAPACITY_TOLD_EVERY = timedelta(seconds=5)
_KNOWN_WITHIN = timedelta(seconds=10)


class Woken(Protocol):
    """Who is told: the controller."""

    teller: Teller

    def wake(self, node: str) -> None:
        """Look at a node."""
        ...

    def fails_on(self, node: str) -> None:
        """Hear that what a node asked the outside failed once more, for the same reason."""
        ...

    def note_topics(self, topics: frozenset[str]) -> None:
        """Look at the nodes that wait for one of these topics."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """Something to follow."""

    name: str
    namespace: str = ""

    def __str__(self) -> str:
        """Return it for people: `leases in kube-system`."""
        return f"{self.name} in {self.namespace}" if self.namespace else self.name


_PODS = Source("pods")
_DAEMON_SETS = Source("daemonsets")
_HYPERVISORS = Source(str(HYPERVISORS))
_NOTICES = Source(str(MAINTENANCE_NOTICES))
_WORKLOADS = {kind: Source(str(resource)) for kind, resource in KINDS.items()}


class Surroundings:
    """The surroundings of nodes; `run` may be called once."""

    def __init__(self, controller: Woken, client: Client, *, outside: Outside) -> None:
        self._controller = controller
        self._client = client
        self._nodes: NodeSights | None = None
        self._configuration: Configuration | None = None
        self._refused: dict[str, None] = {}  # nodes whose checks looked at what is not known yet
        self._rooms: dict[str, tuple[object, Room]] = {}
        self._sources: Sources[Source] = Sources(client, make=self._make, settled=lambda _: self._wake_refused())
        self._tell_capacity = Throttled(
            partial(controller.note_topics, frozenset({topics.CAPACITY})),
            clock=client.clock,
            every=_CAPACITY_TOLD_EVERY,
        )
        self._interest = Interest(controller.note_topics)
        self._mailroom = Mailroom(client, outside, teller=controller.teller)
        self.answers = Answers(
            outside,
            clock=client.clock,
            random=client.random,
            wake=controller.wake,
            fails_on=controller.fails_on,
            exists=self._exists,
            meters=client.meters,
        )

    # As the controller asks

    async def run(self) -> None:
        """Follow what is needed, ask what is asked, and send what is posted; until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for run in (self._sources.run, self.answers.run, self._mailroom.run):
                    group.create_task(run())
        finally:
            self._tell_capacity.stop()

    async def prepare(self, configuration: Configuration) -> None:
        """Read what a configuration needs, so that it is known when it is used; what takes too long is told."""
        self._sources.want(dict.fromkeys((*self._sources.wanted(), *_needed(configuration))))
        await self._sources.wait_settled(_KNOWN_WITHIN)

    def use(self, configuration: Configuration) -> None:
        """Follow what this configuration needs, and nothing else."""
        self._configuration = configuration
        self._sources.want(dict.fromkeys(_needed(configuration)))
        self.answers.allow_age(configuration.requeue)
        if Need.WORKLOADS not in configuration.needs:
            self._interest.clear()
        self._rooms.clear()

    def asks_every(self, node: str) -> timedelta | None:
        """Return how often the outside is asked for a node; None: it is not."""
        return self.answers.asked_every(node)

    def sights(self, node: str, nodes: NodeSights) -> Sights:
        """Return what checks of a node see; what it asked the outside before does not count any more."""
        self._nodes = nodes
        self.answers.begin(node)
        self._refused.pop(node, None)
        self._note_interest(node, nodes.find(node))
        return Scenery(node, nodes, self)

    def aside(self, nodes: NodeSights) -> Sights:
        """Return what checks see when somebody only wants to know what they would say: nobody is asked or woken."""
        return Aside("", nodes, self)

    def post(self, sending: Sending, node: NodeSight) -> None:
        """Send a notification; it is written down that it was sent."""
        if self._configuration is not None:
            self._mailroom.post(sending, node, self._configuration)

    async def settle(self, within: timedelta) -> None:
        """Return when what was posted is sent, or after `within`."""
        await self._mailroom.settle(within)

    # As what checks see asks

    def cache(self, source: Source, *, asked_by: str) -> Cache[Any] | None:
        """Return what is known of something; None if the cluster has no such thing. Raises `NotKnown`.

        A node that asked is woken when it is known.
        """
        try:
            return self._sources.get(source)
        except NotKnown:
            if asked_by:
                self._refused[asked_by] = None
            raise

    def pods(self, node: str, *, asked_by: str) -> Collection[PodRow]:
        """Return the pods on a node."""
        cache = self.cache(_PODS, asked_by=asked_by)
        return () if cache is None else cache.by(BY_NODE, node)

    def daemon_sets(self, *, asked_by: str) -> Collection[RawRow]:
        """Return all DaemonSets."""
        cache = self.cache(_DAEMON_SETS, asked_by=asked_by)
        return () if cache is None else cache.all()

    def hypervisor(self, name: str, *, asked_by: str) -> RawRow | None:
        """Return a hypervisor."""
        cache = self.cache(_HYPERVISORS, asked_by=asked_by)
        return None if cache is None else cache.get(name)

    def notices(self, node: str, *, asked_by: str) -> Collection[MaintenanceNotice]:
        """Return what is announced for a node."""
        cache = self.cache(_NOTICES, asked_by=asked_by)
        return () if cache is None else cache.by(BY_NODE, node)

    def lease(self, namespace: str, name: str, *, asked_by: str) -> Lease | None:
        """Return a lease."""
        cache = self.cache(_leases(namespace), asked_by=asked_by)
        return None if cache is None else cache.get(object_key(name, namespace))

    def room(self, sight: NodeSight, *, asked_by: str) -> Room:
        """Return what a node has left; it is worked out again when the node or a pod on it has changed."""
        node = sight.node
        known = self._rooms.get(node.name)
        if known is not None and known[0] is node:
            return known[1]
        pods = self.pods(node.name, asked_by=asked_by)
        room = room_beside(node, node.status.allocatable, (it.asking.wish for it in pods if it.takes_room))
        self._rooms[node.name] = node, room
        return room

    def finding_workloads(self, *, asked_by: str) -> Find:
        """Return what finds workloads, which are all known by then. Raises `NotKnown`."""
        for source in _WORKLOADS.values():
            self.cache(source, asked_by=asked_by)
        return self._workload

    # What is followed

    def _make(self, source: Source) -> tuple[Cache[Any], bool]:
        """Return a cache that tells of changes, and whether there may be no such thing in the cluster."""
        if source == _HYPERVISORS:
            return self._told(Cache(self._client, Selection(HYPERVISORS), row=raw_row), self._note_hypervisor), True
        if source == _NOTICES:
            notices: Cache[MaintenanceNotice] = Cache(
                self._client, Selection(MAINTENANCE_NOTICES), row=as_is, indexes={BY_NODE: _node_of}
            )
            return self._told(notices, self._note_notice), True
        return self._made(source), False

    def _made(self, source: Source) -> Cache[Any]:
        client = self._client
        if source == _PODS:
            pods: Cache[PodRow] = Cache(
                client, Selection(PODS.of(PodFields)), row=pod_rows(), indexes={BY_NODE: lambda row: (row.node,)}
            )
            return self._told(pods, self._note_pod)
        if source == _DAEMON_SETS:
            sets = Cache(client, Selection(DAEMON_SETS.of(DaemonSetFields)), row=daemon_set_row)
            return self._told(sets, self._note_daemon_set)
        for kind, known in _WORKLOADS.items():
            if source == known:
                scaled: Cache[Scaled] = Cache(client, Selection(KINDS[kind]), row=as_is)
                return self._told(scaled, partial(self._interest.note_workload, kind=kind))
        leases: Cache[Lease] = Cache(client, Selection(LEASES, namespace=source.namespace), row=as_is)
        return self._told(leases, self._note_lease)

    def _told(self, cache: Cache[Any], handler: Callable[[Any, Any], None]) -> Cache[Any]:
        cache.subscribe(handler)
        return cache

    def _note_pod(self, old: PodRow | None, new: PodRow | None) -> None:
        if old is not None and new is not None and (old.node, old.raw) == (new.node, new.raw):
            return
        rows = [it for it in (old, new) if it is not None]
        nodes = dict.fromkeys(it.node for it in rows if it.node)
        found = {topics.pods(node) for node in nodes}
        for node in nodes:
            self._rooms.pop(node, None)
        came_or_went = old is None or new is None or old.node != new.node
        if came_or_went and any(it.asking.prefers_operational for it in rows):
            found.add(topics.PREFERRING)
        self._controller.note_topics(frozenset(found))
        if _taken(old) != _taken(new):
            self._tell_capacity()

    def _note_daemon_set(self, old: RawRow | None, new: RawRow | None) -> None:
        if old is None or new is None or old.raw != new.raw:
            self._controller.note_topics(frozenset({topics.DAEMON_SETS}))

    def _note_hypervisor(self, old: RawRow | None, new: RawRow | None) -> None:
        self._controller.note_topics(frozenset(topics.hypervisor(it.key) for it in (old, new) if it is not None))

    def _note_notice(self, old: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        nodes = {it.node for it in (old, new) if it is not None and it.node}
        self._controller.note_topics(frozenset(map(topics.notices, nodes)))

    def _note_lease(self, old: Lease | None, new: Lease | None) -> None:
        seen = [it for it in (old, new) if it is not None]
        self._controller.note_topics(frozenset(topics.lease(it.namespace, it.name) for it in seen))

    # What else is kept

    def _note_interest(self, name: str, node: Node | None) -> None:
        """Take note of the workloads that a node waits for, by the record on it."""
        if self._configuration is None or Need.WORKLOADS not in self._configuration.needs:
            return
        try:
            self._interest.note_node(name, None if node is None else workloads.read(node))
        except UnreadableRecord:  # the check says so, and any change of the node wakes it
            self._interest.note_node(name, None)

    def _workload(self, reference: Reference) -> Scaled | None:
        cache = self._sources.get(_WORKLOADS[reference.kind])
        return None if cache is None else cache.get(reference.key)

    def _exists(self, node: str) -> bool:
        return self._nodes is not None and self._nodes.get(node) is not None

    def _wake_refused(self) -> None:
        for node in tuple(self._refused):
            self._controller.wake(node)


def _needed(configuration: Configuration) -> list[Source]:
    """Return what a configuration needs to be followed."""
    needs = configuration.needs
    wanted: list[Source] = []
    if needs & {Need.PODS, Need.ROOM, Need.WORKLOADS}:
        wanted.append(_PODS)
    if Need.DAEMON_SETS in needs:
        wanted.append(_DAEMON_SETS)
    if Need.HYPERVISORS in needs:
        wanted.append(_HYPERVISORS)
    if Need.NOTICES in needs:
        wanted.append(_NOTICES)
    if Need.WORKLOADS in needs:
        wanted += _WORKLOADS.values()
    namespaces = {name for it in configuration.plugins() if Need.LEASES in it.needs for name in it.lease_namespaces()}
    return [*wanted, *map(_leases, sorted(namespaces))]


def _node_of(notice: MaintenanceNotice) -> tuple[str, ...]:
    return (notice.node,) if notice.node else ()


def _leases(namespace: str) -> Source:
    return Source("leases", namespace)


def _taken(row: PodRow | None) -> object:
    """Return what a pod takes of which node."""
    return None if row is None or not row.node or not row.takes_room else (row.node, row.asking.spec, row.is_leaving)
