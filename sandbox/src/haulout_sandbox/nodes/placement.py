"""Where a pod may go, and where it goes best: pure decisions on what is known of nodes and of the pods on them.

The filters are those of kube-scheduler that matter to node maintenance, in its order and with its words, because people
and tools read them: unschedulable, taints, node selector and affinity, host ports, resources, topology spread, affinity
between pods. Of the nodes that pass, that one is taken which the pod prefers, which has the fewest of its siblings, in
the zone that has the fewest, and which is least used, in this order; among equals the first from a starting point that
moves on. In a large cluster it is enough to choose from a hundred nodes, as in kube-scheduler, if one of them passes.

Not here: volumes, preferred affinity between pods (siblings are spread anyway), dynamic resources, and preemption: a
pod of high priority goes first, but nobody is sent away for it. A namespace selector in an affinity term counts only if
it selects all namespaces.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import NamedTuple

from haulout.kube.objects import Taint
from haulout_sandbox.nodes.neighbours import Neighbourhood
from haulout_sandbox.nodes.occupancy import EMPTY, Occupancy, Site
from haulout_sandbox.nodes.reading import CPU, MEMORY
from haulout_sandbox.nodes.refusals import Refusal, tolerates, wants
from haulout_sandbox.nodes.view import NodeView, PodView

UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
ZONE = "topology.kubernetes.io/zone"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
PODS = "pods"

_ENOUGH = 100
_WISHES_KNOWN = 10_000
_DIGIT = 24  # bits for one part of a rank: none counts as many pods or taints
_NAME = "metadata.name"


@dataclass(frozen=True, slots=True)
class Placement:
    """Which node a pod goes to, or why to none."""

    node: str | None
    message: str = ""


_UNSCHEDULABLE = Refusal(("node(s) were unschedulable",), final=True)
_TAINTED = Refusal(("node(s) had untolerated taint(s)",), final=True)
_NOT_WANTED = Refusal(("node(s) didn't match Pod's node affinity/selector",), final=True)
_PORTS_TAKEN = Refusal(("node(s) didn't have free ports for the requested pod ports",), final=False)


class _Seat(NamedTuple):
    """A node that may take pods with certain wishes, and what of it such a pod can be refused or preferred for."""

    node: NodeView
    name: str
    zone: str
    unwanted: int
    pods: int  # how many there is place for
    room: tuple[tuple[str, int], ...]  # by resource: how much of it may be taken by others
    cpu: int
    memory: int


class _Verdict(NamedTuple):
    """What a node has to say to a pod with certain wishes while the same is taken of it."""

    stamp: int
    refusal: Refusal | None
    load: int


@dataclass(frozen=True, slots=True)
class _Seats:
    """Where pods with certain wishes may go, as far as that does not depend on other pods."""

    seats: tuple[_Seat, ...]
    refusals: tuple[Refusal, ...]  # of all other nodes
    verdicts: dict[str, _Verdict] = field(default_factory=dict)  # the latest, as the next replica asks the same


class Fleet:
    """All nodes, and what of them is asked for by name."""

    def __init__(self, nodes: Iterable[NodeView]) -> None:
        self.nodes = tuple(nodes)
        self._by_name = {node.key: node for node in self.nodes}
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

    def _named_by(self, pod: PodView) -> Iterable[NodeView]:
        named = pinned_to(pod)
        if named is None:
            return self.nodes
        return [self._by_name[name] for name in sorted(named) if name in self._by_name]

    def _find_seats(self, pod: PodView) -> _Seats:
        seats: list[_Seat] = []
        refusals: list[Refusal] = []
        for node in self._named_by(pod):
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


_NOBODY: Mapping[str, int] = {}


def place(pod: PodView, fleet: Fleet, occupancy: Occupancy, *, start: int = 0) -> Placement:
    """Return the node for `pod`; looking begins at number `start`."""
    if not fleet.nodes:
        return Placement(None, "no nodes available to schedule pods")
    places = fleet.seats(pod)
    choice = _Choice(pod, fleet, occupancy, places)
    for seats in _crowds(places.seats, start):
        if chosen := choice.among(seats):
            return Placement(chosen)
    return Placement(None, explain([*places.refusals, *choice.refusals], nodes=len(fleet.nodes)))


class _Choice:
    """The search for the best node for one pod."""

    def __init__(self, pod: PodView, fleet: Fleet, occupancy: Occupancy, places: _Seats) -> None:
        self.refusals: list[Refusal] = []
        self._verdicts = places.verdicts
        self._pod = pod
        self._sites = occupancy.sites
        self._around = Neighbourhood(pod, fleet.nodes, fleet.labels, occupancy)
        self._siblings: Mapping[str, int] = occupancy.siblings.get(pod.owner_uid, _NOBODY)
        chooses = bool(self._siblings) and len(places.seats) > 1
        self._in_zones = occupancy.in_zones(pod.owner_uid, fleet.zones) if chooses else _NOBODY

    def among(self, seats: Sequence[_Seat]) -> str | None:
        """Return the best of these nodes that takes the pod; None if none does.

        How used a node is matters only among those that are as good otherwise, and how good they are otherwise is
        known without a look at them. So the best are looked at, and the next best only if none of these takes the pod.
        """
        siblings, zones = self._siblings, self._in_zones
        ranks = [
            seat.unwanted + (siblings.get(seat.name, 0) << _DIGIT) + zones.get(seat.zone, 0)  # one number, as of digits
            for seat in seats
        ]
        for rank in sorted(set(ranks)):
            if chosen := self._least_used(compress(seats, map(rank.__eq__, ranks))):
                return chosen
        return None

    def _least_used(self, seats: Iterable[_Seat]) -> str | None:
        sites, verdicts = self._sites, self._verdicts
        around = None if self._around.is_quiet else self._around
        least, chosen = 0, None
        for seat in seats:
            site = sites.get(seat.name, EMPTY)
            verdict = verdicts.get(seat.name)
            if verdict is None or verdict.stamp != site.stamp:
                verdict = verdicts[seat.name] = _verdict(self._pod, seat, site)
            refusal = verdict.refusal or (around and around.refuse(seat.node))
            if refusal:
                self.refusals.append(refusal)
            elif chosen is None or verdict.load < least:
                least, chosen = verdict.load, seat.name
        return chosen


def _verdict(pod: PodView, seat: _Seat, site: Site) -> _Verdict:
    refusal = _refuse_for_now(pod, seat, site)
    return _Verdict(site.stamp, refusal, 0 if refusal else _load(pod, seat, site))


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


def _shortage(pod: PodView, node: NodeView, site: Site) -> Refusal:
    allocatable, used = node.allocatable, site.used
    reasons = ["Too many pods"] if len(site.pods) >= allocatable.get(PODS, 0) else []
    short = [
        (name, amount) for name, amount in pod.requests.items() if amount > allocatable.get(name, 0) - used.get(name, 0)
    ]
    reasons += [f"Insufficient {name}" for name, _ in short]
    return Refusal(tuple(reasons), final=any(amount > allocatable.get(name, 0) for name, amount in short))


def _unwanted(pod: PodView, node: NodeView) -> int:
    """Return how little the pod prefers the node, and after that the node the pod, as the first digits of a rank."""
    preferred = pod.affinity.node_affinity.preferred
    liking = sum(it.weight for it in preferred if it.preference.matches(node)) if preferred else 0
    reluctant = [it for it in node.taints if it.effect == "PreferNoSchedule"] if node.taints else ()
    reluctance = sum(not tolerates(pod.tolerations, taint) for taint in reluctant)
    return ((-liking << _DIGIT) + reluctance) << 2 * _DIGIT


def _load(pod: PodView, seat: _Seat, site: Site) -> int:
    """Return how used the node would be, in thousandths of it: the sum for cpu, memory and number of pods."""
    used, requests = site.used, pod.requests
    return (
        1000 * (len(site.pods) + 1) // max(seat.pods, 1)
        + 1000 * (used.get(CPU, 0) + requests.get(CPU, 0)) // seat.cpu
        + 1000 * (used.get(MEMORY, 0) + requests.get(MEMORY, 0)) // seat.memory
    )


def _crowds(seats: Sequence[_Seat], start: int) -> Iterator[Sequence[_Seat]]:
    """Yield all seats, as many at a time as are enough to choose from, beginning at number `start`."""
    count = len(seats)
    first = start % count if seats else 0
    for begin in range(first, first + count, _ENOUGH):
        end = min(begin + _ENOUGH, first + count)
        if begin >= count:
            yield seats[begin - count : end - count]
        else:
            yield seats[begin:end] if end <= count else (*seats[begin:], *seats[: end - count])


def _listed(reasons: Mapping[str, int]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items() if count))
