"""Filtering and scoring of nodes for a pod, as pure functions.

The filters are those of kube-scheduler that matter to node maintenance, in its order and with its messages, because
people and tools read them: unschedulable, taints, node selector and affinity, host ports, resources, topology spread,
inter-pod affinity. Of the nodes that pass, the scheduler takes the one that the pod prefers, with the fewest of its
siblings, in the zone with the fewest siblings, and with the least allocation, in this order; among equals the first
from a starting point that advances. In a large cluster a hundred feasible nodes are enough, as in kube-scheduler.

Not implemented: volumes, preferred inter-pod affinity (siblings are spread anyway), dynamic resources, and preemption:
a pod of high priority is scheduled first, but evicts none. A namespaceSelector in an affinity term counts only if it
selects all namespaces.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import NamedTuple

from haulout.api.objects import Taint
from haulout_sandbox.nodes.informers import NodeView, PodView
from haulout_sandbox.nodes.pod_spec_decoder import CPU, MEMORY
from haulout_sandbox.nodes.scheduler.cache import EMPTY_NODE_INFO, NodeInfo, SchedulerCache
from haulout_sandbox.nodes.scheduler.interpod_filters import InterPodFilters
from haulout_sandbox.nodes.scheduler.node_filters import FilterFailure, matches_node_affinity, tolerates_taint

UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
ZONE_LABEL = "topology.kubernetes.io/zone"
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"
PODS_RESOURCE = "pods"

_FEASIBLE_NODES_TO_FIND = 100
_MAX_CACHED_REQUIREMENTS = 10_000
_RANK_BITS = 24  # bits per part of a rank: no part counts that many pods or taints
_NODE_NAME_FIELD = "metadata.name"


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """The node chosen for a pod, or why there is none."""

    node: str | None
    failure_message: str = ""


_UNSCHEDULABLE = FilterFailure(("node(s) were unschedulable",), is_unresolvable=True)
_UNTOLERATED_TAINT = FilterFailure(("node(s) had untolerated taint(s)",), is_unresolvable=True)
_NODE_AFFINITY_MISMATCH = FilterFailure(("node(s) didn't match Pod's node affinity/selector",), is_unresolvable=True)
_PORT_CONFLICT = FilterFailure(("node(s) didn't have free ports for the requested pod ports",), is_unresolvable=False)


class _CandidateNode(NamedTuple):
    """A node that passes the pod-independent filters, with what the other filters and scores need."""

    node: NodeView
    name: str
    zone: str
    preference_rank: int
    max_pods: int  # pod capacity
    free_before_pods: tuple[tuple[str, int], ...]  # by resource: how much other pods may use
    cpu: int
    memory: int


class _FilterResult(NamedTuple):
    """The filter result of a node for pods with equal requirements, while its usage is unchanged."""

    generation: int
    failure: FilterFailure | None
    allocation: int


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The nodes for pods with equal requirements, before other pods are considered."""

    nodes: tuple[_CandidateNode, ...]
    failures: tuple[FilterFailure, ...]  # of all other nodes
    results: dict[str, _FilterResult] = field(default_factory=dict)  # the latest, reused for the next replica


class NodeSnapshot:
    """All nodes, with indexes of what filters look up."""

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        self.nodes = tuple(nodes)
        self._by_name = {node.key: node for node in self.nodes}
        self.labels: dict[str, Mapping[str, str]] = {node.key: node.labels for node in self.nodes}
        self.zone_by_node: dict[str, str] = {node.key: node.labels.get(ZONE_LABEL, "") for node in self.nodes}
        self._candidates: dict[object, _Candidates] = {}

    def candidates(self, pod: PodView) -> _Candidates:
        """Return the candidates for pods with the requirements of `pod`; cached, since replicas come together."""
        cached = self._candidates.get(pod.scheduling_key)
        if cached is None:
            if len(self._candidates) >= _MAX_CACHED_REQUIREMENTS:
                self._candidates.clear()
            cached = self._candidates[pod.scheduling_key] = self._find_candidates(pod)
        return cached

    def _named_nodes(self, pod: PodView) -> Iterable[NodeView]:
        names = required_node_names(pod)
        if names is None:
            return self.nodes
        return [self._by_name[name] for name in sorted(names) if name in self._by_name]

    def _find_candidates(self, pod: PodView) -> _Candidates:
        candidates: list[_CandidateNode] = []
        failures: list[FilterFailure] = []
        for node in self._named_nodes(pod):
            if failure := filter_node(pod, node):
                failures.append(failure)
            else:
                candidates.append(_candidate(pod, node))
        return _Candidates(tuple(candidates), tuple(failures))


def _candidate(pod: PodView, node: NodeView) -> _CandidateNode:
    allocatable = node.allocatable
    return _CandidateNode(
        node=node,
        name=node.key,
        zone=node.labels.get(ZONE_LABEL, ""),
        preference_rank=_preference_rank(pod, node),
        max_pods=allocatable.get(PODS_RESOURCE, 0),
        free_before_pods=tuple((name, allocatable.get(name, 0) - amount) for name, amount in pod.requests.items()),
        cpu=max(allocatable.get(CPU, 0), 1),
        memory=max(allocatable.get(MEMORY, 0), 1),
    )


_NO_PODS: Mapping[str, int] = {}


def schedule_pod(pod: PodView, snapshot: NodeSnapshot, cache: SchedulerCache, *, start: int = 0) -> ScheduleResult:
    """Return the node for `pod`; the search begins at number `start`."""
    if not snapshot.nodes:
        return ScheduleResult(None, "no nodes available to schedule pods")
    candidates = snapshot.candidates(pod)
    search = _NodeSearch(pod, snapshot, cache, candidates)
    for batch in _batches(candidates.nodes, start):
        if chosen := search.select_node(batch):
            return ScheduleResult(chosen)
    return ScheduleResult(None, failure_message([*candidates.failures, *search.failures], nodes=len(snapshot.nodes)))


class _NodeSearch:
    """The search for the best node for one pod."""

    def __init__(self, pod: PodView, snapshot: NodeSnapshot, cache: SchedulerCache, candidates: _Candidates) -> None:
        self.failures: list[FilterFailure] = []
        self._results = candidates.results
        self._pod = pod
        self._node_infos = cache.node_infos
        self._interpod_filters = InterPodFilters(pod, snapshot.nodes, snapshot.labels, cache)
        self._siblings_per_node: Mapping[str, int] = cache.pods_per_node_by_owner.get(pod.owner_uid, _NO_PODS)
        needs_zones = bool(self._siblings_per_node) and len(candidates.nodes) > 1
        self._siblings_per_zone = cache.pods_per_zone(pod.owner_uid, snapshot.zone_by_node) if needs_zones else _NO_PODS

    def select_node(self, candidates: Sequence[_CandidateNode]) -> str | None:
        """Return the best of these nodes that passes all filters, or None.

        The allocation of a node matters only among nodes that are otherwise equal, and the other scores are known
        without filtering. So only the best-ranked nodes are filtered, and the next rank only if none of them passes.
        """
        per_node, per_zone = self._siblings_per_node, self._siblings_per_zone
        ranks = [
            candidate.preference_rank
            + (per_node.get(candidate.name, 0) << _RANK_BITS)
            + per_zone.get(candidate.zone, 0)  # one number, like the digits of one
            for candidate in candidates
        ]
        for rank in sorted(set(ranks)):
            if chosen := self._least_allocated(compress(candidates, map(rank.__eq__, ranks))):
                return chosen
        return None

    def _least_allocated(self, candidates: Iterable[_CandidateNode]) -> str | None:
        node_infos, results = self._node_infos, self._results
        interpod_filters = None if self._interpod_filters.is_empty else self._interpod_filters
        lowest, chosen = 0, None
        for candidate in candidates:
            node_info = node_infos.get(candidate.name, EMPTY_NODE_INFO)
            result = results.get(candidate.name)
            if result is None or result.generation != node_info.generation:
                result = results[candidate.name] = _filter_with_pods(self._pod, candidate, node_info)
            failure = result.failure or (interpod_filters and interpod_filters.filter(candidate.node))
            if failure:
                self.failures.append(failure)
            elif chosen is None or result.allocation < lowest:
                lowest, chosen = result.allocation, candidate.name
        return chosen


def _filter_with_pods(pod: PodView, candidate: _CandidateNode, node_info: NodeInfo) -> _FilterResult:
    failure = _filter_by_pods(pod, candidate, node_info)
    return _FilterResult(
        node_info.generation, failure, 0 if failure else _allocation_per_mille(pod, candidate, node_info)
    )


def filter_node(pod: PodView, node: NodeView) -> FilterFailure | None:
    """Return why the pod cannot run on this node, regardless of other pods."""
    if node.unschedulable and not tolerates_taint(pod.tolerations, UNSCHEDULABLE_TAINT):
        return _UNSCHEDULABLE
    if node.taints and not all(
        taint.effect == "PreferNoSchedule" or tolerates_taint(pod.tolerations, taint) for taint in node.taints
    ):
        return _UNTOLERATED_TAINT
    return None if matches_node_affinity(pod, node) else _NODE_AFFINITY_MISMATCH


def _filter_by_pods(pod: PodView, candidate: _CandidateNode, node_info: NodeInfo) -> FilterFailure | None:
    """Return why the pod cannot run on this node because of the pods on it."""
    if pod.host_ports and any(node_info.used_ports[port] for port in pod.host_ports):
        return _PORT_CONFLICT
    if len(node_info.pods) >= candidate.max_pods:
        return _insufficient_resources(pod, candidate.node, node_info)
    requested = node_info.requested
    for name, free in candidate.free_before_pods:
        if requested.get(name, 0) > free:
            return _insufficient_resources(pod, candidate.node, node_info)
    return None


def required_node_names(pod: PodView) -> frozenset[str] | None:
    """Return the only possible nodes, if the pod's affinity names them, as for pods of a DaemonSet."""
    required = pod.affinity.node_affinity.required
    if required is None:
        return None
    node_names: set[str] = set()
    for term in required.node_selector_terms:
        names = [
            requirement.values
            for requirement in term.match_fields
            if requirement.key == _NODE_NAME_FIELD and requirement.operator == "In"
        ]
        if not names:
            return None
        node_names.update(names[0])
    return frozenset(node_names)


def failure_message(failures: Sequence[FilterFailure], *, nodes: int) -> str:
    """Return why no node fits, in kube-scheduler's words."""
    reasons = Counter(reason for failure in failures for reason in failure.reasons)
    if not_evaluated := nodes - len(failures):
        reasons["node(s) didn't satisfy plugin(s) [NodeAffinity]"] += not_evaluated
    unresolvable = sum(failure.is_unresolvable for failure in failures) + not_evaluated
    preemption_reasons = {
        "Preemption is not helpful for scheduling": unresolvable,
        "No preemption victims found for incoming pod": nodes - unresolvable,
    }
    prefix = f"0/{nodes} nodes are available:"
    return (
        f"{prefix} {_format_counts(reasons)}. no new claims to deallocate, "
        f"preemption: {prefix} {_format_counts(preemption_reasons)}."
    )


def _insufficient_resources(pod: PodView, node: NodeView, node_info: NodeInfo) -> FilterFailure:
    allocatable, requested = node.allocatable, node_info.requested
    reasons = ["Too many pods"] if len(node_info.pods) >= allocatable.get(PODS_RESOURCE, 0) else []
    insufficient = [
        (name, amount)
        for name, amount in pod.requests.items()
        if amount > allocatable.get(name, 0) - requested.get(name, 0)
    ]
    reasons += [f"Insufficient {name}" for name, _ in insufficient]
    return FilterFailure(
        tuple(reasons), is_unresolvable=any(amount > allocatable.get(name, 0) for name, amount in insufficient)
    )


def _preference_rank(pod: PodView, node: NodeView) -> int:
    """Return the first digits of a rank (less is better): the pod's preference, then PreferNoSchedule taints."""
    preferred = pod.affinity.node_affinity.preferred
    affinity_score = (
        sum(element.weight for element in preferred if element.preference.matches(node)) if preferred else 0
    )
    prefer_no_schedule = (
        [element for element in node.taints if element.effect == "PreferNoSchedule"] if node.taints else ()
    )
    taint_score = sum(not tolerates_taint(pod.tolerations, taint) for taint in prefer_no_schedule)
    return ((-affinity_score << _RANK_BITS) + taint_score) << 2 * _RANK_BITS


def _allocation_per_mille(pod: PodView, candidate: _CandidateNode, node_info: NodeInfo) -> int:
    """Return the allocation of the node with this pod, in thousandths: the sum for cpu, memory and number of pods."""
    requested, requests = node_info.requested, pod.requests
    return (
        1000 * (len(node_info.pods) + 1) // max(candidate.max_pods, 1)
        + 1000 * (requested.get(CPU, 0) + requests.get(CPU, 0)) // candidate.cpu
        + 1000 * (requested.get(MEMORY, 0) + requests.get(MEMORY, 0)) // candidate.memory
    )


def _batches(candidates: Sequence[_CandidateNode], start: int) -> Iterator[Sequence[_CandidateNode]]:
    """Yield all candidates in batches that are large enough to choose from, beginning at number `start`."""
    count = len(candidates)
    first = start % count if candidates else 0
    for batch_start in range(first, first + count, _FEASIBLE_NODES_TO_FIND):
        batch_end = min(batch_start + _FEASIBLE_NODES_TO_FIND, first + count)
        if batch_start >= count:
            yield candidates[batch_start - count : batch_end - count]
        else:
            yield (
                candidates[batch_start:batch_end]
                if batch_end <= count
                else (*candidates[batch_start:], *candidates[: batch_end - count])
            )


def _format_counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items() if count))
