"""Whether pods would fit on other nodes, computed from pod requests and the free capacity of nodes. Pure.

    place_pods([pending_pod(pod), …], [capacity_of(node, allocatable, pods), …]).unschedulable

It considers what decides in nearly all clusters: requests of all resources, the number of pods, host ports, taints,
cordons, node selectors and required node affinity. It ignores volumes, affinity between pods, topology spread,
priorities and dynamic resources.

Pods are placed one at a time, the largest first, each on the first node that fits. A placement that is found is valid:
all its pods can run at the same time. If none is found, one may still exist, since bin packing is hard. The scheduler
may also do worse, since it places pods in the order of their arrival. So this is a check for "there is clearly too
little capacity", not a guarantee.

Objects come as plain JSON. Invalid values count as absent, since the API server accepts none.
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

# Of resources: cpu in thousandths, everything else in whole units.
Quantities = Mapping[str, int]

_ENDED = ("Succeeded", "Failed")
_NAME = "metadata.name"
_WHOLE = re.compile(r"-?[0-9]{1,19}")


class Toleration(Base, frozen=True):
    """A toleration of a pod, with the defaults of the API."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return whether the pod tolerates this taint."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.key != "" and self.value == taint.value)


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """Requirements on a node, all of which must hold; a term without requirements matches no node."""

    labels: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        if not self.labels and not self.fields:
            return False
        return all(requirement.matches(labels) for requirement in self.labels) and all(
            requirement.matches({_NAME: name}) for requirement in self.fields
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequirements:
    """What a pod requires of a node; equal for replicas, and hashable."""

    requests: tuple[tuple[str, int], ...] = ()
    ports: frozenset[tuple[str, int]] = frozenset()
    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None  # at least one must match
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod to place on a node."""

    name: str
    requirements: PodRequirements


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCapacity:
    """A node with its free capacity: allocatable minus the requests of its pods. It may be negative."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()  # with effect NoSchedule or NoExecute; a cordon is one of them
    free: Quantities
    ports: frozenset[tuple[str, int]] = frozenset()  # in use

    def with_pod(self, requirements: PodRequirements) -> "NodeCapacity":
        """Return the capacity that is left after placing such a pod."""
        free = {**self.free, PODS_RESOURCE: self.free.get(PODS_RESOURCE, 0) - 1}
        for name, amount in requirements.requests:
            free[name] = free.get(name, 0) - amount
        return replace(self, free=free, ports=self.ports | requirements.ports)


@dataclass(frozen=True, slots=True)
class Placement:
    """Which node each pod would go to, and why some pods fit on none."""

    assignments: Mapping[str, str]  # by pod: the node
    unschedulable: Mapping[str, str]  # by pod: why it fits on no node


@dataclass(slots=True)
class _Search:
    """Progress of the search for pods with equal requirements. Nodes only fill up, so it never goes back."""

    node_number: int = 0
    rejections: Counter[str] = field(default_factory=Counter)


def place_pods(pods: Iterable[PendingPod], capacities: Sequence[NodeCapacity]) -> Placement:
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
    """Return why a node does not accept such a pod, or None."""
    return mismatch_reason(requirements, capacity.name, capacity.labels, capacity.taints) or _shortage_reason(
        requirements, capacity
    )


def mismatch_reason(
    requirements: PodRequirements, name: str, labels: Mapping[str, str], taints: Iterable[Taint]
) -> str | None:
    """Return why such a pod does not fit on a node even if the node is empty, or None."""
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
        return "it has too many pods"
    for name, amount in requirements.requests:
        if amount > capacity.free.get(name, 0):
            return f"too little {name}"
    if requirements.ports & capacity.ports:
        return "a host port is in use"
    return None


def _format_rejections(rejections: Counter[str], *, nodes: int) -> str:
    if not nodes:
        return "there is no other schedulable node"
    return ", ".join(f"{reason} ({count} of {nodes} nodes)" for reason, count in rejections.most_common())


def _largest_first(pods: Iterable[PendingPod], capacities: Iterable[NodeCapacity]) -> list[PendingPod]:
    largest: dict[str, int] = {}
    for capacity in capacities:
        for name, amount in capacity.free.items():
            largest[name] = max(largest.get(name, 0), amount)

    def share(pod: PendingPod) -> float:
        return max((amount / max(largest.get(name, 0), 1) for name, amount in pod.requirements.requests), default=0.0)

    return sorted(pods, key=lambda pod: (-share(pod), pod.name))


# Parse objects


def pending_pod(pod: RawObject) -> PendingPod:
    metadata = _as_mapping(pod.get("metadata"))
    return PendingPod(
        object_key(str(metadata.get("name")), metadata.get("namespace")), requirements_of(_as_mapping(pod.get("spec")))
    )


def requirements_of(spec: Mapping[str, Any]) -> PodRequirements:
    """Return the requirements in the spec of a pod or of a pod template."""
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
    """Return the capacity of a node beside `pods`, the pods on it; `allocatable` is that of its status."""
    requirements = (requirements_of(_as_mapping(pod.get("spec"))) for pod in pods if not has_ended(pod))
    return capacity_beside(node, allocatable, requirements)


def capacity_beside(
    node: Node, allocatable: Mapping[str, Any], requirements: Iterable[PodRequirements]
) -> NodeCapacity:
    """Return the capacity of a node beside pods with these requirements."""
    free = parse_quantities(allocatable)
    ports: frozenset[tuple[str, int]] = frozenset()
    for pod in requirements:
        free[PODS_RESOURCE] = free.get(PODS_RESOURCE, 0) - 1
        for name, amount in pod.requests:
            free[name] = free.get(name, 0) - amount
        ports |= pod.ports
    return NodeCapacity(name=node.name, labels=node.metadata.labels, taints=hard_taints(node), free=free, ports=ports)


def hard_taints(node: Node) -> tuple[Taint, ...]:
    """Return the taints of a node that keep pods away, including that of a cordon."""
    taints = tuple(taint for taint in node.spec.taints if taint.effect != "PreferNoSchedule")
    # The node lifecycle controller adds the taint a moment after `spec.unschedulable` is set. The scheduler checks the
    # field as well (pkg/scheduler/framework/plugins/nodeunschedulable/node_unschedulable.go).
    has_cordon_taint = any(taint.key == CORDON.key for taint in taints)
    return (*taints, CORDON) if node.spec.unschedulable and not has_cordon_taint else taints


def has_ended(pod: RawObject) -> bool:
    """Return whether a pod has succeeded or failed: it no longer uses resources of its node."""
    return _as_mapping(pod.get("status")).get("phase") in _ENDED


def parse_quantities(written: Any) -> dict[str, int]:
    """Return quantities as numbers, cpu in thousandths; skip invalid ones."""
    numbers: dict[str, int] = {}
    for name, text in _as_mapping(written).items():
        try:
            read = quantity.parse(str(text))
        except ValueError:
            continue
        numbers[name] = read.milli if name == CPU else read.value
    return numbers


def _requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the effective requests of a pod: those of containers and sidecars, or of a larger init container."""
    # The rules of PodRequests in staging/src/k8s.io/component-helpers/resource/helpers.go: init containers run one
    # after another, sidecars keep running beside everything that starts after them.
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
    )  # requests at pod level override the sum of the containers
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
    """Return the requirement; if it compares with a value that is no integer, return one that never matches."""
    # nodeaffinity.go in staging/src/k8s.io/component-helpers/scheduling/corev1/nodeaffinity treats a term that cannot
    # be parsed as one that matches no node.
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
