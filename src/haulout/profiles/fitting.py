"""Whether pods would fit on other nodes: pure, on what pods ask for and what nodes have left.

    fit([want_of(pod), …], [room_of(node, allocatable, pods), …]).homeless

Looked at is what decides in nearly all clusters: requests of all resources, the number of pods, host ports, taints,
cordons, node selectors and required node affinity. Not looked at are volumes, affinity between pods, topology spread,
priorities and dynamic resources.

Pods are placed one after another, the largest first, each on the first node that takes it. A place that is found does
exist: the pods can all run at the same time. One that is not found could still exist, since packing is hard; and the
scheduler, which looks at one pod at a time in the order in which they come, may do worse. It is a check for "there is
clearly no room", not a promise.

Objects come as plain JSON. What makes no sense in them counts as not there, as an API server lets none of it in.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from haulout.core import quantity
from haulout.kube.objects import Base, Node, RawObject, Taint, object_key
from haulout.kube.selectors import Requirement

T = TypeVar("T")

CPU = "cpu"
PODS = "pods"
CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")

Amounts = Mapping[str, int]
"""Of resources: cpu in thousandths, everything else in whole units."""

_ENDED = ("Succeeded", "Failed")
_NAME = "metadata.name"
_WHOLE = re.compile(r"-?[0-9]{1,19}")


class Toleration(Base, frozen=True):
    """Which taint a pod can live with."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        """Tell whether it is about this taint."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.key != "" and self.value == taint.value)


@dataclass(frozen=True, slots=True)
class Term:
    """Requirements on a node, all of which must hold; without any, none does."""

    labels: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Tell whether a node meets it."""
        if not self.labels and not self.fields:
            return False
        return all(it.holds(labels) for it in self.labels) and all(it.holds({_NAME: name}) for it in self.fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a pod asks of a node; equal for replicas, and hashable."""

    requests: tuple[tuple[str, int], ...] = ()
    ports: frozenset[tuple[str, int]] = frozenset()
    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Term, ...] | None = None  # one of which must match
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class Want:
    """A pod that looks for a node."""

    name: str
    wish: Wish


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A node, and what it has left."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()  # those that keep pods away; a cordon is one of them
    free: Amounts
    ports: frozenset[tuple[str, int]] = frozenset()  # that are taken

    def having(self, wish: Wish) -> "Room":
        """Return what is left when a pod with this wish is there."""
        free = {**self.free, PODS: self.free.get(PODS, 0) - 1}
        for name, amount in wish.requests:
            free[name] = free.get(name, 0) - amount
        return replace(self, free=free, ports=self.ports | wish.ports)


@dataclass(frozen=True, slots=True)
class Fit:
    """Where pods would go, and why some find no place."""

    places: Mapping[str, str]  # by pod: the node
    homeless: Mapping[str, str]  # by pod: why no node takes it


@dataclass(slots=True)
class _Search:
    """How far the search for pods with one wish has come: nodes only fill up, so it never has to go back."""

    number: int = 0
    refusals: Counter[str] = field(default_factory=Counter)


def fit(wants: Iterable[Want], rooms: Sequence[Room]) -> Fit:
    """Return where the pods would go."""
    left = list(rooms)
    places: dict[str, str] = {}
    homeless: dict[str, str] = {}
    searches: defaultdict[Wish, _Search] = defaultdict(_Search)
    for want in _largest_first(wants, rooms):
        search = searches[want.wish]
        while search.number < len(left) and (why := refusal(want.wish, left[search.number])):
            search.refusals[why] += 1
            search.number += 1
        if search.number < len(left):
            left[search.number] = left[search.number].having(want.wish)
            places[want.name] = left[search.number].name
        else:
            homeless[want.name] = _explained(search.refusals, nodes=len(left))
    return Fit(places, homeless)


def refusal(wish: Wish, room: Room) -> str | None:
    """Return why a node does not take such a pod, or None."""
    return stays_away(wish, room.name, room.labels, room.taints) or _shortage(wish, room)


def stays_away(wish: Wish, name: str, labels: Mapping[str, str], taints: Iterable[Taint]) -> str | None:
    """Return why such a pod does not go to a node, however empty that is, or None."""
    for taint in taints:
        if not any(toleration.covers(taint) for toleration in wish.tolerations):
            return "it is cordoned" if taint.key == CORDON.key else f"its taint {taint.key} is not tolerated"
    if any(labels.get(key) != value for key, value in wish.selector):
        return "the node selector does not match"
    if wish.terms is not None and not any(term.matches(labels, name) for term in wish.terms):
        return "the node affinity does not match"
    return None


def _shortage(wish: Wish, room: Room) -> str | None:
    if room.free.get(PODS, 0) < 1:
        return "it has no place for another pod"
    for name, amount in wish.requests:
        if amount > room.free.get(name, 0):
            return f"too little {name}"
    if wish.ports & room.ports:
        return "a host port is taken"
    return None


def _explained(refusals: Counter[str], *, nodes: int) -> str:
    if not nodes:
        return "there is no other node that takes pods"
    return ", ".join(f"{why} ({count} of {nodes} nodes)" for why, count in refusals.most_common())


def _largest_first(wants: Iterable[Want], rooms: Iterable[Room]) -> list[Want]:
    most: dict[str, int] = {}
    for room in rooms:
        for name, amount in room.free.items():
            most[name] = max(most.get(name, 0), amount)

    def share(want: Want) -> float:
        return max((amount / max(most.get(name, 0), 1) for name, amount in want.wish.requests), default=0.0)

    return sorted(wants, key=lambda want: (-share(want), want.name))


# What objects say


def want_of(pod: RawObject) -> Want:
    """Return what a pod asks for."""
    metadata = _mapping(pod.get("metadata"))
    return Want(object_key(str(metadata.get("name")), metadata.get("namespace")), wish_of(_mapping(pod.get("spec"))))


def wish_of(spec: Mapping[str, Any]) -> Wish:
    """Return what the spec of a pod, or of a template, asks of a node."""
    affinity = _mapping(_mapping(spec.get("affinity")).get("nodeAffinity"))
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    lasting = [*_items(spec.get("containers")), *filter(_is_sidecar, _items(spec.get("initContainers")))]
    return Wish(
        requests=tuple(sorted((name, amount) for name, amount in _requests(spec).items() if amount)),
        ports=frozenset(port for container in lasting for port in _host_ports(container)),
        selector=tuple(sorted(_read(spec.get("nodeSelector"), dict[str, str], {}).items())),
        terms=_terms(required) if isinstance(required, Mapping) else None,
        tolerations=_read(spec.get("tolerations"), tuple[Toleration, ...], ()),
    )


def room_of(node: Node, allocatable: Mapping[str, Any], pods: Iterable[RawObject]) -> Room:
    """Return what a node has left; `allocatable` is of its status, and `pods` are those on it."""
    wishes = (wish_of(_mapping(pod.get("spec"))) for pod in pods if not has_ended(pod))
    return room_beside(node, allocatable, wishes)


def room_beside(node: Node, allocatable: Mapping[str, Any], wishes: Iterable[Wish]) -> Room:
    """Return what a node has left beside pods with these wishes."""
    free = amounts(allocatable)
    ports: frozenset[tuple[str, int]] = frozenset()
    for wish in wishes:
        free[PODS] = free.get(PODS, 0) - 1
        for name, amount in wish.requests:
            free[name] = free.get(name, 0) - amount
        ports |= wish.ports
    return Room(name=node.name, labels=node.metadata.labels, taints=hard_taints(node), free=free, ports=ports)


def hard_taints(node: Node) -> tuple[Taint, ...]:
    """Return the taints of a node that keep pods away, a cordon among them."""
    taints = tuple(it for it in node.spec.taints if it.effect != "PreferNoSchedule")
    is_told = any(it.key == CORDON.key for it in taints)
    return (*taints, CORDON) if node.spec.unschedulable and not is_told else taints


def has_ended(pod: RawObject) -> bool:
    """Tell whether the containers of a pod have ended for good: it takes nothing of its node any more."""
    return _mapping(pod.get("status")).get("phase") in _ENDED


def amounts(written: Any) -> dict[str, int]:
    """Return quantities as numbers."""
    numbers: dict[str, int] = {}
    for name, text in _mapping(written).items():
        try:
            read = quantity.parse(str(text))
        except ValueError:
            continue
        numbers[name] = read.milli if name == CPU else read.value
    return numbers


def _requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return what a pod needs: its containers and sidecars at once, or an init container if that needs more."""
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for container in _items(spec.get("initContainers")):
        wanted = _asked(container)
        if _is_sidecar(container):
            running.update(wanted)
        else:
            most |= running + Counter(wanted)
    for container in _items(spec.get("containers")):
        running.update(_asked(container))
    most |= running
    most.update({name: amount - most[name] for name, amount in _asked(spec).items()})  # what the pod says as a whole
    most.update(amounts(spec.get("overhead")))
    return most


def _asked(of: Mapping[str, Any]) -> dict[str, int]:
    return amounts(_mapping(of.get("resources")).get("requests"))


def _is_sidecar(container: Mapping[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always"


def _host_ports(container: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    for port in _items(container.get("ports")):
        number = port.get("hostPort")
        if isinstance(number, int) and number:
            yield str(port.get("protocol") or "TCP"), number


def _terms(required: Mapping[str, Any]) -> tuple[Term, ...]:
    return tuple(
        Term(_requirements(term.get("matchExpressions")), _requirements(term.get("matchFields")))
        for term in _items(required.get("nodeSelectorTerms"))
    )


def _requirements(written: Any) -> tuple[Requirement, ...]:
    found: tuple[Requirement, ...] = _read(written, tuple[Requirement, ...], ())
    return tuple(map(_sound, found))


def _sound(requirement: Requirement) -> Requirement:
    """Return a requirement that can be asked: one that compares with something else than a number is never met."""
    if requirement.operator not in ("Gt", "Lt") or _WHOLE.fullmatch(",".join(requirement.values)):
        return requirement
    return Requirement(requirement.key, "In")


def _read(written: Any, kind: Any, default: T) -> T:
    try:
        found: T = msgspec.convert(written, kind)
    except msgspec.ValidationError:
        return default
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: Any) -> list[Mapping[str, Any]]:
    return [it for it in value if isinstance(it, Mapping)] if isinstance(value, list | tuple) else []
