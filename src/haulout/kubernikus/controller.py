"""The controller of nodes of Kubernikus: labels old kubelets, and has servers deleted whose nodes are ordered to go.

    controller = Controller(client, nova=nova, nodes=nodes, events=events, settings=settings, namespace="haulout")
    await controller.run()                      # until cancelled, or until another process should go on

It is woken by changes of nodes and by its own drains, and otherwise at the instants that its decisions name. Two have
to be asked at an interval, as they tell nothing by themselves: the API server which version it has, once for all
nodes, and Nova what became of a server.
"""

import asyncio
import logging
from datetime import datetime, timedelta
from functools import partial

from haulout.budget.away import is_away
from haulout.budget.cordon_copies import CordonCopies
from haulout.drain import leaving
from haulout.drain.cordon import BACKUP, MARK
from haulout.drain.evictionrequests import Owner
from haulout.drain.keeper import Drains
from haulout.drain.ladder import Rung
from haulout.drain.tallies import Meter
from haulout.errors import Conflict, HandOver, NotFound
from haulout.history.holding import Holding
from haulout.history.interface import History, NoHistory
from haulout.kinds import hold
from haulout.kinds.clusterapi import DRAIN_RULES
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.fresh import Fresh
from haulout.kube.objects import Node, Pod, RawObject
from haulout.kube.patches import node_patch
from haulout.kube.queue import Queue
from haulout.kube.resources import NODES
from haulout.kubernikus import decision as steps
from haulout.kubernikus.decision import Found, Seen, decide
from haulout.kubernikus.keys import NEEDS_UPDATE, OWNER, SERVER, is_ordered
from haulout.kubernikus.kubelets import Kubelets
from haulout.kubernikus.nova import Nova
from haulout.kubernikus.servers import NotAsItWas, Servers
from haulout.kubernikus.settings import Settings
from haulout.kubernikus.telling import Teller

log = logging.getLogger(__name__)

_MOST_STEPS = 20  # in a row: more would mean that decisions go in circles
_SHORTLY = timedelta(seconds=2)
_WORKERS = 8


class Controller:
    """Sees to all nodes; `run` may be called once, and somebody else runs the cache of nodes and the recorder."""

    def __init__(  # noqa: PLR0913 - all that it tells others of
        self,
        client: Client,
        *,
        nova: Nova,
        nodes: Cache[Node],
        events: EventRecorder,
        settings: Settings,
        namespace: str,
        own_node: str = "",
        meter: Meter | None = None,
        history: History | None = None,
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._nodes = Fresh(nodes)
        self._events = events
        self._settings = settings
        self._own_node = own_node  # hand over before it is drained; empty: never
        self._is_handing_over = asyncio.Event()
        self._cordoned_at: dict[str, datetime] = {}  # by node
        self.teller = Teller(events)
        self.history = history or NoHistory()
        self._holding = Holding(OWNER, self.history, client.clock)
        self.kubelets = Kubelets(client, self._nodes, self.teller, changed=self._wake_all)
        self._copies = CordonCopies(client, namespace=namespace, controller="kubernikus", owns=OWNER.__eq__)
        self._servers = Servers(client, nova, self._nodes)
        self._queue: Queue[str] = Queue(
            self._work,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            meters=client.meters,
            name="Kubernikus",
        )
        self._drains = Drains(client, changed=self._queue.add, asked=self._note_pod, meter=meter)

    async def run(self) -> None:
        """Work until cancelled; raises `HandOver` when another process should go on."""
        await self._nodes.cache.wait_synced()
        end = self._nodes.cache.subscribe(self._note_node)
        try:
            async with asyncio.TaskGroup() as group:
                asking = partial(self.kubelets.run, lambda: self._settings.interval)
                background = [group.create_task(run()) for run in (self._drains.run, asking, self._queue.run)]
                await self._is_handing_over.wait()
                for task in background:
                    task.cancel()
        finally:
            end()
        raise HandOver(f"this process runs on node {self._own_node}, which is about to be drained and deleted")

    def use(self, settings: Settings) -> None:
        """Go on by other settings."""
        self._settings = settings
        self.kubelets.hurry()
        self._wake_all()

    # Who is woken by what

    def _note_node(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        if node is not None and (old is None or new is None or _counts(old) != _counts(new)):
            self._queue.add(node.name)

    def _note_pod(self, name: str, pod: Pod, rung: Rung) -> None:
        node = self._nodes.get(name)
        if node is not None:
            leaving.tell(self._events, node, pod, rung)

    def _wake_all(self) -> None:
        for node in list(self._nodes.cache.all()):
            self._queue.add(node.name)

    # One look

    async def _work(self, name: str) -> datetime | None:
        await self._copies.load(self._nodes.cache.all)
        node = self._nodes.get(name)
        if node is None:
            await self._forget(name)
            return None
        try:
            await self.kubelets.label(node)
            return await self._look(name)
        except (Conflict, NotFound, NotAsItWas) as error:
            log.debug("node %s is not as it was: %s", name, error)
            return self._clock.now() + _SHORTLY

    async def _look(self, name: str) -> datetime | None:
        found: Found | None = None
        for _ in range(_MOST_STEPS):
            node = self._nodes.get(name)
            if node is None:
                return None  # the cache tells of it
            self._holding.sees(node)
            seen = Seen(
                node=node,
                now=self._clock.now(),
                settings=self._settings,
                drain=self._drains.seen(name),
                found=found,
                deleted=self._servers.deleted(node),
                cordoned_at=self._cordoned_at.get(name),
                cordon_copy=self._copies.of(node),
            )
            self._holding.drains(node, seen.drain)
            decision = decide(seen)
            match decision.step:
                case None:
                    await self._copies.follow(node)
                    self.teller.stands(node, decision)
                    return decision.wakes_at
                case steps.Ask():
                    found = await self._servers.find(node, believed_for=self._settings.interval)
                case steps.Delete(server):
                    found = await self._delete(node, server)
                case step:
                    await self._perform(node, step)
        raise RuntimeError(f"node {name} goes in circles")

    async def _delete(self, node: Node, server: str) -> Found | None:
        problem = await self._servers.delete(node, server, believed_for=self._settings.interval)
        if problem is None:
            self._holding.does(node, "ServerDeleted", f"its server {server} was told to go")
        return problem

    async def _perform(self, node: Node, step: steps.Step) -> None:
        name = node.name
        match step:
            case steps.Cordon(change, is_first, tampering):
                changed = await self._change(node, change)
                self._cordoned_at[name] = self._clock.now()
                if is_first:
                    self._tell_of_order(changed)
                elif tampering:
                    self.teller.restores(node, tampering)
            case steps.Release(change):
                await self._copies.drop(node)
                await self._change(node, change)
                self._holding.ends(node, self.teller.gives_back(node))
            case steps.Note(change):
                await self._change(node, change)
            case steps.StartDrain(policy):
                self._hand_over_if_on(name)
                self._drains.start(name, node, policy, owner=Owner(name=f"{name}.delete-node"), lasting=True)
            case steps.ChangePolicy(policy):
                self._drains.change(name, policy)
            case steps.StopDrain():
                await self._drains.stop(name)

    async def _change(self, node: Node, change: RawObject) -> Node:
        changed = self._nodes.note(await self._client.patch(NODES, node.name, node_patch(change)))
        await self._copies.follow(changed)
        return changed

    def _tell_of_order(self, node: Node) -> None:
        others = [it for it in self._nodes.cache.all() if it.name != node.name]
        now = self._clock.now()
        why = self.teller.begins(node, away=sum(is_away(it, now) for it in others), of=len(others))
        self._holding.begins(node, why)

    def _hand_over_if_on(self, name: str) -> None:
        """Give way to another process before the node is emptied on which this one runs."""
        if name == self._own_node:
            self._is_handing_over.set()
            raise HandOver(f"node {name} is to be drained by another process")

    async def _forget(self, name: str) -> None:
        await self._drains.stop(name)
        await self._copies.forget(name)
        self._cordoned_at.pop(name, None)
        self._servers.forget(name)
        self.teller.forget(name)
        self._holding.forget(name)


def _counts(node: Node) -> object:
    """Return what of a node makes a difference here."""
    labels, annotations = node.metadata.labels, node.metadata.annotations
    return (
        node.uid,
        node.metadata.deletion_timestamp,
        labels.get(NEEDS_UPDATE),
        is_ordered(node),
        *map(annotations.get, (MARK, BACKUP, SERVER, hold.ANNOTATION, DRAIN_RULES)),
        node.spec,
        node.status.node_info,
    )
