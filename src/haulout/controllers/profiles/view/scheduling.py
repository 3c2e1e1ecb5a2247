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

from haulout.api.objects import Base, Node, RawObject, Taint, object_key
from haulout.core import quantity
from haulout.kube.selectors import Requirement

T = TypeVar("T")

CPU = "cpu"
PODS_RESOURCE = "pods"
CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")

Quantities = Mapping[str, int]
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

    def tolerates(self, taint: Taint) -> bool:
        """Tell whether it is about this taint."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.key != "" and self.value == taint.value)


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """Requirements on a node, all of which must hold; without any, none does."""

    labels: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Tell whether a node meets it."""
        if not self.labels and not self.fields:
            return False
        return all(requirement.matches(labels) for requirement in self.labels) and all(
            requirement.matches({_NAME: name}) for requirement in self.fields
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequirements:
    """What a pod asks of a node; equal for replicas, and hashable."""

    requests: tuple[tuple[str, int], ...] = ()
    ports: frozenset[tuple[str, int]] = frozenset()
    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None  # one of which must match
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that looks for a node."""

    name: str
    requirements: PodRequirements


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCapacity:
    """A node, and what it has left."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()  # those that keep pods away; a cordon is one of them
    free: Quantities
    ports: frozenset[tuple[str, int]] = frozenset()  # that are taken

    def with_pod(self, requirements: PodRequirements) -> "NodeCapacity":
        """Return what is left when a pod with this wish is there."""
        free = {**self.free, PODS_RESOURCE: self.free.get(PODS_RESOURCE, 0) - 1}
        for name, amount in requirements.requests:
            free[name] = free.get(name, 0) - amount
        return replace(self, free=free, ports=self.ports | requirements.ports)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where pods would go, and why some find no place."""

    assignments: Mapping[str, str]  # by pod: the node
    unschedulable: Mapping[str, str]  # by pod: why no node takes it


@dataclass(slots=True)
class _Search:
    """How far the search for pods with one wish has come: nodes only fill up, so it never has to go back."""

    node_number: int = 0
    rejections: Counter[str] = field(default_factory=Counter)


def place_pods(pods: Iterable[PendingPod], capacities: Sequence[NodeCapacity]) -> Placement:
    """Return where the pods would go."""
    remaining = list(capacities)
    assignments: dict[str, str] = {}
    unschedulable: dict[str, str] = {}
    searches: defaultdict[PodRequirements, _Search] = defaultdict(_Search)
    for pod in _largest_first(pods, capacities):
        search = searches[pod.requirements]
        while search.node_number < len(remaining) and (
            reason := rejection_reason(pod.requirements, remaining[search.node_number])
        ):
            search.rejections[reason] += 1
            search.node_number += 1
        if search.node_number < len(remaining):
            remaining[search.node_number] = remaining[search.node_number].with_pod(pod.requirements)
            assignments[pod.name] = remaining[search.node_number].name
        else:
            unschedulable[pod.name] = _format_rejections(search.rejections, nodes=len(remaining))
    return Placement(assignments, unschedulable)


def rejection_reason(requirements: PodRequirements, capacity: NodeCapacity) -> str | None:
    """Return why a node does not take such a pod, or None."""
    return mismatch_reason(requirements, capacity.name, capacity.labels, capacity.taints) or _shortage_reason(
        requirements, capacity
    )


def mismatch_reason(
    requirements: PodRequirements, name: str, labels: Mapping[str, str], taints: Iterable[Taint]
) -> str | None:
    """Return why such a pod does not go to a node, however empty that is, or None."""
    for taint in taints:
        if not any(toleration.tolerates(taint) for toleration in requirements.tolerations):
            return "it is cordoned" if taint.key == CORDON.key else f"its taint {taint.key} is not tolerated"
    if any(labels.get(key) != value for key, value in requirements.selector):
        return "the node selector does not match"
    if requirements.terms is not None and not any(term.matches(labels, name) for term in requirements.terms):
        return "the node affinity does not match"
    return None


def _shortage_reason(requirements: PodRequirements, capacity: NodeCapacity) -> str | None:
    if capacity.free.get(PODS_RESOURCE, 0) < 1:
        return "it has no place for another pod"
    for name, amount in requirements.requests:
        if amount > capacity.free.get(name, 0):
            return f"too little {name}"
    if requirements.ports & capacity.ports:
        return "a host port is taken"
    return None


def _format_rejections(rejections: Counter[str], *, nodes: int) -> str:
    if not nodes:
        return "there is no other node that takes pods"
    return ", ".join(f"{reason} ({count} of {nodes} nodes)" for reason, count in rejections.most_common())


def _largest_first(pods: Iterable[PendingPod], capacities: Iterable[NodeCapacity]) -> list[PendingPod]:
    largest: dict[str, int] = {}
    for capacity in capacities:
        for name, amount in capacity.free.items():
            largest[name] = max(largest.get(name, 0), amount)

    def share(pod: PendingPod) -> float:
        return max((amount / max(largest.get(name, 0), 1) for name, amount in pod.requirements.requests), default=0.0)

    return sorted(pods, key=lambda pod: (-share(pod), pod.name))


# What objects say


def pending_pod(pod: RawObject) -> PendingPod:
    """Return what a pod asks for."""
    metadata = _as_mapping(pod.get("metadata"))
    return PendingPod(
        object_key(str(metadata.get("name")), metadata.get("namespace")), requirements_of(_as_mapping(pod.get("spec")))
    )


def requirements_of(spec: Mapping[str, Any]) -> PodRequirements:
    """Return what the spec of a pod, or of a template, asks of a node."""
    affinity = _as_mapping(_as_mapping(spec.get("affinity")).get("nodeAffinity"))
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    running = [*_as_mappings(spec.get("containers")), *filter(_is_sidecar, _as_mappings(spec.get("initContainers")))]
    return PodRequirements(
        requests=tuple(sorted((name, amount) for name, amount in _requests(spec).items() if amount)),
        ports=frozenset(port for container in running for port in _host_ports(container)),
        selector=tuple(sorted(_converted(spec.get("nodeSelector"), dict[str, str], {}).items())),
        terms=_terms(required) if isinstance(required, Mapping) else None,
        tolerations=_converted(spec.get("tolerations"), tuple[Toleration, ...], ()),
    )


def capacity_of(node: Node, allocatable: Mapping[str, Any], pods: Iterable[RawObject]) -> NodeCapacity:
    """Return what a node has left; `allocatable` is of its status, and `pods` are those on it."""
    requirements = (requirements_of(_as_mapping(pod.get("spec"))) for pod in pods if not has_ended(pod))
    return capacity_beside(node, allocatable, requirements)


def capacity_beside(
    node: Node, allocatable: Mapping[str, Any], requirements: Iterable[PodRequirements]
) -> NodeCapacity:
    """Return what a node has left beside pods with these wishes."""
    free = parse_quantities(allocatable)
    ports: frozenset[tuple[str, int]] = frozenset()
    for pod in requirements:
        free[PODS_RESOURCE] = free.get(PODS_RESOURCE, 0) - 1
        for name, amount in pod.requests:
            free[name] = free.get(name, 0) - amount
        ports |= pod.ports
    return NodeCapacity(name=node.name, labels=node.metadata.labels, taints=hard_taints(node), free=free, ports=ports)


def hard_taints(node: Node) -> tuple[Taint, ...]:
    """Return the taints of a node that keep pods away, a cordon among them."""
    taints = tuple(taint for taint in node.spec.taints if taint.effect != "PreferNoSchedule")
    has_cordon_taint = any(taint.key == CORDON.key for taint in taints)
    return (*taints, CORDON) if node.spec.unschedulable and not has_cordon_taint else taints


def has_ended(pod: RawObject) -> bool:
    """Tell whether the containers of a pod have ended for good: it takes nothing of its node any more."""
    return _as_mapping(pod.get("status")).get("phase") in _ENDED


def parse_quantities(written: Any) -> dict[str, int]:
    """Return quantities as numbers."""
    numbers: dict[str, int] = {}
    for name, text in _as_mapping(written).items():
        try:
            read = quantity.parse(str(text))
        except ValueError:
            continue
        numbers[name] = read.milli if name == CPU else read.value
    return numbers


def _requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return what a pod needs: its containers and sidecars at once, or an init container if that needs more."""
    running: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for container in _as_mappings(spec.get("initContainers")):
        requested = _requested(container)
        if _is_sidecar(container):
            running.update(requested)
        else:
            peak |= running + Counter(requested)
    for container in _as_mappings(spec.get("containers")):
        running.update(_requested(container))
    peak |= running
    peak.update(
        {name: amount - peak[name] for name, amount in _requested(spec).items()}
    )  # what the pod says as a whole
    peak.update(parse_quantities(spec.get("overhead")))
    return peak


def _requested(of: Mapping[str, Any]) -> dict[str, int]:
    return parse_quantities(_as_mapping(of.get("resources")).get("requests"))


def _is_sidecar(container: Mapping[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always"


def _host_ports(container: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    for port in _as_mappings(container.get("ports")):
        number = port.get("hostPort")
        if isinstance(number, int) and number:
            yield str(port.get("protocol") or "TCP"), number


def _terms(required: Mapping[str, Any]) -> tuple[NodeSelectorTerm, ...]:
    return tuple(
        NodeSelectorTerm(_requirements(term.get("matchExpressions")), _requirements(term.get("matchFields")))
        for term in _as_mappings(required.get("nodeSelectorTerms"))
    )


def _requirements(written: Any) -> tuple[Requirement, ...]:
    found: tuple[Requirement, ...] = _converted(written, tuple[Requirement, ...], ())
    return tuple(map(_usable, found))


def _usable(requirement: Requirement) -> Requirement:
    """Return a requirement that can be asked: one that compares with something else than a number is never met."""
    if requirement.operator not in ("Gt", "Lt") or _WHOLE.fullmatch(",".join(requirement.values)):
        return requirement
    return Requirement(requirement.key, "In")


def _converted(written: Any, kind: Any, default: T) -> T:
    try:
        found: T = msgspec.convert(written, kind)
    except msgspec.ValidationError:
        return default
    return found


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _as_mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []
