"""Where a pod may go, and where it goes best: pure decisions on what is known of nodes and of the pods on them.

The filters are those of kube-scheduler that matter to node maintenance, in its order and with its words, because people
and tools read them: unschedulable, taints, node selector and affinity, host ports, resources, topology spread, affinity
between pods. Of the nodes that pass, that one is taken which the pod prefers, which has the fewest of its siblings, in
the zone that has the fewest, and which is least used, in this order; among equals the first from a starting point that
moves on. In a large cluster a hundred nodes that pass are enough to choose from, as in kube-scheduler.

Not here: volumes, preferred affinity between pods (siblings are spread anyway), dynamic resources, and preemption: a
pod of high priority goes first, but nobody is sent away for it. A namespace selector in an affinity term counts only if
it selects all namespaces.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

from haulout.kube.objects import Taint
from haulout.sandbox.nodes.specs import PodTerm, Spread, Toleration
from haulout.sandbox.nodes.view import CPU, MEMORY, NodeView, PodView

UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
ZONE = "topology.kubernetes.io/zone"
PODS = "pods"

_ENOUGH = 100
_WISHES_KNOWN = 10_000
_WORST: tuple[tuple[float, float], float, float] = ((math.inf, math.inf), math.inf, math.inf)
_NAME = "metadata.name"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod cannot go to a node; `final` if that stays so whichever pods leave it."""

    reasons: tuple[str, ...]
    final: bool


@dataclass(frozen=True, slots=True)
class Placement:
    """Which node a pod goes to, or why to none."""

    node: str | None
    message: str = ""


_UNSCHEDULABLE = Refusal(("node(s) were unschedulable",), final=True)
_TAINTED = Refusal(("node(s) had untolerated taint(s)",), final=True)
_NOT_WANTED = Refusal(("node(s) didn't match Pod's node affinity/selector",), final=True)
_PORTS_TAKEN = Refusal(("node(s) didn't have free ports for the requested pod ports",), final=False)
_NO_DOMAIN = Refusal(("node(s) didn't match pod topology spread constraints (missing required label)",), final=True)
_SKEWED = Refusal(("node(s) didn't match pod topology spread constraints",), final=False)
_NOT_NEAR = Refusal(("node(s) didn't match pod affinity rules",), final=True)
_TOO_NEAR = Refusal(("node(s) didn't match pod anti-affinity rules",), final=False)
_UNWELCOME = Refusal(("node(s) didn't satisfy existing pods anti-affinity rules",), final=False)


@dataclass(slots=True)
class Site:
    """What is taken of one node, and by whom."""

    used: dict[str, int] = field(default_factory=dict)
    pods: dict[str, PodView] = field(default_factory=dict)
    ports: Counter[tuple[str, int]] = field(default_factory=Counter)


class Occupancy:
    """Which pods are on which nodes: those that the cluster knows of, and those that we have only just put there."""

    def __init__(self) -> None:
        self.sites: dict[str, Site] = {}
        self.siblings: dict[str, Counter[str]] = {}  # by owner: how many are on which node
        self.aloof: dict[str, PodView] = {}  # pods that do not want certain others near them
        self._where: dict[str, tuple[PodView, str]] = {}

    def put(self, pod: PodView, node: str) -> None:
        """Note that `pod` is on `node`, and nowhere else."""
        known = self._where.get(pod.key)
        if known and known[1] == node and known[0].uid == pod.uid and known[0].wishes == pod.wishes:
            self._renew(pod, node)
            return
        self.take(pod.key)
        site = self.sites.setdefault(node, Site())
        site.pods[pod.key] = pod
        self._where[pod.key] = pod, node
        self._count(site, pod, node, +1)
        if pod.affinity.pod_anti_affinity.required:
            self.aloof[pod.key] = pod

    def _renew(self, pod: PodView, node: str) -> None:
        """Take a newer state of a pod that stays where it is: it takes what it took before."""
        self._where[pod.key] = pod, node
        self.sites[node].pods[pod.key] = pod
        if pod.key in self.aloof:
            self.aloof[pod.key] = pod

    def take(self, key: str) -> None:
        """Note that the pod is on no node."""
        if (found := self._where.pop(key, None)) is None:
            return
        pod, node = found
        site = self.sites[node]
        del site.pods[key]
        self._count(site, pod, node, -1)
        self.aloof.pop(key, None)
        if not site.pods:
            del self.sites[node]

    def node_of(self, key: str) -> str | None:
        """Return the node that the pod is on."""
        found = self._where.get(key)
        return found[1] if found else None

    def _count(self, site: Site, pod: PodView, node: str, by: int) -> None:
        for name, amount in pod.requests.items():
            site.used[name] = site.used.get(name, 0) + by * amount
        for port in pod.host_ports:
            site.ports[port] += by
        if pod.owner_uid:
            nodes = self.siblings.setdefault(pod.owner_uid, Counter())
            nodes[node] += by
            if not nodes[node]:
                del nodes[node]
            if not nodes:
                del self.siblings[pod.owner_uid]


class _Seat(NamedTuple):
    """A node that may take pods with certain wishes, and what of it such a pod can be refused or preferred for."""

    node: NodeView
    name: str
    zone: str
    unwanted: tuple[int, int]
    pods: int  # how many there is place for
    room: tuple[tuple[str, int], ...]  # by resource: how much of it may be taken by others
    cpu: int
    memory: int


@dataclass(frozen=True, slots=True)
class _Seats:
    """Where pods with certain wishes may go, as far as that does not depend on other pods."""

    seats: tuple[_Seat, ...]
    refusals: tuple[Refusal, ...]  # of all other nodes


class Fleet:
    """All nodes, and what of them is asked for by name."""

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        self.nodes = tuple(nodes)
        self.labels: dict[str, Mapping[str, str]] = {node.key: node.labels for node in self.nodes}
        self.zones: dict[str, str] = {node.key: node.labels.get(ZONE, "") for node in self.nodes}
        self._seats: dict[object, _Seats] = {}

    def seats(self, pod: PodView) -> _Seats:
        """Return where pods that wish for the same as `pod` may go; found out once, as replicas come in crowds."""
        found = self._seats.get(pod.wishes)
        if found is None:
            if len(self._seats) >= _WISHES_KNOWN:
                self._seats.clear()
            found = self._seats[pod.wishes] = self._find_seats(pod)
        return found

    def _find_seats(self, pod: PodView) -> _Seats:
        seats: list[_Seat] = []
        refusals: list[Refusal] = []
        named = pinned_to(pod)
        for node in self.nodes:
            if named is not None and node.key not in named:
                continue
            if refusal := refuse_for_good(pod, node):
                refusals.append(refusal)
            else:
                seats.append(_seat(pod, node))
        return _Seats(tuple(seats), tuple(refusals))


def _seat(pod: PodView, node: NodeView) -> _Seat:
    allocatable = node.allocatable
    return _Seat(
        node=node,
        name=node.key,
        zone=node.labels.get(ZONE, ""),
        unwanted=_unwanted(pod, node),
        pods=allocatable.get(PODS, 0),
        room=tuple((name, allocatable.get(name, 0) - amount) for name, amount in pod.requests.items()),
        cpu=max(allocatable.get(CPU, 0), 1),
        memory=max(allocatable.get(MEMORY, 0), 1),
    )


_EMPTY = Site()
_NOBODY: Mapping[str, int] = {}


def place(pod: PodView, fleet: Fleet, occupancy: Occupancy, *, start: int = 0) -> Placement:
    """Return the node for `pod`; looking begins at number `start`."""
    if not fleet.nodes:
        return Placement(None, "no nodes available to schedule pods")
    places = fleet.seats(pod)
    around = Neighbourhood(pod, fleet, occupancy)
    siblings: Mapping[str, int] = occupancy.siblings.get(pod.owner_uid, _NOBODY)
    in_zones = _by_zone(siblings, fleet)
    refusals: list[Refusal] = []
    best, least, chosen = _WORST, 0, None
    passed = 0
    for seat in _from(places.seats, start):
        site = occupancy.sites.get(seat.name, _EMPTY)
        refusal = _refuse_for_now(pod, seat, site) or around.refuse(seat.node)
        if refusal:
            refusals.append(refusal)
            continue
        passed += 1
        rank = seat.unwanted, siblings.get(seat.name, 0), in_zones.get(seat.zone, 0)
        if rank <= best:  # how used it is matters only among those that are as good otherwise
            load = _load(pod, seat, site)
            if rank < best or load < least:
                best, least, chosen = rank, load, seat.name
        if passed >= _ENOUGH:
            break
    if chosen:
        return Placement(chosen)
    return Placement(None, explain([*places.refusals, *refusals], nodes=len(fleet.nodes)))


def refuse_for_good(pod: PodView, node: NodeView) -> Refusal | None:
    """Return why the pod cannot go to this node, whatever pods there are."""
    if node.unschedulable and not tolerates(pod.tolerations, UNSCHEDULABLE_TAINT):
        return _UNSCHEDULABLE
    if node.taints and not all(
        taint.effect == "PreferNoSchedule" or tolerates(pod.tolerations, taint) for taint in node.taints
    ):
        return _TAINTED
    return None if wants(pod, node) else _NOT_WANTED


def _refuse_for_now(pod: PodView, seat: _Seat, site: Site) -> Refusal | None:
    """Return why the pod cannot go to this node because of the pods that are on it."""
    if pod.host_ports and any(site.ports[port] for port in pod.host_ports):
        return _PORTS_TAKEN
    if len(site.pods) >= seat.pods:
        return _shortage(pod, seat.node, site)
    used = site.used
    for name, room in seat.room:
        if used.get(name, 0) > room:
            return _shortage(pod, seat.node, site)
    return None


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Tell whether one of the tolerations covers the taint."""
    return any(toleration.covers(taint) for toleration in tolerations)


def wants(pod: PodView, node: NodeView) -> bool:
    """Tell whether the pod's node selector and required node affinity allow the node."""
    labels = node.labels
    if not all(labels.get(key) == value for key, value in pod.node_selector.items()):
        return False
    required = pod.affinity.node_affinity.required
    return required is None or any(term.matches(node) for term in required.node_selector_terms)


def pinned_to(pod: PodView) -> frozenset[str] | None:
    """Return the only nodes that can pass, if the pod names them, as those of a DaemonSet do."""
    required = pod.affinity.node_affinity.required
    if required is None:
        return None
    named: set[str] = set()
    for term in required.node_selector_terms:
        names = [it.values for it in term.match_fields if it.key == _NAME and it.operator == "In"]
        if not names:
            return None
        named.update(names[0])
    return frozenset(named)


def explain(refusals: Sequence[Refusal], *, nodes: int) -> str:
    """Return why no node takes the pod, as kube-scheduler says it."""
    reasons = Counter(reason for refusal in refusals for reason in refusal.reasons)
    if left_out := nodes - len(refusals):
        reasons["node(s) didn't satisfy plugin(s) [NodeAffinity]"] += left_out
    helpless = sum(refusal.final for refusal in refusals) + left_out
    victims = {
        "Preemption is not helpful for scheduling": helpless,
        "No preemption victims found for incoming pod": nodes - helpless,
    }
    none = f"0/{nodes} nodes are available:"
    return f"{none} {_listed(reasons)}. no new claims to deallocate, preemption: {none} {_listed(victims)}."


class Neighbourhood:
    """The rules about other pods: counted once for a pod, then asked for each node."""

    def __init__(self, pod: PodView, fleet: Fleet, occupancy: Occupancy) -> None:
        self._spreads = [
            _Skew(pod, spread, fleet.nodes, occupancy)
            for spread in pod.spreads
            if spread.when_unsatisfiable == "DoNotSchedule"
        ]
        near, far = pod.affinity.pod_affinity.required, pod.affinity.pod_anti_affinity.required
        labels = fleet.labels
        self._near = [(term, _domains_with(term, pod, labels, occupancy)) for term in near]
        self._far = [(term, _domains_with(term, pod, labels, occupancy)) for term in far]
        self._unwelcome = _unwelcome(pod, labels, occupancy)
        # The first of a group that wants to be together has nobody to join, and must not wait for that for ever.
        self._is_first = bool(near) and not any(domains for _, domains in self._near) and _joins_itself(pod, near)

        self._is_quiet = not (self._spreads or self._near or self._far or self._unwelcome)

    def refuse(self, node: NodeView) -> Refusal | None:
        """Return why the pod cannot go to this node because of other pods."""
        if self._is_quiet:
            return None
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
            pods = occupancy.sites.get(node.key, _EMPTY).pods.values() if _is_selective(spread, pod) else ()
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


def _shortage(pod: PodView, node: NodeView, site: Site) -> Refusal:
    allocatable, used = node.allocatable, site.used
    reasons = ["Too many pods"] if len(site.pods) >= allocatable.get(PODS, 0) else []
    short = [
        (name, amount) for name, amount in pod.requests.items() if amount > allocatable.get(name, 0) - used.get(name, 0)
    ]
    reasons += [f"Insufficient {name}" for name, _ in short]
    return Refusal(tuple(reasons), final=any(amount > allocatable.get(name, 0) for name, amount in short))


def _by_zone(siblings: Mapping[str, int], fleet: Fleet) -> Mapping[str, int]:
    zones: dict[str, int] = {}
    for name, count in siblings.items():
        zone = fleet.zones.get(name, "")
        zones[zone] = zones.get(zone, 0) + count
    return zones


def _unwanted(pod: PodView, node: NodeView) -> tuple[int, int]:
    """Return how little the pod prefers the node, and the node the pod."""
    preferred = pod.affinity.node_affinity.preferred
    liking = sum(it.weight for it in preferred if it.preference.matches(node)) if preferred else 0
    reluctant = [it for it in node.taints if it.effect == "PreferNoSchedule"] if node.taints else ()
    return -liking, sum(not tolerates(pod.tolerations, taint) for taint in reluctant)


def _load(pod: PodView, seat: _Seat, site: Site) -> int:
    """Return how used the node would be, in thousandths of it: the sum for cpu, memory and number of pods."""
    used, requests = site.used, pod.requests
    return (
        1000 * (len(site.pods) + 1) // max(seat.pods, 1)
        + 1000 * (used.get(CPU, 0) + requests.get(CPU, 0)) // seat.cpu
        + 1000 * (used.get(MEMORY, 0) + requests.get(MEMORY, 0)) // seat.memory
    )


def _from(seats: Sequence[_Seat], start: int) -> Iterator[_Seat]:
    first = start % len(seats) if seats else 0
    return chain(islice(seats, first, None), islice(seats, first))


def _listed(reasons: Mapping[str, int]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items() if count))
