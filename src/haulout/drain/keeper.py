"""Drains that somebody keeps: each is a task of its own, so that one stuck pod delays nobody.

    drains = Drains(client, changed=queue.add)
    drains.start("n1", node, policy, owner=Owner(name="n1"))
    drains.seen("n1")

Who owns them runs `run` in a task group; all of them end with it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from haulout.drain.engine import Drain
from haulout.drain.evictionrequests import Owner
from haulout.drain.hindrance import Hindrance, Hindrances
from haulout.drain.ladder import Rung
from haulout.drain.machine_rules import honoured
from haulout.drain.memory import Checkpoint
from haulout.drain.pods import PodSource, WatchedPods
from haulout.drain.policy import Policy
from haulout.drain.pool import PodPool
from haulout.drain.progress import Outcome, Progress
from haulout.drain.requests import Lane
from haulout.drain.tallies import Meter, Observed
from haulout.drain.volume_watch import VolumeAttachments
from haulout.errors import HauloutError, LeadershipLost
from haulout.kube.client import Client
from haulout.kube.objects import Node, Pod, Taint

log = logging.getLogger(__name__)

_APART = 32  # drains that have a watch of their own; any others share one


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How it stands with a drain."""

    node_uid: str
    policy: Policy
    progress: Progress
    outcome: Outcome | None = None  # the node is empty, or the drain has ended
    is_waiting: bool = False
    on_node: int = 0  # all pods
    hindrance: Hindrance | None = None  # what stood in the way longest, as far as this process saw


@dataclass(slots=True)
class _Running:
    drain: Drain
    node_uid: str
    policy: Policy
    pods: PodSource
    observed: Observed | None = None
    task: asyncio.Task[None] | None = None
    outcome: Outcome | None = None  # once it has ended
    crash: Exception | None = None
    hindrances: Hindrances = field(default_factory=Hindrances)


class Drains:
    """The drains, by a key; `changed` is called with it when there is something new, `asked` when a pod is to leave.

    `meter` counts them.
    """

    def __init__(
        self,
        client: Client,
        *,
        changed: Callable[[str], object],
        asked: Callable[[str, Pod, Rung], object] | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._client = client
        self._lane = Lane(client)
        self._changed = changed
        self._asked = asked
        self._meter = meter
        self._running: dict[str, _Running] = {}
        self._group: asyncio.TaskGroup | None = None
        self._pool: PodPool | None = None
        self._pooling: asyncio.Task[None] | None = None
        self._volumes = VolumeAttachments(client)

    async def run(self) -> None:
        """Let drains run, until cancelled: with the group, all drains and the pool are."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._volumes.run(), name="volume attachments")
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None
                self._running.clear()

    def start(
        self,
        key: str,
        node: Node,
        policy: Policy,
        *,
        owner: Owner,
        checkpoint: Checkpoint | None = None,
        waiting: bool = False,
        lasting: bool = False,
        taints: tuple[Taint, ...] = (),
    ) -> None:
        """Drain a node, by the rules of its Machine, too; `waiting` looks, and lets no pod leave before `begin`.

        `taints` are those that the node gets before that.
        """
        if self._group is None:
            raise RuntimeError("drains start only while they run")
        policy = honoured(policy, node)
        pods = self._source(node.name, self._group)
        drain = Drain(
            self._client,
            node.name,
            policy,
            lane=self._lane,
            pods=pods,
            checkpoint=checkpoint,
            waiting=waiting,
            lasting=lasting,
            taints=taints,
            volumes=self._volumes,
            owner=owner,
            on_progress=lambda progress: self._note(key, running, progress),
            on_asked=None if self._asked is None else partial(self._asked, key),
            on_answer=None if self._meter is None else self._meter.answered,
        )
        observed = None if self._meter is None else self._meter.begin()
        running = _Running(drain, node.uid, policy, pods, observed)
        self._running[key] = running
        running.task = self._group.create_task(self._drain(key, running), name=f"drain for {key}")
        if observed is not None:  # a task that is cancelled before its first step does not even come to its `finally`
            running.task.add_done_callback(lambda _: observed.forget())

    def _source(self, node: str, group: asyncio.TaskGroup) -> PodSource:
        """Return the pods of a node, by a watch of their own unless there are many of these already."""
        if sum(isinstance(it.pods, WatchedPods) for it in self._under_way()) < _APART:
            return WatchedPods(self._client, node)
        if self._pool is None:
            self._pool = PodPool(self._client)
            self._pooling = group.create_task(self._pool.run(), name="pods of many nodes")
        return self._pool.of(node)

    def _under_way(self) -> Iterator[_Running]:
        return (it for it in self._running.values() if it.task is not None and not it.task.done())

    def _close_pool(self, ending: _Running) -> None:
        """Give up the watch of all pods when the last drain ends that needs it."""
        others = (it for it in self._under_way() if it is not ending)
        if self._pooling is not None and all(isinstance(it.pods, WatchedPods) for it in others):
            self._pooling.cancel()
            self._pool = self._pooling = None

    def begin(self, key: str) -> None:
        """Let the pods leave."""
        self._running[key].drain.begin()

    def change(self, key: str, policy: Policy) -> None:
        """Go on by another policy, in which the rules of the node's Machine are as they are to be from now on."""
        running = self._running[key]
        running.policy = policy
        running.drain.change(policy)

    async def stop(self, key: str) -> None:
        """Ask no further pod to leave, and forget the drain; returns when nothing of it is under way."""
        running = self._running.get(key)
        if running is None:
            return
        running.drain.stop()
        if running.task is not None:
            await asyncio.wait([running.task])
        if self._running.get(key) is running:
            del self._running[key]

    def has_ended(self, key: str) -> bool:
        """Tell whether a drain is over, or its node is empty; also if there is none."""
        running = self._running.get(key)
        return running is None or bool(running.outcome or running.drain.outcome or running.crash)

    def seen(self, key: str) -> Kept | None:
        """Return how it stands with a drain; raise what ended it against its will."""
        running = self._running.get(key)
        if running is None:
            return None
        if running.crash is not None:
            del self._running[key]  # the next look starts another
            raise running.crash
        return self._kept(running)

    def glance(self, key: str) -> Kept | None:
        """Return the same to somebody who only looks on; nothing of a drain that ended against its will."""
        running = self._running.get(key)
        return None if running is None or running.crash is not None else self._kept(running)

    def _kept(self, running: _Running) -> Kept:
        return Kept(
            node_uid=running.node_uid,
            policy=running.policy,
            progress=running.drain.progress,
            outcome=running.outcome or running.drain.outcome,
            is_waiting=running.drain.is_waiting,
            on_node=sum(1 for _ in running.pods.pods()),
            hindrance=running.hindrances.longest,
        )

    def _note(self, key: str, running: _Running, progress: Progress) -> None:
        standing, now, drain = progress.blockers, self._client.clock.now(), running.drain
        running.hindrances = running.hindrances.seeing(standing, now=now)
        if running.observed is not None:
            running.observed.sees(progress, drain.outcome, standing=standing, is_waiting=drain.is_waiting, now=now)
        self._changed(key)

    async def _drain(self, key: str, running: _Running) -> None:
        try:
            running.outcome = await running.drain.run()
            self._count_end(running, running.outcome)
        except LeadershipLost:
            return  # all that we do is about to be cancelled
        except Exception as error:
            running.crash = error if isinstance(error, HauloutError) else RuntimeError(f"the drain broke: {error!r}")
            log.warning("the drain for %s ended against its will", key, exc_info=error)
            self._count_end(running, None)
        finally:
            self._close_pool(running)
        self._changed(key)

    def _count_end(self, running: _Running, outcome: Outcome | None) -> None:
        if running.observed is not None:
            ending = None if outcome is None else outcome.ending
            running.observed.ends(ending, running.drain.progress, now=self._client.clock.now())
