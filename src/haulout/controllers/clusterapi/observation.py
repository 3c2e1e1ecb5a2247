"""The observation of a Machine and its node that a decision is made from, and the decision.

It also defines the annotations that tell an approval of this request from an older one, which the protocol's labels
cannot. On a Node, written in the same patch as the request: its Machine, and when it was requested. On a Machine: which
request was approved, and that its deletion is no longer held.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from haulout.api import annotations
from haulout.api.clusterapi import ClusterKey, Machine
from haulout.api.hold import Hold
from haulout.api.objects import Base, Node, Object
from haulout.api.reasons import HubEventReason
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.controllers.clusterapi.status import MachineRequestStatus
from haulout.kube.patches import Patch, merge_patch
from haulout.runtime.freezes import Freezes
from haulout.runtime.journal import Transition

DesiredValues = Mapping[str, str | None]  # by key; None: the key must be absent

DELETION_REQUEST = annotations.MACHINE_DELETION_REQUEST  # annotation of a Node
MAINTENANCE_REQUEST = annotations.MACHINE_MAINTENANCE_REQUEST  # annotation of a Node
APPROVED_REQUEST = annotations.MACHINE_MAINTENANCE_APPROVED  # annotation of a Machine: the approved request
DELETION_RELEASED = annotations.MACHINE_DELETION_RELEASED  # annotation of a Machine: why its deletion is not held
_EVENT_ACTION = "Propagate"


class ReleaseReason(StrEnum):
    """Why a deletion is no longer held."""

    APPROVED = HubEventReason.DELETION_APPROVED
    TIMED_OUT = HubEventReason.APPROVAL_TIMED_OUT
    CLUSTER_DELETED = HubEventReason.CLUSTER_DELETED
    UNREACHABLE = HubEventReason.CLUSTER_UNREACHABLE
    NO_NODE = HubEventReason.NO_NODE
    NOT_MANAGED = HubEventReason.NOT_MANAGED

    @property
    def is_warning(self) -> bool:
        """Whether the node is removed unprepared, although a profile should have prepared it."""
        return self in (ReleaseReason.TIMED_OUT, ReleaseReason.UNREACHABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known about a Machine, its node, its cluster and the budget at one moment."""

    machine: Machine
    now: datetime
    settings: ClusterApiSettings = field(default_factory=ClusterApiSettings)
    node: Node | None = None
    is_node_known: bool = True  # the cluster is connected: `node` None then means that the node does not exist
    is_gone: bool = False  # the Machine was deleted, or replaced by another of its name
    is_node_claimed: bool = False  # a Machine in the cache has this node
    unreachable_since: datetime | None = None  # or unreadable
    is_unreadable: bool = False
    has_cluster: bool = True  # its Cluster is known
    is_cluster_being_deleted: bool = False
    is_cluster_paused: bool = False
    budget_refusal: str = ""  # why maintenance of the cluster may not begin
    freezes: Freezes = field(default_factory=Freezes)  # of the management cluster
    drain_rules: str | None = None  # the desired annotation of the node; None: unknown, keep what is there

    @property
    def hold(self) -> Hold | None:
        """What keeps requests off the node; a freeze of the management cluster holds the nodes of all clusters."""
        return None if self.node is None else self.freezes.hold_on(self.node, now=self.now, reads_annotation=False)

    @property
    def refusal(self) -> str:
        """Why no new request may be written; empty if one may."""
        return self.budget_refusal if self.hold is None else f"node {self.machine.node} is {self.hold}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataChange:
    """Labels and annotations of one object to set or remove."""

    labels: DesiredValues = field(default_factory=dict)
    annotations: DesiredValues = field(default_factory=dict)
    checks_resource_version: bool = False  # the decision depends on the observed resourceVersion

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations)

    def __str__(self) -> str:
        """Format the change for the log: `label a=true, annotation b removed`."""
        groups = (("label", self.labels), ("annotation", self.annotations))
        parts = (f"{kind} {_format_value(key, value)}" for kind, keys in groups for key, value in keys.items())
        return ", ".join(parts)

    def to_patch(self, obj: Object) -> Patch:
        """Return the patch for exactly this object, guarded by its uid."""
        # A Machine or Node that was replaced by another of the same name has another uid, and the API server refuses
        # the patch (ValidateObjectMetaAccessorUpdate in apimachinery/pkg/api/validation/objectmeta.go).
        metadata: dict[str, Any] = {"uid": obj.uid}
        if self.checks_resource_version:
            metadata["resourceVersion"] = obj.resource_version
        metadata |= {"labels": dict(self.labels)} if self.labels else {}
        metadata |= {"annotations": dict(self.annotations)} if self.annotations else {}
        return merge_patch({"metadata": metadata})


def metadata_change(
    obj: Object,
    *,
    labels: DesiredValues | None = None,
    annotations: DesiredValues | None = None,
    checks_resource_version: bool = False,
) -> MetadataChange:
    """Return the difference between the desired and the current labels and annotations."""
    return MetadataChange(
        labels=_differing(obj.metadata.labels, labels or {}),
        annotations=_differing(obj.metadata.annotations, annotations or {}),
        checks_resource_version=checks_resource_version,
    )


def _format_value(key: str, value: str | None) -> str:
    return f"{key} removed" if value is None else f"{key}={value}"


def _differing(current: Mapping[str, str], desired: DesiredValues) -> dict[str, str | None]:
    return {key: value for key, value in desired.items() if current.get(key) != value}


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEvent:
    """A Kubernetes Event to record after the writes that it tells about."""

    reason: str  # CamelCase
    note: str
    is_warning: bool = False
    on_node: bool = False  # record it on the node, too; an event about a write to the node always is

    def transition(self, subject: str, cluster: ClusterKey) -> Transition:
        """Return it for the journal, without the objects that get an Event."""
        return Transition(
            regarding=(),
            subject=subject,
            reason=self.reason,
            message=self.note,
            action=_EVENT_ACTION,
            is_warning=self.is_warning,
            log_fields={"cluster": str(cluster)},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialDecision:
    """The part of a decision that follows from one request: deletion or maintenance."""

    node_labels: DesiredValues = field(default_factory=dict)
    node_annotations: DesiredValues = field(default_factory=dict)
    machine_labels: DesiredValues = field(default_factory=dict)
    machine_annotations: DesiredValues = field(default_factory=dict)
    is_new_request: bool = False  # a request is written that did not exist before
    is_active: bool = False  # a request exists or is being written
    status: MachineRequestStatus | None = None
    events: tuple[PendingEvent, ...] = ()
    status_events: tuple[PendingEvent, ...] = ()
    requeue_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to write, the node first; the events to record after the writes; and the resulting status."""

    node: MetadataChange = field(default_factory=MetadataChange)
    machine: MetadataChange = field(default_factory=MetadataChange)
    is_new_request: bool = False  # a new request needs a slot in the budget across clusters
    is_active: bool = False  # a request exists or is being written
    is_settled: bool = True  # no node is left to check before the Machine may be forgotten
    statuses: tuple[MachineRequestStatus, ...] = ()
    events: tuple[PendingEvent, ...] = ()  # about what is written
    status_events: tuple[PendingEvent, ...] = ()  # about the status, recorded once
    requeue_at: datetime | None = None

    @property
    def is_waiting_for_budget(self) -> bool:
        return any(event.reason == HubEventReason.CLUSTER_BUDGET_EXHAUSTED for event in self.status_events)


class NodeRequest(Base, frozen=True):
    """A request to prepare a node, as an annotation of the node stores it."""

    machine: str  # its uid
    since: datetime

    @property
    def annotation_value(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def identity(self) -> str:
        """Identifies this request among those for the same Machine."""
        return self.since.astimezone(UTC).isoformat()


def read_request(node: Node, key: str) -> NodeRequest | None:
    """Return the request in an annotation of a node; None if it is absent or invalid."""
    value = node.metadata.annotations.get(key)
    if not value:
        return None
    try:
        request = msgspec.json.decode(value, type=NodeRequest)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
    # Without a zone it cannot be compared with `now`. Nobody but us writes the annotation, so a user must have edited
    # it.
    return request if request.since.tzinfo is not None else None


def request_for(node: Node, key: str, machine: Machine) -> NodeRequest | None:
    """Return the request for this Machine; None if it is absent, invalid or for another Machine."""
    request = read_request(node, key)
    return request if request is not None and request.machine == machine.uid else None
