"""The running drains. Each is a task of its own, so that one stuck pod delays no other node.

    drains = DrainManager(client, on_change=queue.add)
    drains.start("n1", node, policy, owner=RequestOwner(name="n1"))
    drains.snapshot("n1")

The caller runs `run` in a task group. All drains end with it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from haulout.api.objects import Node, Pod, Taint
from haulout.drain.drainer import Drainer
from haulout.drain.escalation import EscalationStep
from haulout.drain.eviction_client import EvictionClient
from haulout.drain.eviction_requests import RequestOwner
from haulout.drain.machine_drain_rules import with_machine_drain_rules
from haulout.drain.metrics import DrainMetrics, InitiatorDrainMetrics, SingleDrainMetrics
from haulout.drain.pod_informers import NodePodInformer, PodSource, SharedPodInformer
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import DrainOutcome, DrainProgress, LongestBlocker, LongestBlockerTracker
from haulout.drain.state import Checkpoint
from haulout.drain.volumes import VolumeAttachmentInformer
from haulout.errors import HauloutError, LeadershipLost
from haulout.kube.client import Client

log = logging.getLogger(__name__)

# Drains with a pod watch of their own; all further drains share one watch. That one delivers the changes of all pods in
# the cluster, so a few drains are cheaper with a watch each (`pod_informers` has the costs).
_APART = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSnapshot:
    """The state of a drain at one moment."""

    node_uid: str
    policy: DrainPolicy
    progress: DrainProgress
    outcome: DrainOutcome | None = None  # set once the node is empty or the drain has ended
    is_waiting: bool = False
    pods_on_node: int = 0  # all pods, including those that stay
    longest_blocker: LongestBlocker | None = None  # the longest block that this process observed


@dataclass(slots=True)
class _RunningDrain:
    drainer: Drainer
    node_uid: str
    policy: DrainPolicy
    pods: PodSource
    metrics: SingleDrainMetrics
    task: asyncio.Task[None] | None = None
    outcome: DrainOutcome | None = None  # set once the drain has ended
    crash: Exception | None = None
    blocker_tracker: LongestBlockerTracker = field(default_factory=LongestBlockerTracker)


class DrainManager:
    """The running drains, by key.

    `on_change` is called with the key when the progress of a drain changes, `on_pod_requested` when a pod is evicted or
    deleted.
    """

    def __init__(
        self,
        client: Client,
        *,
        on_change: Callable[[str], object],
        on_pod_requested: Callable[[str, Pod, EscalationStep], object] = lambda *_: None,
        metrics: InitiatorDrainMetrics | None = None,
    ) -> None:
        self._client = client
        self._eviction_client = EvictionClient(client)
        self._on_change = on_change
        self._on_pod_requested = on_pod_requested
        self._metrics = metrics or DrainMetrics().for_initiator("")
        self._running: dict[str, _RunningDrain] = {}
        self._group: asyncio.TaskGroup | None = None
        self._shared_informer: SharedPodInformer | None = None
        self._shared_informer_task: asyncio.Task[None] | None = None
        self._volumes = VolumeAttachmentInformer(client)

    async def run(self) -> None:
        """Run until cancelled. All drains and the shared pod informer are cancelled with it."""
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
        policy: DrainPolicy,
        *,
        owner: RequestOwner,
        checkpoint: Checkpoint | None = None,
        waiting: bool = False,
        keep_running: bool = False,
        taints: tuple[Taint, ...] = (),
    ) -> None:
        """Drain a node by `policy` and the MachineDrainRules of its Machine.

        With `waiting`, no pod is evicted before `begin`; `taints` are those that the node gets until then.
        """
        if self._group is None:
            raise RuntimeError("drains can start only while the drain manager runs")
        policy = with_machine_drain_rules(policy, node)
        pods = self._pod_source(node.name, self._group)
        drainer = Drainer(
            self._client,
            node.name,
            policy,
            eviction_client=self._eviction_client,
            pods=pods,
            checkpoint=checkpoint,
            waiting=waiting,
            keep_running=keep_running,
            taints=taints,
            volumes=self._volumes,
            owner=owner,
            on_progress=lambda progress: self._handle_progress(key, running, progress),
            on_pod_requested=partial(self._on_pod_requested, key),
            on_response=self._metrics.count_response,
        )
        drain_metrics = self._metrics.start_drain()
        running = _RunningDrain(drainer, node.uid, policy, pods, drain_metrics)
        self._running[key] = running
        running.task = self._group.create_task(self._drain(key, running), name=f"drain for {key}")
        # A task that is cancelled before its first step never reaches its `finally`.
        running.task.add_done_callback(lambda _: drain_metrics.discard())

    def _pod_source(self, node: str, group: asyncio.TaskGroup) -> PodSource:
        """Return the pod informer of a node: one of its own, or the shared one if there are many drains already."""
        if sum(isinstance(running.pods, NodePodInformer) for running in self._running_drains()) < _APART:
            return NodePodInformer(self._client, node)
        if self._shared_informer is None:
            self._shared_informer = SharedPodInformer(self._client)
            self._shared_informer_task = group.create_task(self._shared_informer.run(), name="pods of many nodes")
        return self._shared_informer.for_node(node)

    def _running_drains(self) -> Iterator[_RunningDrain]:
        return (running for running in self._running.values() if running.task is not None and not running.task.done())

    def _close_shared_informer(self, ending: _RunningDrain) -> None:
        """Stop the shared pod informer when the last drain that needs it ends."""
        others = (running for running in self._running_drains() if running is not ending)
        if self._shared_informer_task is not None and all(
            isinstance(running.pods, NodePodInformer) for running in others
        ):
            # A watch of all pods in the cluster is too expensive to keep it for a next time.
            self._shared_informer_task.cancel()
            self._shared_informer = self._shared_informer_task = None

    def begin(self, key: str) -> None:
        self._running[key].drainer.begin()

    def set_policy(self, key: str, policy: DrainPolicy) -> None:
        """Continue with another policy, which must already include the MachineDrainRules of the node."""
        running = self._running[key]
        running.policy = policy
        running.drainer.set_policy(policy)

    async def stop(self, key: str) -> None:
        """Stop evicting pods and remove the drain. Return when no request of it is in flight any more."""
        running = self._running.get(key)
        if running is None:
            return
        running.drainer.stop()
        if running.task is not None:
            await asyncio.wait([running.task])
        # Another drain may have been started under this key while this one ended.
        if self._running.get(key) is running:
            del self._running[key]

    def has_ended(self, key: str) -> bool:
        """Return whether the drain has ended or its node is empty; True if there is no such drain."""
        running = self._running.get(key)
        return running is None or bool(running.outcome or running.drainer.outcome or running.crash)

    def snapshot(self, key: str) -> DrainSnapshot | None:
        """Return the state of a drain, None if there is none. Raise its error if it crashed, and remove it."""
        running = self._running.get(key)
        if running is None:
            return None
        if running.crash is not None:
            del self._running[key]  # the next reconcile starts another drain
            raise running.crash
        return self._snapshot(running)

    def peek(self, key: str) -> DrainSnapshot | None:
        """Return the state of a drain without raising or changing anything; None if it crashed."""
        running = self._running.get(key)
        return None if running is None or running.crash is not None else self._snapshot(running)

    def _snapshot(self, running: _RunningDrain) -> DrainSnapshot:
        return DrainSnapshot(
            node_uid=running.node_uid,
            policy=running.policy,
            progress=running.drainer.progress,
            outcome=running.outcome or running.drainer.outcome,
            is_waiting=running.drainer.is_waiting,
            pods_on_node=sum(1 for _ in running.pods.pods()),
            longest_blocker=running.blocker_tracker.longest,
        )

    def _handle_progress(self, key: str, running: _RunningDrain, progress: DrainProgress) -> None:
        blockers, now, drainer = progress.blockers, self._client.clock.now(), running.drainer
        running.blocker_tracker = running.blocker_tracker.observe(blockers, now=now)
        running.metrics.update(progress, drainer.outcome, blockers=blockers, is_waiting=drainer.is_waiting, now=now)
        self._on_change(key)

    async def _drain(self, key: str, running: _RunningDrain) -> None:
        try:
            running.outcome = await running.drainer.run()
            self._count_end(running, running.outcome)
        except LeadershipLost:
            return  # the process is about to cancel everything
        # The task boundary: an error in one drain must not cancel the task group, and with it all other drains.
        except Exception as error:
            running.crash = error if isinstance(error, HauloutError) else RuntimeError(f"the drain crashed: {error!r}")
            log.warning("the drain for %s crashed", key, exc_info=error)
            self._count_end(running, None)
        finally:
            self._close_shared_informer(running)
        self._on_change(key)

    def _count_end(self, running: _RunningDrain, outcome: DrainOutcome | None) -> None:
        result = None if outcome is None else outcome.result
        running.metrics.finish(result, running.drainer.progress, now=self._client.clock.now())
