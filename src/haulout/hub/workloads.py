"""One workload cluster: a connection of its own, a queue of its own, and the Machines that became its nodes.

Whatever it does to us, all others go on: nothing here is shared with another cluster but the client of the management
cluster. The node is written first and the Machine only if that succeeded, so that a hook that is gone says that all
before it was done.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from haulout.errors import Conflict, KubeError, NotFound
from haulout.hub import words
from haulout.hub.admission import Admission
from haulout.hub.asks import Ask
from haulout.hub.connecting import Connect
from haulout.hub.link import Link, slim
from haulout.hub.outcome import Change, Outcome, Seen, Telling
from haulout.hub.propagation import propagate, requests_on, withdrawn
from haulout.hub.settings import HubSettings
from haulout.hub.standing import ClusterStanding, MachineStanding, Reach
from haulout.hub.tallies import HubTallies
from haulout.kinds.clusterapi import CLUSTER_NAME, Cluster, ClusterKey, Machine
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder, EventType, ObjectReference, reference
from haulout.kube.fresh import Fresh
from haulout.kube.objects import Node
from haulout.kube.queue import Queue
from haulout.kube.resources import NODES, Resource

T = TypeVar("T")

log = logging.getLogger(__name__)

_WORKERS = 4
_TRIES = 5
_NODE = "node "  # before the name of a node in the queue; the keys of Machines have no blanks
_SHORTLY = timedelta(seconds=1)
_BARRED_FOR = timedelta(seconds=30)  # another hub may have given back what we wait for, and tells nobody

DrainRules = Callable[[Machine, Cluster | None], str | None]  # what a node should say of them; None: as it says


@dataclass(frozen=True, slots=True, kw_only=True)
class Management:
    """What all workload clusters have in common: the cluster that their Machines are in, and how the hub behaves."""

    client: Client
    resource: Resource[Machine]
    machines: Fresh[Machine]
    cluster: Callable[[ClusterKey], Cluster | None]
    of_node: Callable[[ClusterKey, str], tuple[str, ...]]  # the keys of Machines that became a node
    of_cluster: Callable[[ClusterKey], tuple[str, ...]]  # the keys of all of its Machines
    connect: Connect
    admission: Admission
    settings: HubSettings
    events: EventRecorder
    tallies: HubTallies
    instance: str
    reporter: str
    drain_rules: DrainRules
    changed: Callable[[ClusterKey], None]  # how it stands with a cluster
    rested: Callable[[ClusterKey], None]  # nothing of a cluster is maintained any more


class Workload:
    """Sees to the Machines of one cluster; `run` may be called again after it broke."""

    def __init__(self, key: ClusterKey, management: Management) -> None:
        self.key = key
        self._of = management
        self._clock = management.client.clock
        self._standings: dict[str, tuple[MachineStanding, ...]] = {}  # by the key of the Machine
        self._active: set[str] = set()  # of which something is asked, or about to be
        self._said = Reach.CONNECTING
        self._counts = False  # in the budget across clusters, as far as we know
        self._inherits = True  # nobody has looked yet whether it should
        self._barred: dict[str, str] = {}
        self._unsettled: set[str] = set()  # what is left to do about a Machine that may be forgotten otherwise
        self._remarked: dict[str, frozenset[tuple[str, str]]] = {}  # the same: its uid, and what was told already
        self._known: dict[str, Machine] = {}  # as they were last, so that requests of those that vanish are withdrawn
        self.link = Link(
            management.client,
            key,
            connect=management.connect,
            instance=management.instance,
            reporter=management.reporter,
            changed=self._note_reach,
            noted=self._note_node,
        )
        self._queue: Queue[str] = Queue(
            self._look,
            clock=self._clock,
            random=management.client.random,
            workers=_WORKERS,
            name=f"cluster {key}",
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.link.run())
            group.create_task(self._queue.run())

    def add(self, machine: Machine, *, must_settle: bool) -> None:
        """Look at a Machine; `must_settle`: not to be forgotten before that was done."""
        if must_settle:
            self._unsettled.add(machine.key)
        self._queue.add(machine.key)

    @property
    def is_settled(self) -> bool:
        """Tell whether nothing is left to do about Machines that ask for nothing any more."""
        return not self._unsettled

    @property
    def is_active(self) -> bool:
        """Tell whether something is asked of its nodes."""
        return bool(self._active)

    def look_at_barred(self) -> None:
        """Look at what waits for other clusters."""
        for key in tuple(self._barred):
            self._queue.add(key)

    def standing(self, machines: list[Machine]) -> ClusterStanding:
        """Return how it stands with the cluster, whose Machines these are."""
        contact, nodes, cluster = self.link.contact, self.link.nodes, self._of.cluster(self.key)
        health = None if nodes is None else nodes.cache.health()
        problem = contact.problem if contact.failing_since is not None else ""
        return ClusterStanding(
            key=self.key,
            reach=contact.reach,
            reason=problem and ((health and health.problem) or problem),
            since=contact.since,
            heard=contact.heard,
            server=self.link.server,
            version=self.link.version,
            machines=len(machines),
            enabled=sum(it.is_enabled for it in machines),
            nodes=0 if nodes is None else len(nodes.cache),
            is_leaving=cluster is not None and cluster.is_leaving,
            active=tuple(each for _, held in sorted(self._standings.items()) for each in held),
            waits_for=next(iter(self._barred.values()), ""),
        )

    # Who is woken by what

    def look_at_all(self) -> None:
        """Look at all of its Machines: what is about each of them has changed."""
        for key in {*self._of.of_cluster(self.key), *self._known}:
            self._queue.add(key)

    def _note_reach(self) -> None:
        contact = self.link.contact
        if contact.reach is not self._said:
            self._said = contact.reach
            if contact.reach.is_away:
                verb = "read" if contact.reach is Reach.UNREADABLE else "reached"
                log.warning("cluster %s cannot be %s: %s", self.key, verb, contact.problem)
            else:
                log.info("cluster %s is reached at %s", self.key, self.link.server)
        self.look_at_all()
        self._of.changed(self.key)

    def _note_node(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and old.spec != new.spec:
            self._of.changed(self.key)  # somebody may wait for it to be cordoned
        if old is not None and new is not None and _gist(old) == _gist(new):
            return
        node = new or old
        if node is None:
            return
        machines = self._of.of_node(self.key, node.name)
        for key in machines:
            self._queue.add(key)
        if new is not None and not machines and requests_on(new):
            self._queue.add(f"{_NODE}{new.name}")

    # One look

    async def _look(self, key: str) -> datetime | None:
        if key.startswith(_NODE):
            return await self._look_at_unclaimed(key.removeprefix(_NODE))
        machine, known = self._of.machines.get(key), self._known.get(key)
        if machine is not None and machine.cluster != self.key:
            machine = None
        if known is not None and (machine is None or machine.uid != known.uid):
            if not await self._withdraw_of(known):
                return None  # looked at again once the cluster is reached
            del self._known[key]
        if machine is None:
            self._forget(key)
            return None
        self._known[key] = machine
        return await self._see_to_the_newest(machine)

    async def _see_to_the_newest(self, machine: Machine) -> datetime | None:
        """Act on a Machine and its node; read both again at once if somebody else has written to them meanwhile."""
        for _ in range(_TRIES):
            try:
                return await self._see_to(machine)
            except (Conflict, NotFound) as error:
                log.debug("Machine %s or its node is not as it was: %s", machine.key, error)
            try:
                machine = await self._read_again(machine)
            except KubeError as error:
                log.debug("Machine %s or its node cannot be read: %s", machine.key, error)
                break
        return self._clock.now() + _SHORTLY

    async def _read_again(self, machine: Machine) -> Machine:
        client, nodes = self.link.client, self.link.nodes
        if machine.node and client is not None and nodes is not None:
            nodes.note(slim(await client.get(NODES, machine.node)))
        found = await self._of.client.get(self._of.resource, machine.name, namespace=machine.namespace)
        return self._of.machines.note(found)

    # Machines that are gone while their nodes are not

    async def _withdraw_of(self, gone: Machine) -> bool:
        """Withdraw what a Machine requested that is gone; return whether nothing is left to do."""
        if not gone.node:
            return True
        if not self.link.is_up:
            return self._of.cluster(self.key) is None  # without a Cluster nobody will ever be reached
        nodes = self.link.nodes
        node = None if nodes is None else nodes.get(gone.node)
        if node is not None:
            is_claimed = bool(self._of.of_node(self.key, node.name))

            def is_gone(ask: Ask | None) -> bool:
                return not is_claimed if ask is None else ask.machine == gone.uid

            await self._withdraw(node, withdrawn(node, is_gone=is_gone, is_claimed=is_claimed))
        return True

    async def _look_at_unclaimed(self, name: str) -> datetime | None:
        """Withdraw what is requested of a node that no Machine became: its Machine went while no hub ran.

        While a Cluster is moved its Machines are in two management clusters, and it is paused in this one.
        """
        nodes, cluster = self.link.nodes, self._of.cluster(self.key)
        node = None if nodes is None or not self.link.is_up else nodes.get(name)
        if node is None or cluster is None or cluster.is_paused or self._of.of_node(self.key, name):
            return None
        selector = f"{CLUSTER_NAME}={self.key.name}"
        there = (await self._of.client.list(self._of.resource, namespace=self.key.namespace, labels=selector)).items
        if any(it.node == name for it in there):
            return None  # the cache is behind the server
        uids = {it.uid for it in there}

        def is_gone(ask: Ask | None) -> bool:
            return ask is not None and ask.machine not in uids

        await self._withdraw(node, withdrawn(node, is_gone=is_gone, is_claimed=False))
        return None

    async def _withdraw(self, node: Node, change: Change) -> None:
        client, nodes = self.link.client, self.link.nodes
        if not change or client is None or nodes is None:
            return
        try:
            nodes.note(slim(await client.patch(NODES, node.name, change.patch(node))))
        except NotFound:
            return
        telling = Telling(reason="RequestWithdrawn", note=words.machine_gone(node))
        log.info("cluster %s: %s", self.key, telling.note)
        if self.link.events is not None:
            _record(self.link.events, reference(NODES, node), telling)

    async def _see_to(self, machine: Machine) -> datetime | None:
        seen = await self._seen(machine)
        outcome = propagate(seen)
        barred = await self._count(machine, outcome)
        if barred:
            outcome = propagate(replace(seen, barred=barred))
        await self._write(seen, outcome)
        self._settle(machine, outcome, barred)
        self._remark(seen, outcome)
        if barred:
            return min(filter(None, (outcome.next_look, self._clock.now() + _BARRED_FOR)))
        return outcome.next_look

    async def _count(self, machine: Machine, outcome: Outcome) -> str:
        """Have the cluster count in the budget if something of it is maintained; return why that may not begin."""
        if not outcome.is_active or (self._counts and not outcome.begins):
            return ""
        self._active.add(machine.key)  # from before it is asked: what is given back meanwhile would be missed
        self._counts = True  # the same: the answer may be lost
        has_begun = not outcome.begins
        barred = await self._of.admission.admit(self.key, has_begun=has_begun)
        if barred and self._active == {machine.key}:
            self._counts = False
        return "" if has_begun else barred

    async def _seen(self, machine: Machine) -> Seen:
        cluster, contact = self._of.cluster(self.key), self.link.contact
        is_known = self.link.is_up
        return Seen(
            machine=machine,
            now=self._clock.now(),
            settings=self._of.settings,
            node=await self._node(machine) if is_known else None,
            is_node_known=is_known,
            unreachable_since=contact.since if contact.reach.is_away else None,
            is_unreadable=contact.reach is Reach.UNREADABLE,
            is_cluster_leaving=cluster is not None and cluster.is_leaving,
            is_cluster_paused=cluster is not None and cluster.is_paused,
            drain_rules=self._of.drain_rules(machine, cluster),
        )

    async def _node(self, machine: Machine) -> Node | None:
        nodes, client = self.link.nodes, self.link.client
        if not machine.node or nodes is None or client is None:
            return None
        found = nodes.get(machine.node)
        if found is not None or not machine.is_leaving:
            return found
        try:  # that a node is gone is what a deletion is released for: the copy may be old
            return nodes.note(slim(await client.get(NODES, machine.node)))
        except NotFound:
            return None

    async def _write(self, seen: Seen, outcome: Outcome) -> None:
        machine, client, nodes = seen.machine, self.link.client, self.link.nodes
        if outcome.node and seen.node is not None and client is not None and nodes is not None:
            patch = outcome.node.patch(seen.node)
            nodes.note(slim(await client.patch(NODES, seen.node.name, patch)))
            log.debug("cluster %s: node %s: %s", self.key, seen.node.name, outcome.node)
        if outcome.machine:
            patch = outcome.machine.patch(machine)
            self._of.machines.note(
                await self._of.client.patch(self._of.resource, machine.name, patch, namespace=machine.namespace)
            )
            level = logging.DEBUG if outcome.tellings else logging.INFO
            log.log(level, "Machine %s: %s", machine.key, outcome.machine, extra={"cluster": str(self.key)})
        for telling in outcome.tellings:
            self._tell(seen, telling)

    def _settle(self, machine: Machine, outcome: Outcome, barred: str) -> None:
        key, before = (
            machine.key,
            (self._standings.get(machine.key, ()), self._barred.get(machine.key), self.is_settled),
        )
        self._counts = self._counts or (key in self._barred and not barred)  # who waits no more is not waited for
        _keep(self._standings, key, outcome.standings)
        _keep(self._barred, key, barred)
        if outcome.is_active:
            self._active.add(key)
        elif outcome.is_settled:  # what is asked of a node that cannot be seen stays as it was
            self._active.discard(key)
        if outcome.is_settled and key in self._unsettled:
            self._unsettled.discard(key)
            if self.is_settled and self._inherits:  # whoever came before us may have left a slot behind
                self._inherits, self._counts = False, True
        self._note_rest()
        if before != (outcome.standings, barred or None, self.is_settled):
            self._of.changed(self.key)

    def _forget(self, key: str) -> None:
        self._standings.pop(key, None)
        has_waited = self._barred.pop(key, None) is not None
        self._counts = self._counts or has_waited
        self._remarked.pop(key, None)
        self._active.discard(key)
        self._unsettled.discard(key)
        self._note_rest()
        self._of.changed(self.key)

    def _note_rest(self) -> None:
        """Tell that nothing of the cluster is maintained any more; not of who waits: it would be woken by that."""
        if self._counts and not self.is_active:
            self._counts = False
            self._of.rested(self.key)

    # What is told

    def _remark(self, seen: Seen, outcome: Outcome) -> None:
        """Tell how it stands with a Machine, each thing once."""
        key, uid = seen.machine.key, seen.machine.uid
        told = self._remarked.get(key, frozenset())
        for remark in outcome.remarks:
            if (uid, remark.reason) not in told:
                self._tell(seen, remark)
        _keep(self._remarked, key, frozenset((uid, it.reason) for it in outcome.remarks))

    def _tell(self, seen: Seen, telling: Telling) -> None:
        self._of.tallies.told.add(telling.reason)
        _record(self._of.events, reference(self._of.resource, seen.machine), telling)
        log.log(
            logging.WARNING if telling.is_bad else logging.INFO,
            "Machine %s: %s",
            seen.machine.key,
            telling.note,
            extra={"cluster": str(self.key), "reason": telling.reason},
        )
        if telling.of_node and seen.node is not None and self.link.events is not None:
            _record(self.link.events, reference(NODES, seen.node), telling)


def _gist(node: Node) -> object:
    return node.uid, node.metadata.labels, node.metadata.annotations


def _keep(about: dict[str, T], key: str, said: T) -> None:
    """Keep what is said of a key; nothing is not kept."""
    if said:
        about[key] = said
    else:
        about.pop(key, None)


def _record(events: EventRecorder, regarding: ObjectReference, telling: Telling) -> None:
    kind: EventType = "Warning" if telling.is_bad else "Normal"
    events.record(regarding, reason=telling.reason, note=telling.note, action="Propagate", type=kind)
