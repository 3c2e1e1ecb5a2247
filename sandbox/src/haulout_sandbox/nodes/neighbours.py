"""The rules about other pods: topology spread, and affinity and anti-affinity between pods, of both sides."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from haulout_sandbox.nodes.occupancy import EMPTY, Occupancy
from haulout_sandbox.nodes.refusals import Refusal, tolerates, wants
from haulout_sandbox.nodes.specs import PodTerm, Spread
from haulout_sandbox.nodes.view import NodeView, PodView

_NO_DOMAIN = Refusal(("node(s) didn't match pod topology spread constraints (missing required label)",), final=True)
_SKEWED = Refusal(("node(s) didn't match pod topology spread constraints",), final=False)
_NOT_NEAR = Refusal(("node(s) didn't match pod affinity rules",), final=True)
_TOO_NEAR = Refusal(("node(s) didn't match pod anti-affinity rules",), final=False)
_UNWELCOME = Refusal(("node(s) didn't satisfy existing pods anti-affinity rules",), final=False)


class Neighbourhood:
    """The rules about other pods: counted once for a pod, then asked for each node."""

    def __init__(
        self, pod: PodView, nodes: Sequence[NodeView], labels: Mapping[str, Mapping[str, str]], occupancy: Occupancy
    ) -> None:
        self._spreads = [
            _Skew(pod, spread, nodes, occupancy)
            for spread in pod.spreads
            if spread.when_unsatisfiable == "DoNotSchedule"
        ]
        near, far = pod.affinity.pod_affinity.required, pod.affinity.pod_anti_affinity.required
        self._near = [(term, _domains_with(term, pod, labels, occupancy)) for term in near]
        self._far = [(term, _domains_with(term, pod, labels, occupancy)) for term in far]
        self._unwelcome = _unwelcome(pod, labels, occupancy)
        # The first of a group that wants to be together has nobody to join, and must not wait for that for ever.
        self._is_first = bool(near) and not any(domains for _, domains in self._near) and _joins_itself(pod, near)

        self.is_quiet = not (self._spreads or self._near or self._far or self._unwelcome)

    def refuse(self, node: NodeView) -> Refusal | None:
        """Return why the pod cannot go to this node because of other pods."""
        for spread in self._spreads:
            if refusal := spread.refuse(node):
                return refusal
        labels = node.labels
        if any(labels.get(key) == value for key, value in self._unwelcome):
            return _UNWELCOME
        if any(labels.get(term.topology_key) in domains for term, domains in self._far):
            return _TOO_NEAR
        for term, domains in self._near:
            domain = labels.get(term.topology_key)
            if domain is None or (domain not in domains and not self._is_first):
                return _NOT_NEAR
        return None


class _Skew:
    """One topology spread constraint."""

    def __init__(self, pod: PodView, spread: Spread, nodes: Sequence[NodeView], occupancy: Occupancy) -> None:
        self._spread = spread
        self._counts: Counter[str] = Counter()
        self._adds = int(_matches(spread, pod, pod))
        for node in nodes:
            domain = node.labels.get(spread.topology_key)
            if domain is None or not _counts_for(spread, pod, node):
                continue
            pods = occupancy.sites.get(node.key, EMPTY).pods.values() if _is_selective(spread, pod) else ()
            self._counts[domain] += sum(_matches(spread, pod, other) for other in pods if other.deleted_at is None)
        too_few = spread.min_domains is not None and len(self._counts) < spread.min_domains
        self._least = 0 if too_few else min(self._counts.values(), default=0)

    def refuse(self, node: NodeView) -> Refusal | None:
        domain = node.labels.get(self._spread.topology_key)
        if domain is None:
            return _NO_DOMAIN
        skew = self._counts[domain] + self._adds - self._least
        return _SKEWED if skew > self._spread.max_skew else None


def _counts_for(spread: Spread, pod: PodView, node: NodeView) -> bool:
    if spread.node_affinity_policy == "Honor" and not wants(pod, node):
        return False
    return spread.node_taints_policy != "Honor" or all(
        taint.effect == "PreferNoSchedule" or tolerates(pod.tolerations, taint) for taint in node.taints
    )


def _matches(spread: Spread, pod: PodView, other: PodView) -> bool:
    if other.namespace != pod.namespace or spread.label_selector is None:
        return False
    same = all(key not in pod.labels or other.labels.get(key) == pod.labels[key] for key in spread.match_label_keys)
    return same and spread.label_selector.matches(other.labels)


def _is_selective(spread: Spread, pod: PodView) -> bool:
    """Tell whether the constraint selects some pods rather than all: of all, kube-scheduler counts none."""
    selector = spread.label_selector
    keys = any(key in pod.labels for key in spread.match_label_keys)
    return keys or (selector is not None and not selector.is_empty)


def _selects(term: PodTerm, owner: PodView, other: PodView) -> bool:
    """Tell whether `term` of the pod `owner` is about the pod `other`."""
    everywhere = term.namespace_selector is not None and term.namespace_selector.is_empty
    named = term.namespaces or (() if term.namespace_selector is not None else (owner.namespace,))
    in_reach = everywhere or other.namespace in named
    return in_reach and term.label_selector is not None and term.label_selector.matches(other.labels)


def _domains_with(
    term: PodTerm, pod: PodView, labels: Mapping[str, Mapping[str, str]], occupancy: Occupancy
) -> set[str]:
    """Return the domains in which there is a pod that the term is about."""
    domains: set[str] = set()
    for name, site in occupancy.sites.items():
        domain = labels.get(name, {}).get(term.topology_key)
        if domain is None or domain in domains:
            continue
        if any(_selects(term, pod, other) for other in site.pods.values()):
            domains.add(domain)
    return domains


def _unwelcome(
    pod: PodView, labels: Mapping[str, Mapping[str, str]], occupancy: Occupancy
) -> frozenset[tuple[str, str]]:
    """Return the domains, by key and value, in which a pod does not want this one near it."""
    domains: set[tuple[str, str]] = set()
    for other in occupancy.aloof.values():
        where = labels.get(occupancy.node_of(other.key) or "", {})
        for term in other.affinity.pod_anti_affinity.required:
            domain = where.get(term.topology_key)
            if domain is not None and _selects(term, other, pod):
                domains.add((term.topology_key, domain))
    return frozenset(domains)


def _joins_itself(pod: PodView, terms: Iterable[PodTerm]) -> bool:
    return all(_selects(term, pod, pod) for term in terms)
