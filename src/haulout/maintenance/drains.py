"""The drains of all maintenances: each is a task of its own, so that one stuck pod delays nobody.

Who owns them runs `Drains.run` in a task group; all of them end with it.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from haulout.drain.engine import Drain
from haulout.drain.evictionrequests import Owner
from haulout.drain.memory import Checkpoint
from haulout.drain.pods import WatchedPods
from haulout.drain.policy import Policy
from haulout.drain.progress import Outcome
from haulout.drain.requests import Lane
from haulout.errors import HauloutError, LeadershipLost
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.maintenance.resource import NODE_MAINTENANCES, NodeMaintenance
from haulout.maintenance.seen import DrainSeen

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Running:
    drain: Drain
    node_uid: str
    policy: Policy
    pods: WatchedPods
    task: asyncio.Task[None] | None = None
    outcome: Outcome | None = None  # once it has ended
    crash: Exception | None = None


class Drains:
    """The drains, by the name of their maintenance; `changed` is called with it when there is something new."""

    def __init__(self, client: Client, *, changed: Callable[[str], object]) -> None:
        self._client = client
        self._lane = Lane(client)
        self._changed = changed
        self._running: dict[str, _Running] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Let drains run, until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None
                for running in self._running.values():
                    if running.task is not None:
                        running.task.cancel()
                self._running.clear()

    def start(self, maintenance: NodeMaintenance, node: Node, policy: Policy, checkpoint: Checkpoint | None) -> None:
        """Look at the pods of a node; none leaves before `begin`."""
        if self._group is None:
            raise RuntimeError("drains start only while they run")
        name = maintenance.name
        pods = WatchedPods(self._client, node.name)
        drain = Drain(
            self._client,
            node.name,
            policy,
            lane=self._lane,
            pods=pods,
            checkpoint=checkpoint,
            waiting=True,
            lasting=True,
            owner=_owner(maintenance),
            on_progress=lambda _: self._changed(name),
        )
        running = _Running(drain, node.uid, policy, pods)
        self._running[name] = running
        running.task = self._group.create_task(self._drain(name, running), name=f"drain for {name}")

    def begin(self, name: str) -> None:
        """Let the pods leave."""
        self._running[name].drain.begin()

    def change(self, name: str, policy: Policy) -> None:
        """Go on by another policy."""
        running = self._running[name]
        running.policy = policy
        running.drain.change(policy)

    async def stop(self, name: str) -> None:
        """Ask no further pod to leave, and forget the drain; returns when nothing of it is under way."""
        running = self._running.get(name)
        if running is None:
            return
        running.drain.stop()
        if running.task is not None:
            await asyncio.wait([running.task])
        if self._running.get(name) is running:
            del self._running[name]

    def seen(self, name: str) -> DrainSeen | None:
        """Return how it stands with the drain of a maintenance; raise what ended it against its will."""
        running = self._running.get(name)
        if running is None:
            return None
        if running.crash is not None:
            del self._running[name]  # the next look starts another
            raise running.crash
        return DrainSeen(
            node_uid=running.node_uid,
            policy=running.policy,
            progress=running.drain.progress,
            outcome=running.outcome or running.drain.outcome,
            is_waiting=running.drain.is_waiting,
            on_node=sum(1 for _ in running.pods.pods()),
        )

    async def _drain(self, name: str, running: _Running) -> None:
        try:
            running.outcome = await running.drain.run()
        except LeadershipLost:
            return  # all that we do is about to be cancelled
        except Exception as error:
            running.crash = error if isinstance(error, HauloutError) else RuntimeError(f"the drain broke: {error!r}")
            log.warning("the drain for NodeMaintenance %s ended against its will", name, exc_info=error)
        self._changed(name)


def _owner(maintenance: NodeMaintenance) -> Owner:
    """Return on whose behalf pods are asked to leave: what was asked goes when the maintenance is deleted."""
    reference = {
        "apiVersion": NODE_MAINTENANCES.api_version,
        "kind": NODE_MAINTENANCES.kind,
        "name": maintenance.name,
        "uid": maintenance.uid,
    }
    return Owner(name=f"{NODE_MAINTENANCES.kind}.{maintenance.name}", reference=reference)
