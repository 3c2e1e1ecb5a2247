"""Daemon sets: one pod on each node where it belongs.

Follows `pkg/controller/daemon` of Kubernetes 1.36. A pod is pinned to its node by affinity and bound by the scheduler.
A node that is cordoned or drained keeps its daemons, and one that comes gets them at once. Updates replace pods on at
most `maxUnavailable` nodes at a time, or make the new one first on at most `maxSurge` nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from haulout.core.backoff import Backoff
from haulout.kube.objects import RawObject
from haulout_sandbox.controllers import edge
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.caches import Caches, controlled, in_namespace
from haulout_sandbox.controllers.claims import claimed
from haulout_sandbox.controllers.objects import DAEMON_SETS, PODS, REVISIONS, DaemonSet, Node, Pod
from haulout_sandbox.controllers.placement import pinned, should_run, target_node, tolerations, wishes_of
from haulout_sandbox.controllers.replicasets import next_available
from haulout_sandbox.controllers.revisions import History, kept_history, superfluous
from haulout_sandbox.controllers.templates import pod_from, reference, share

HASH = "controller-revision-hash"

_BACKOFF = Backoff(first=timedelta(seconds=1), factor=2, limit=timedelta(minutes=15), jitter=0)
# A look at a set goes over all nodes: with a thousand of them, one for each pod that becomes ready would take minutes.
_TOGETHER = timedelta(seconds=1)


class DaemonSets(OwningController):
    """Keeps each daemon set's pods on its nodes."""

    name = "daemonsets"
    reporter = "daemonset-controller"

    def __init__(self, caches: Caches, random: Random) -> None:
        super().__init__(caches, random)
        self._sets, self._pods, self._nodes = caches.daemon_sets, caches.pods, caches.nodes
        self._revisions = caches.revisions
        self._failures: dict[str, _Failures] = {}  # by the set's key
        self._placements: dict[str, tuple[object, dict[str, tuple[Node, tuple[bool, bool]]]]] = {}  # likewise
        self.follow(self._sets)
        self._pods.subscribe(self._note_pod)
        self._nodes.subscribe(self._note_node)

    def _note_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Look at a set when one of its pods changed; not at once for one that comes up, since all do so at a time."""
        if new is not None and new.controller is None:
            for each in in_namespace(self._sets, new.namespace):
                if each.spec.selector.matches(new.labels):
                    self.queue.add(each.key)
        pod = old if new is None else new
        owner = None if pod is None else pod.controller
        if pod is None or owner is None or owner.kind != DAEMON_SETS.kind:
            return
        if new is not None and new.active:
            self.queue.wake_at(f"{pod.namespace}/{owner.name}", self.clock.now() + _TOGETHER)
        else:
            self.queue.add(f"{pod.namespace}/{owner.name}")

    def _note_node(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None:
            alike = old.labels == new.labels and old.spec.taints == new.spec.taints
            if alike:
                return
        for each in self._sets.all():
            self.queue.add(each.key)

    async def sync(self, key: str) -> datetime | None:
        """Make, delete and replace pods, and tell how many there are."""
        daemon_set = self._sets.get(key)
        if daemon_set is None or daemon_set.deleting or daemon_set.spec.selector.selects_all:
            self._failures.pop(key, None)
            self._placements.pop(key, None)
            return None
        pods = await claimed(
            self._pods,
            daemon_set,
            daemon_set.spec.selector,
            resource=PODS,
            owner_resource=DAEMON_SETS,
            client=self.client,
        )
        history = await kept_history(
            self.caches,
            daemon_set,
            daemon_set.spec.template,
            resource=DAEMON_SETS,
            mark=HASH,
            collisions=int(daemon_set.status.get("collisionCount", 0)),
        )
        failures = self._failures.setdefault(key, _Failures())
        hashed = history.latest.labels[HASH]
        layout = laid_out(self._placement(daemon_set), pods, hashed=hashed)
        plan = decide(daemon_set, layout, failures.until, self.clock.now())
        if plan.create or plan.delete:
            await self._act(daemon_set, plan, failures, hashed=hashed)
            pods = controlled(self._pods, daemon_set.uid)
            layout = laid_out(self._placement(daemon_set), pods, hashed=hashed)
        await self._tell(daemon_set, layout, history)
        await self._forget(daemon_set, pods, history)
        available_at = next_available(pods, daemon_set.spec.min_ready_seconds, self.clock.now())
        return min([*plan.wakes, *([] if available_at is None else [available_at])], default=None)

    async def _act(self, daemon_set: DaemonSet, plan: "Plan", failures: "_Failures", *, hashed: str) -> None:
        template = daemon_set.spec.template
        owner = reference(daemon_set, DAEMON_SETS)
        async with edge.Writes(self._pods) as writes:
            for node in plan.create:
                spec = {"affinity": pinned(template["spec"], node), "tolerations": tolerations(template["spec"])}

                def pod_named(name: str, spec: RawObject = spec) -> RawObject:
                    return pod_from(
                        template,
                        name=name,
                        namespace=daemon_set.namespace,
                        owner=owner,
                        labels={HASH: hashed},
                        spec=spec,
                    )

                made = await edge.create_named(self.client, PODS, daemon_set.name, pod_named, random=self.random)
                writes.made(made)
                self.record(DAEMON_SETS, daemon_set, "SuccessfulCreate", f"Created pod: {made.name}")
            for pod in plan.delete:
                writes.at(await edge.delete(self.client, PODS, pod))
                self.record(DAEMON_SETS, daemon_set, "SuccessfulDelete", f"Deleted pod: {pod.name}")
                if pod.status.phase == "Failed":
                    failures.note(target_node(pod), self.clock.now(), self.random)

    def _placement(self, daemon_set: DaemonSet) -> "Placement":
        """Return on which nodes pods belong; nodes that have not changed since the last time are not asked again."""
        known = self._placements.get(daemon_set.key)
        if known is None or known[0] != (daemon_set.uid, daemon_set.metadata.generation):
            known = ((daemon_set.uid, daemon_set.metadata.generation), {})
        answers = known[1]
        wishes = wishes_of(daemon_set)
        fresh: dict[str, tuple[Node, tuple[bool, bool]]] = {}
        for node in self._nodes.all():
            before = answers.get(node.name)
            fresh[node.name] = before if before and before[0] is node else (node, should_run(wishes, node))
        self._placements[daemon_set.key] = (known[0], fresh)
        return {name: answer for name, (_, answer) in sorted(fresh.items())}

    async def _tell(self, daemon_set: DaemonSet, layout: "Layout", history: History) -> None:
        wanted = status(daemon_set, layout, self.clock.now()) | {"collisionCount": history.collisions or None}
        async with edge.Writes(self._sets) as writes:
            written = await edge.write_status(
                self.client, DAEMON_SETS, daemon_set, seen=daemon_set.status, wanted=wanted
            )
            writes.made(self.told(written))

    async def _forget(self, daemon_set: DaemonSet, pods: Iterable[Pod], history: History) -> None:
        hashes = {pod.labels.get(HASH) for pod in pods}
        live = {each.name for each in history.revisions if each.labels.get(HASH) in hashes}
        for each in superfluous(history, live=live, limit=daemon_set.spec.revision_history_limit):
            await edge.delete(self.client, REVISIONS, each)


class _Failures:
    """How long nodes on which a pod failed are left alone: a kubelet that refuses a pod would refuse it again."""

    def __init__(self) -> None:
        self.until: dict[str, datetime] = {}
        self._counts: dict[str, int] = {}

    def note(self, node: str, now: datetime, random: Random) -> None:
        """Note that a failed pod on `node` was taken away."""
        last = self.until.get(node)
        long_ago = last is None or now - last > 2 * _BACKOFF.limit
        self._counts[node] = 1 if long_ago else self._counts[node] + 1
        self.until[node] = now + _BACKOFF.delay(self._counts[node], random)


Placement = Mapping[str, tuple[bool, bool]]  # by node: whether a pod belongs there, and whether one may stay


@dataclass(frozen=True, slots=True)
class Layout:
    """Where pods are, and where they belong."""

    hashed: str
    runs: Mapping[str, bool]  # by node: whether a pod belongs there
    stays: Mapping[str, bool]  # by node: whether a pod that is there may stay
    pods: Mapping[str, list[Pod]]  # by node, those that are bound first, then the oldest


@dataclass(frozen=True, slots=True)
class Plan:
    """On which nodes to make pods, and which to delete."""

    create: list[str] = field(default_factory=list)
    delete: list[Pod] = field(default_factory=list)
    wakes: list[datetime] = field(default_factory=list)  # when to look again


def laid_out(placement: Placement, pods: Iterable[Pod], *, hashed: str) -> Layout:
    """Compare where pods are with where they belong."""
    by_node: dict[str, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: (not pod.spec.node_name, pod.age_key)):
        node = target_node(pod)
        # One that has ended and is being deleted waits for somebody else's finalizer: it is none of ours.
        if node and not (pod.finished and pod.deleting):
            by_node.setdefault(node, []).append(pod)
    return Layout(
        hashed,
        {name: runs for name, (runs, _) in placement.items()},
        {name: stays for name, (_, stays) in placement.items()},
        dict(sorted(by_node.items())),
    )


def decide(daemon_set: DaemonSet, layout: Layout, held_back: Mapping[str, datetime], now: datetime) -> Plan:
    """Decide what brings one pod to each node; if that is so, decide the next step of an update."""
    plan = Plan()
    surges = _surges(daemon_set)
    for node in layout.runs:
        _settle(plan, daemon_set, layout, node, held_back.get(node, now), now, surges=surges)
    for node, there in layout.pods.items():
        if node not in layout.runs:
            # Without its node an unbound pod is never bound; one that was bound is left to the pod collector.
            plan.delete.extend(pod for pod in there if not pod.spec.node_name and not pod.deleting)
    if plan.create or plan.delete or daemon_set.spec.update_strategy.type != "RollingUpdate":
        return plan
    if surges:
        nodes, misplaced = _surged(daemon_set, layout, now)
        return Plan(nodes, misplaced, plan.wakes)
    return Plan([], _replaced(daemon_set, layout, now), plan.wakes)


def _settle(
    plan: Plan, daemon_set: DaemonSet, layout: Layout, node: str, until: datetime, now: datetime, *, surges: bool
) -> None:
    """Add to `plan` what brings one pod to a node on which failed ones are left alone `until` then."""
    there = layout.pods.get(node, [])
    staying = [pod for pod in there if not pod.deleting]
    if not layout.stays[node]:
        plan.delete.extend(staying)
        return
    if layout.runs[node] and not there:
        plan.create.append(node)
        return
    running = [pod for pod in staying if not pod.finished]
    for pod in staying:
        if pod.status.phase == "Failed" and until > now:
            plan.wakes.append(until)
        elif pod.finished:
            plan.delete.append(pod)
    if not surges:
        plan.delete.extend(running[1:])
        return
    plan.delete.extend(_excess(daemon_set, layout, running, now))
    if layout.runs[node] and not running:
        plan.create.append(node)


def _surges(daemon_set: DaemonSet) -> bool:
    return _limits(daemon_set, 1)[0] > 0


def _limits(daemon_set: DaemonSet, nodes: int) -> tuple[int, int]:
    """Return on how many nodes there may be two pods, and on how many none."""
    strategy = daemon_set.spec.update_strategy
    if strategy.type != "RollingUpdate":
        return 0, 0
    surge = share(strategy.rolling_update.max_surge, nodes, round_up=True)
    unavailable = share(strategy.rolling_update.max_unavailable, nodes, round_up=True)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _excess(daemon_set: DaemonSet, layout: Layout, running: Sequence[Pod], now: datetime) -> list[Pod]:
    """Return which pods on a node are too many where a new one may run beside an old one for a while."""
    new = [pod for pod in running if pod.labels.get(HASH) == layout.hashed]
    old = [pod for pod in running if pod.labels.get(HASH) != layout.hashed]
    excess = new[1:] + old[1:]
    if new and old and (not old[0].ready or new[0].available(daemon_set.spec.min_ready_seconds, now)):
        excess.append(old[0])
    return excess


def _on_nodes(layout: Layout) -> Iterable[tuple[str, Pod | None, Pod | None]]:
    """Yield each node with its new and its old pod, not counting those that are being deleted."""
    for node, there in layout.pods.items():
        staying = [pod for pod in there if not pod.deleting]
        new = next((pod for pod in staying if pod.labels.get(HASH) == layout.hashed), None)
        old = next((pod for pod in staying if pod.labels.get(HASH) != layout.hashed), None)
        yield node, new, old


def _replaced(daemon_set: DaemonSet, layout: Layout, now: datetime) -> list[Pod]:
    """Return the old pods that may go now."""
    wait = daemon_set.spec.min_ready_seconds
    unavailable = 0
    useless: list[Pod] = []
    candidates: list[Pod] = []
    for _, new, old in _on_nodes(layout):
        if old is not None and new is None:
            if old.available(wait, now):
                candidates.append(old)
                continue
            useless.append(old)
            unavailable += 1
        elif old is not None or new is None or not new.available(wait, now):
            unavailable += 1
    allowed = _limits(daemon_set, sum(layout.runs.values()))[1]
    return useless + candidates[: max(allowed - unavailable, 0)]


def _surged(daemon_set: DaemonSet, layout: Layout, now: datetime) -> tuple[list[str], list[Pod]]:
    """Return the nodes that get a new pod beside the old one, and the old ones that have been made up for."""
    wait = daemon_set.spec.min_ready_seconds
    surging = 0
    urgent: list[str] = []
    candidates: list[str] = []
    misplaced: list[Pod] = []
    for node, new, old in _on_nodes(layout):
        if old is None:
            continue
        if new is not None:
            surging += 1
        elif not layout.runs.get(node, False):
            misplaced += [] if old.available(wait, now) else [old]
        elif old.available(wait, now):
            candidates.append(node)
        else:
            urgent.append(node)
    allowed = _limits(daemon_set, sum(layout.runs.values()))[0]
    return urgent + candidates[: max(allowed - surging, 0)], misplaced


def status(daemon_set: DaemonSet, layout: Layout, now: datetime) -> RawObject:
    """Return what the status should be."""
    wait = daemon_set.spec.min_ready_seconds
    belonging = [layout.pods[node][0] for node, runs in layout.runs.items() if runs and layout.pods.get(node)]
    desired = sum(layout.runs.values())
    available = sum(pod.available(wait, now) for pod in belonging)
    return {
        "observedGeneration": daemon_set.metadata.generation or None,
        "desiredNumberScheduled": desired,
        "currentNumberScheduled": len(belonging),
        "numberMisscheduled": sum(not runs and bool(layout.pods.get(node)) for node, runs in layout.runs.items()),
        "numberReady": sum(pod.ready for pod in belonging),
        "updatedNumberScheduled": sum(pod.labels.get(HASH) == layout.hashed for pod in belonging) or None,
        "numberAvailable": available or None,
        "numberUnavailable": max(desired - available, 0) or None,
    }
