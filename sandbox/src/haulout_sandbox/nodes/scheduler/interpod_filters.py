"""Filters that depend on other pods: topology spread, and inter-pod affinity and anti-affinity of both sides."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from haulout_sandbox.nodes.informers import NodeView, PodView
from haulout_sandbox.nodes.pod_spec import PodAffinityTerm, TopologySpreadConstraint
from haulout_sandbox.nodes.scheduler.cache import EMPTY_NODE_INFO, SchedulerCache
from haulout_sandbox.nodes.scheduler.node_filters import FilterFailure, matches_node_affinity, tolerates_taint

_MISSING_TOPOLOGY_LABEL = FilterFailure(
    ("node(s) didn't match pod topology spread constraints (missing required label)",), is_unresolvable=True
)
_SKEW_EXCEEDED = FilterFailure(("node(s) didn't match pod topology spread constraints",), is_unresolvable=False)
_AFFINITY_MISMATCH = FilterFailure(("node(s) didn't match pod affinity rules",), is_unresolvable=True)
_ANTI_AFFINITY_MISMATCH = FilterFailure(("node(s) didn't match pod anti-affinity rules",), is_unresolvable=False)
_EXISTING_ANTI_AFFINITY_MISMATCH = FilterFailure(
    ("node(s) didn't satisfy existing pods anti-affinity rules",), is_unresolvable=False
)


class InterPodFilters:
    """The inter-pod filters of one pod: counted once per pod, then evaluated per node."""

    def __init__(
        self, pod: PodView, nodes: Sequence[NodeView], labels: Mapping[str, Mapping[str, str]], cache: SchedulerCache
    ) -> None:
        self._spread_constraints = [
            _SpreadFilter(pod, constraint, nodes, cache)
            for constraint in pod.spreads
            if constraint.when_unsatisfiable == "DoNotSchedule"
        ]
        affinity_terms, anti_affinity_terms = (
            pod.affinity.pod_affinity.required,
            pod.affinity.pod_anti_affinity.required,
        )
        self._affinity_domains = [(term, _domains_with(term, pod, labels, cache)) for term in affinity_terms]
        self._anti_affinity_domains = [(term, _domains_with(term, pod, labels, cache)) for term in anti_affinity_terms]
        self._existing_anti_affinity = _domains_with_existing_anti_affinity(pod, labels, cache)
        # The first pod of a group with affinity to itself finds no other, and must be schedulable anyway.
        self._may_match_itself = (
            bool(affinity_terms)
            and not any(domains for _, domains in self._affinity_domains)
            and _matches_own_terms(pod, affinity_terms)
        )

        self.is_empty = not (
            self._spread_constraints
            or self._affinity_domains
            or self._anti_affinity_domains
            or self._existing_anti_affinity
        )

    def filter(self, node: NodeView) -> FilterFailure | None:
        """Return why the pod cannot run on this node because of other pods."""
        for constraint in self._spread_constraints:
            if failure := constraint.filter(node):
                return failure
        labels = node.labels
        if any(labels.get(key) == value for key, value in self._existing_anti_affinity):
            return _EXISTING_ANTI_AFFINITY_MISMATCH
        if any(labels.get(term.topology_key) in domains for term, domains in self._anti_affinity_domains):
            return _ANTI_AFFINITY_MISMATCH
        for term, domains in self._affinity_domains:
            domain = labels.get(term.topology_key)
            if domain is None or (domain not in domains and not self._may_match_itself):
                return _AFFINITY_MISMATCH
        return None


class _SpreadFilter:
    def __init__(
        self, pod: PodView, constraint: TopologySpreadConstraint, nodes: Sequence[NodeView], cache: SchedulerCache
    ) -> None:
        self._constraint = constraint
        self._counts: Counter[str] = Counter()
        self._self_match = int(_matches_constraint(constraint, pod, pod))
        for node in nodes:
            domain = node.labels.get(constraint.topology_key)
            if domain is None or not _is_counted_node(constraint, pod, node):
                continue
            pods = (
                cache.node_infos.get(node.key, EMPTY_NODE_INFO).pods.values() if _is_selective(constraint, pod) else ()
            )
            self._counts[domain] += sum(
                _matches_constraint(constraint, pod, existing_pod)
                for existing_pod in pods
                if existing_pod.deleted_at is None
            )
        too_few = constraint.min_domains is not None and len(self._counts) < constraint.min_domains
        self._min_count = 0 if too_few else min(self._counts.values(), default=0)

    def filter(self, node: NodeView) -> FilterFailure | None:
        domain = node.labels.get(self._constraint.topology_key)
        if domain is None:
            return _MISSING_TOPOLOGY_LABEL
        skew = self._counts[domain] + self._self_match - self._min_count
        return _SKEW_EXCEEDED if skew > self._constraint.max_skew else None


def _is_counted_node(constraint: TopologySpreadConstraint, pod: PodView, node: NodeView) -> bool:
    if constraint.node_affinity_policy == "Honor" and not matches_node_affinity(pod, node):
        return False
    return constraint.node_taints_policy != "Honor" or all(
        taint.effect == "PreferNoSchedule" or tolerates_taint(pod.tolerations, taint) for taint in node.taints
    )


def _matches_constraint(constraint: TopologySpreadConstraint, pod: PodView, other: PodView) -> bool:
    if other.namespace != pod.namespace or constraint.label_selector is None:
        return False
    label_keys_match = all(
        key not in pod.labels or other.labels.get(key) == pod.labels[key] for key in constraint.match_label_keys
    )
    return label_keys_match and constraint.label_selector.matches(other.labels)


def _is_selective(constraint: TopologySpreadConstraint, pod: PodView) -> bool:
    """Return whether the constraint selects some pods; for an empty selector, kube-scheduler counts none."""
    selector = constraint.label_selector
    has_label_keys = any(key in pod.labels for key in constraint.match_label_keys)
    return has_label_keys or (selector is not None and not selector.is_empty)


def _term_selects(term: PodAffinityTerm, owner: PodView, other: PodView) -> bool:
    """Return whether `term` of the pod `owner` matches the pod `other`."""
    all_namespaces = term.namespace_selector is not None and term.namespace_selector.is_empty
    namespaces = term.namespaces or (() if term.namespace_selector is not None else (owner.namespace,))
    namespace_matches = all_namespaces or other.namespace in namespaces
    return namespace_matches and term.label_selector is not None and term.label_selector.matches(other.labels)


def _domains_with(
    term: PodAffinityTerm, pod: PodView, labels: Mapping[str, Mapping[str, str]], cache: SchedulerCache
) -> set[str]:
    """Return the topology domains with a pod that the term matches."""
    domains: set[str] = set()
    for name, node_info in cache.node_infos.items():
        domain = labels.get(name, {}).get(term.topology_key)
        if domain is None or domain in domains:
            continue
        if any(_term_selects(term, pod, existing_pod) for existing_pod in node_info.pods.values()):
            domains.add(domain)
    return domains


def _domains_with_existing_anti_affinity(
    pod: PodView, labels: Mapping[str, Mapping[str, str]], cache: SchedulerCache
) -> frozenset[tuple[str, str]]:
    """Return the domains, by key and value, in which an existing pod has anti-affinity to this one."""
    domains: set[tuple[str, str]] = set()
    for existing_pod in cache.pods_with_anti_affinity.values():
        node_labels = labels.get(cache.node_of(existing_pod.key) or "", {})
        for term in existing_pod.affinity.pod_anti_affinity.required:
            domain = node_labels.get(term.topology_key)
            if domain is not None and _term_selects(term, existing_pod, pod):
                domains.add((term.topology_key, domain))
    return frozenset(domains)


def _matches_own_terms(pod: PodView, terms: Iterable[PodAffinityTerm]) -> bool:
    return all(_term_selects(term, pod, pod) for term in terms)
