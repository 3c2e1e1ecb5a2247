"""DaemonSet controller: one pod on each eligible node.

Follows `pkg/controller/daemon` of Kubernetes 1.36. Node affinity pins a pod to its node, and the scheduler binds it. A
cordoned or drained node keeps its daemon pods, and a new node gets them at once. Updates replace pods on at most
`maxUnavailable` nodes at a time, or create the new pod first on at most `maxSurge` nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from haulout.api.objects import RawObject
from haulout.core.backoff import Backoff
from haulout_sandbox.controllers import object_control
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.controller_history import RevisionHistory, revisions_to_delete, sync_history
from haulout_sandbox.controllers.controller_ref_manager import claim_objects
from haulout_sandbox.controllers.daemonset.node_eligibility import (
    node_name_affinity,
    node_should_run,
    scheduling_spec_of,
    target_node,
    with_daemon_tolerations,
)
from haulout_sandbox.controllers.informers import InformerFactory, controlled, in_namespace
from haulout_sandbox.controllers.objects import CONTROLLER_REVISIONS, DAEMON_SETS, PODS, DaemonSet, Node, Pod
from haulout_sandbox.controllers.pod_template import controller_ref, pod_from_template, scaled_value
from haulout_sandbox.controllers.replicaset import next_available_at

REVISION_HASH_LABEL = "controller-revision-hash"

_BACKOFF = Backoff(first=timedelta(seconds=1), factor=2, limit=timedelta(minutes=15), jitter=0)
# A pass reads all nodes: with a thousand of them, one pass per pod that becomes ready would take minutes.
_BATCH_PERIOD = timedelta(seconds=1)


class DaemonSetController(OwningController):
    """Keeps the pods of each daemon set on its nodes."""

    name = "daemonsets"
    reporting_controller = "daemonset-controller"

    def __init__(self, informers: InformerFactory, random: Random) -> None:
        super().__init__(informers, random)
        self._pods, self._nodes = informers.pods, informers.nodes
        self._daemon_sets = informers.informer_for(DAEMON_SETS)
        self._revisions = informers.informer_for(CONTROLLER_REVISIONS)
        self._failed_pod_backoffs: dict[str, _FailedPodBackoff] = {}  # by the key of the daemon set
        # by the key of the daemon set
        self._eligibility_cache: dict[str, tuple[object, dict[str, tuple[Node, tuple[bool, bool]]]]] = {}
        self.watch(self._daemon_sets)
        self._pods.subscribe(self._on_pod_change)
        self._nodes.subscribe(self._on_node_change)

    def _on_pod_change(self, old: Pod | None, new: Pod | None) -> None:
        """Enqueue the daemon set of a changed pod; batched for a pod that starts, since many start together."""
        if new is not None and new.controller is None:
            for daemon_set in in_namespace(self._daemon_sets, new.namespace):
                if daemon_set.spec.selector.matches(new.labels):
                    self.queue.add(daemon_set.key)
        pod = old if new is None else new
        owner = None if pod is None else pod.controller
        if pod is None or owner is None or owner.kind != DAEMON_SETS.kind:
            return
        if new is not None and new.is_active:
            self.queue.add_at(f"{pod.namespace}/{owner.name}", self.clock.now() + _BATCH_PERIOD)
        else:
            self.queue.add(f"{pod.namespace}/{owner.name}")

    def _on_node_change(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None:
            is_equivalent = old.labels == new.labels and old.spec.taints == new.spec.taints
            if is_equivalent:
                return
        for daemon_set in self._daemon_sets.all():
            self.queue.add(daemon_set.key)

    async def sync(self, key: str) -> datetime | None:
        """Create, delete and replace pods, and update the status."""
        daemon_set = self._daemon_sets.get(key)
        if daemon_set is None or daemon_set.is_being_deleted or daemon_set.spec.selector.is_empty:
            self._failed_pod_backoffs.pop(key, None)
            self._eligibility_cache.pop(key, None)
            return None
        pods = await claim_objects(
            self._pods,
            daemon_set,
            daemon_set.spec.selector,
            resource=PODS,
            owner_resource=DAEMON_SETS,
            client=self.client,
        )
        history = await sync_history(
            self.informers,
            daemon_set,
            daemon_set.spec.template,
            resource=DAEMON_SETS,
            hash_label=REVISION_HASH_LABEL,
            collisions=int(daemon_set.status.get("collisionCount", 0)),
        )
        backoff = self._failed_pod_backoffs.setdefault(key, _FailedPodBackoff())
        revision_hash = history.latest.labels[REVISION_HASH_LABEL]
        placement = place_pods(self._eligible_nodes(daemon_set), pods, revision_hash=revision_hash)
        decision = decide(daemon_set, placement, backoff.retry_at, self.clock.now())
        if decision.create or decision.delete:
            await self._execute(daemon_set, decision, backoff, revision_hash=revision_hash)
            pods = controlled(self._pods, daemon_set.uid)
            placement = place_pods(self._eligible_nodes(daemon_set), pods, revision_hash=revision_hash)
        await self._update_status(daemon_set, placement, history)
        await self._delete_old_revisions(daemon_set, pods, history)
        available_at = next_available_at(pods, daemon_set.spec.min_ready_seconds, self.clock.now())
        return min([*decision.requeue_times, *([] if available_at is None else [available_at])], default=None)

    async def _execute(
        self, daemon_set: DaemonSet, decision: "DaemonSetDecision", backoff: "_FailedPodBackoff", *, revision_hash: str
    ) -> None:
        template = daemon_set.spec.template
        owner = controller_ref(daemon_set, DAEMON_SETS)
        async with object_control.WriteBarrier(self._pods) as writes:
            for node in decision.create:
                spec = {
                    "affinity": node_name_affinity(template["spec"], node),
                    "tolerations": with_daemon_tolerations(template["spec"]),
                }

                def pod_with_name(name: str, spec: RawObject = spec) -> RawObject:
                    return pod_from_template(
                        template,
                        name=name,
                        namespace=daemon_set.namespace,
                        owner=owner,
                        labels={REVISION_HASH_LABEL: revision_hash},
                        spec=spec,
                    )

                created = await object_control.create_with_generated_name(
                    self.client, PODS, daemon_set.name, pod_with_name, random=self.random
                )
                writes.record(created)
                self.record_event(DAEMON_SETS, daemon_set, "SuccessfulCreate", f"Created pod: {created.name}")
            for pod in decision.delete:
                writes.record_version(await object_control.delete(self.client, PODS, pod))
                self.record_event(DAEMON_SETS, daemon_set, "SuccessfulDelete", f"Deleted pod: {pod.name}")
                if pod.status.phase == "Failed":
                    backoff.record_failure(target_node(pod), self.clock.now(), self.random)

    def _eligible_nodes(self, daemon_set: DaemonSet) -> "NodeEligibility":
        """Return the eligibility of each node; unchanged nodes are cached."""
        cached = self._eligibility_cache.get(daemon_set.key)
        if cached is None or cached[0] != (daemon_set.uid, daemon_set.metadata.generation):
            cached = ((daemon_set.uid, daemon_set.metadata.generation), {})
        cached_answers = cached[1]
        scheduling_spec = scheduling_spec_of(daemon_set)
        answers_by_node: dict[str, tuple[Node, tuple[bool, bool]]] = {}
        for node in self._nodes.all():
            previous = cached_answers.get(node.name)
            answers_by_node[node.name] = (
                previous if previous and previous[0] is node else (node, node_should_run(scheduling_spec, node))
            )
        self._eligibility_cache[daemon_set.key] = (cached[0], answers_by_node)
        return {name: answer for name, (_, answer) in sorted(answers_by_node.items())}

    async def _update_status(
        self, daemon_set: DaemonSet, placement: "DaemonPodPlacement", history: RevisionHistory
    ) -> None:
        desired = daemon_set_status(daemon_set, placement, self.clock.now()) | {
            "collisionCount": history.collisions or None
        }
        async with object_control.WriteBarrier(self._daemon_sets) as writes:
            written = await object_control.update_status(
                self.client, DAEMON_SETS, daemon_set, current=daemon_set.status, desired=desired
            )
            writes.record(self.record_own_status(written))

    async def _delete_old_revisions(self, daemon_set: DaemonSet, pods: Iterable[Pod], history: RevisionHistory) -> None:
        hashes_in_use = {pod.labels.get(REVISION_HASH_LABEL) for pod in pods}
        live_revisions = {
            revision.name for revision in history.revisions if revision.labels.get(REVISION_HASH_LABEL) in hashes_in_use
        }
        for revision in revisions_to_delete(
            history, names_in_use=live_revisions, limit=daemon_set.spec.revision_history_limit
        ):
            await object_control.delete(self.client, CONTROLLER_REVISIONS, revision)


class _FailedPodBackoff:
    """Backoff for nodes on which pods failed: a kubelet that rejects a pod would reject it again."""

    def __init__(self) -> None:
        self.retry_at: dict[str, datetime] = {}
        self._counts: dict[str, int] = {}

    def record_failure(self, node: str, now: datetime, random: Random) -> None:
        """Note that a failed pod on `node` was deleted."""
        last = self.retry_at.get(node)
        is_expired = last is None or now - last > 2 * _BACKOFF.limit
        self._counts[node] = 1 if is_expired else self._counts[node] + 1
        self.retry_at[node] = now + _BACKOFF.delay(self._counts[node], random)


# by node: whether a pod should run there, and whether an existing one may continue
NodeEligibility = Mapping[str, tuple[bool, bool]]


@dataclass(frozen=True, slots=True)
class DaemonPodPlacement:
    """Where pods run, and where they should run."""

    revision_hash: str
    should_run: Mapping[str, bool]  # by node: whether a pod should run there
    should_continue_running: Mapping[str, bool]  # by node: whether an existing pod may continue
    pods_by_node: Mapping[str, list[Pod]]  # by node; bound pods first, then the oldest


@dataclass(frozen=True, slots=True)
class DaemonSetDecision:
    """The nodes on which to create pods, and the pods to delete."""

    create: list[str] = field(default_factory=list)
    delete: list[Pod] = field(default_factory=list)
    requeue_times: list[datetime] = field(default_factory=list)  # when to requeue


def place_pods(eligibility: NodeEligibility, pods: Iterable[Pod], *, revision_hash: str) -> DaemonPodPlacement:
    """Compare where pods run with where they should run."""
    by_node: dict[str, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: (not pod.spec.node_name, pod.creation_order)):
        node = target_node(pod)
        # A finished pod that is being deleted waits only for another finalizer: ignore it.
        if node and not (pod.is_finished and pod.is_being_deleted):
            by_node.setdefault(node, []).append(pod)
    return DaemonPodPlacement(
        revision_hash,
        {name: should_run for name, (should_run, _) in eligibility.items()},
        {name: should_continue_running for name, (_, should_continue_running) in eligibility.items()},
        dict(sorted(by_node.items())),
    )


def decide(
    daemon_set: DaemonSet, placement: DaemonPodPlacement, retry_times: Mapping[str, datetime], now: datetime
) -> DaemonSetDecision:
    """Decide how to get one pod on each node; if there is one, decide the next step of an update."""
    decision = DaemonSetDecision()
    has_surge = _has_surge(daemon_set)
    for node in placement.should_run:
        _decide_for_node(decision, daemon_set, placement, node, retry_times.get(node, now), now, has_surge=has_surge)
    for node, pods in placement.pods_by_node.items():
        if node not in placement.should_run:
            # A pod without an existing node is never bound if pending; a bound one is left to the pod garbage
            # collector.
            decision.delete.extend(pod for pod in pods if not pod.spec.node_name and not pod.is_being_deleted)
    if decision.create or decision.delete or daemon_set.spec.update_strategy.type != "RollingUpdate":
        return decision
    if has_surge:
        nodes, pods_to_delete = _surge_step(daemon_set, placement, now)
        return DaemonSetDecision(nodes, pods_to_delete, decision.requeue_times)
    return DaemonSetDecision([], _pods_to_replace(daemon_set, placement, now), decision.requeue_times)


def _decide_for_node(
    decision: DaemonSetDecision,
    daemon_set: DaemonSet,
    placement: DaemonPodPlacement,
    node: str,
    retry_at: datetime,
    now: datetime,
    *,
    has_surge: bool,
) -> None:
    """Add to `decision` what leads to one pod on a node; failed pods there are in backoff until `retry_at`."""
    pods = placement.pods_by_node.get(node, [])
    remaining = [pod for pod in pods if not pod.is_being_deleted]
    if not placement.should_continue_running[node]:
        decision.delete.extend(remaining)
        return
    if placement.should_run[node] and not pods:
        decision.create.append(node)
        return
    running = [pod for pod in remaining if not pod.is_finished]
    for pod in remaining:
        if pod.status.phase == "Failed" and retry_at > now:
            decision.requeue_times.append(retry_at)
        elif pod.is_finished:
            decision.delete.append(pod)
    if not has_surge:
        decision.delete.extend(running[1:])
        return
    decision.delete.extend(_excess_pods(daemon_set, placement, running, now))
    if placement.should_run[node] and not running:
        decision.create.append(node)


def _has_surge(daemon_set: DaemonSet) -> bool:
    return _surge_and_unavailable(daemon_set, 1)[0] > 0


def _surge_and_unavailable(daemon_set: DaemonSet, nodes: int) -> tuple[int, int]:
    """Return on how many nodes there may be two pods, and on how many none."""
    strategy = daemon_set.spec.update_strategy
    if strategy.type != "RollingUpdate":
        return 0, 0
    surge = scaled_value(strategy.rolling_update.max_surge, nodes, round_up=True)
    unavailable = scaled_value(strategy.rolling_update.max_unavailable, nodes, round_up=True)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _excess_pods(
    daemon_set: DaemonSet, placement: DaemonPodPlacement, running: Sequence[Pod], now: datetime
) -> list[Pod]:
    """Return surplus pods on a node where a new pod may run beside an old one during a surge."""
    new = [pod for pod in running if pod.labels.get(REVISION_HASH_LABEL) == placement.revision_hash]
    old = [pod for pod in running if pod.labels.get(REVISION_HASH_LABEL) != placement.revision_hash]
    excess = new[1:] + old[1:]
    if new and old and (not old[0].is_ready or new[0].is_available(daemon_set.spec.min_ready_seconds, now)):
        excess.append(old[0])
    return excess


def _old_and_new_pods(placement: DaemonPodPlacement) -> Iterable[tuple[str, Pod | None, Pod | None]]:
    """Yield each node with its new and its old pod, ignoring pods that are being deleted."""
    for node, pods in placement.pods_by_node.items():
        remaining = [pod for pod in pods if not pod.is_being_deleted]
        new = next((pod for pod in remaining if pod.labels.get(REVISION_HASH_LABEL) == placement.revision_hash), None)
        old = next((pod for pod in remaining if pod.labels.get(REVISION_HASH_LABEL) != placement.revision_hash), None)
        yield node, new, old


def _pods_to_replace(daemon_set: DaemonSet, placement: DaemonPodPlacement, now: datetime) -> list[Pod]:
    """Return the old pods that may be deleted now."""
    min_ready_seconds = daemon_set.spec.min_ready_seconds
    unavailable = 0
    unavailable_pods: list[Pod] = []
    candidates: list[Pod] = []
    for _, new, old in _old_and_new_pods(placement):
        if old is not None and new is None:
            if old.is_available(min_ready_seconds, now):
                candidates.append(old)
                continue
            unavailable_pods.append(old)
            unavailable += 1
        elif old is not None or new is None or not new.is_available(min_ready_seconds, now):
            unavailable += 1
    allowed = _surge_and_unavailable(daemon_set, sum(placement.should_run.values()))[1]
    return unavailable_pods + candidates[: max(allowed - unavailable, 0)]


def _surge_step(daemon_set: DaemonSet, placement: DaemonPodPlacement, now: datetime) -> tuple[list[str], list[Pod]]:
    """Return the nodes that get a new pod beside the old one, and the old pods whose replacement is available."""
    min_ready_seconds = daemon_set.spec.min_ready_seconds
    surging = 0
    unavailable_nodes: list[str] = []
    candidates: list[str] = []
    pods_to_delete: list[Pod] = []
    for node, new, old in _old_and_new_pods(placement):
        if old is None:
            continue
        if new is not None:
            surging += 1
        elif not placement.should_run.get(node, False):
            pods_to_delete += [] if old.is_available(min_ready_seconds, now) else [old]
        elif old.is_available(min_ready_seconds, now):
            candidates.append(node)
        else:
            unavailable_nodes.append(node)
    allowed = _surge_and_unavailable(daemon_set, sum(placement.should_run.values()))[0]
    return unavailable_nodes + candidates[: max(allowed - surging, 0)], pods_to_delete


def daemon_set_status(daemon_set: DaemonSet, placement: DaemonPodPlacement, now: datetime) -> RawObject:
    min_ready_seconds = daemon_set.spec.min_ready_seconds
    scheduled_pods = [
        placement.pods_by_node[node][0]
        for node, should_run in placement.should_run.items()
        if should_run and placement.pods_by_node.get(node)
    ]
    desired = sum(placement.should_run.values())
    available = sum(pod.is_available(min_ready_seconds, now) for pod in scheduled_pods)
    return {
        "observedGeneration": daemon_set.metadata.generation or None,
        "desiredNumberScheduled": desired,
        "currentNumberScheduled": len(scheduled_pods),
        "numberMisscheduled": sum(
            not should_run and bool(placement.pods_by_node.get(node))
            for node, should_run in placement.should_run.items()
        ),
        "numberReady": sum(pod.is_ready for pod in scheduled_pods),
        "updatedNumberScheduled": sum(
            pod.labels.get(REVISION_HASH_LABEL) == placement.revision_hash for pod in scheduled_pods
        )
        or None,
        "numberAvailable": available or None,
        "numberUnavailable": max(desired - available, 0) or None,
    }
