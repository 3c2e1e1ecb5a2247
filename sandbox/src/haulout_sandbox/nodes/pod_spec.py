"""The parts of a pod's spec that affect scheduling and the simulated kubelet, and how they match."""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

import msgspec

from haulout.api.objects import Base, Taint


class LabeledObject(Protocol):
    """An object, as far as selectors need it; the key of a node is its name."""

    @property
    def key(self) -> str: ...

    @property
    def labels(self) -> Mapping[str, str]: ...


L = TypeVar("L", bound=LabeledObject)


class Toleration(Base, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.key != "" and self.value == taint.value)


class NodeSelectorRequirement(Base, frozen=True):
    """A requirement on labels, or on a field."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return _compare_numbers(value, self.operator, self.values)
        return False


def _compare_numbers(value: str | None, operator: str, values: tuple[str, ...]) -> bool:
    try:
        number, bound = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if operator == "Gt" else number < bound


class LabelSelector(Base, frozen=True):
    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether it has no requirement, so that it matches everything; workloads do not allow that."""
        return not self.match_labels and not self.match_expressions

    def matches(self, labels: Mapping[str, str]) -> bool:
        if not self.match_labels.items() <= labels.items():
            return False
        return not self.match_expressions or all(requirement.matches(labels) for requirement in self.match_expressions)

    def filter(self, objs: Iterable[L]) -> list[L]:
        """Return the objects that match; inlined, because there may be many."""
        wanted_labels = self.match_labels.items()
        matching = [obj for obj in objs if wanted_labels <= obj.labels.items()]
        if not self.match_expressions:
            return matching
        return [
            obj for obj in matching if all(requirement.matches(obj.labels) for requirement in self.match_expressions)
        ]


class NodeSelectorTerm(Base, frozen=True):
    """Requirements on a node, all of which must match; a term without any matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()

    def matches(self, node: LabeledObject) -> bool:
        if not self.match_expressions and not self.match_fields:
            return False
        fields = {"metadata.name": node.key}
        return all(requirement.matches(node.labels) for requirement in self.match_expressions) and all(
            requirement.matches(fields) for requirement in self.match_fields
        )


class NodeSelector(Base, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Base, frozen=True):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Base, frozen=True):
    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class PodAffinityTerm(Base, frozen=True):
    """A term of a pod's affinity or anti-affinity to other pods."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None


class PodAffinity(Base, frozen=True):
    """The affinity or anti-affinity of a pod to other pods."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(Base, frozen=True):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


def matches_node(node: LabeledObject, *, node_selector: Mapping[str, str], affinity: Affinity) -> bool:
    """Return whether a pod's node selector and required node affinity match a node."""
    if not node_selector.items() <= node.labels.items():
        return False
    required = affinity.node_affinity.required
    return required is None or any(term.matches(node) for term in required.node_selector_terms)


class TopologySpreadConstraint(Base, frozen=True):
    max_skew: int = 1
    min_domains: int | None = None
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"


class ContainerPort(Base, frozen=True):
    host_port: int = 0
    protocol: str = "TCP"


class Probe(Base, frozen=True):
    """A probe; only its initial delay is read."""

    initial_delay_seconds: int = 0


class ResourceRequirements(Base, frozen=True):
    requests: dict[str, str | int | float] = msgspec.field(default_factory=dict)


class Container(Base, frozen=True):
    """A container, as far as the simulated kubelet needs it."""

    name: str = ""
    image: str = ""
    restart_policy: str = ""
    ports: tuple[ContainerPort, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    readiness_probe: Probe | None = None

    @property
    def is_sidecar(self) -> bool:
        """Return whether an init container keeps running."""
        return self.restart_policy == "Always"
