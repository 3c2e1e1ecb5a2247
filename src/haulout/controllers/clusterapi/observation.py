"""What is known when something is decided about a Machine and its node, and what a decision is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from haulout.api.clusterapi import Machine
from haulout.api.objects import Node, Object
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.controllers.clusterapi.status import MachineRequestStatus
from haulout.kube.patches import Patch, merge_patch

DesiredValues = Mapping[str, str | None]  # by key; None: it should not be there


class ReleaseReason(StrEnum):
    """Why a deletion is not held any more."""

    APPROVED = "DeletionApproved"
    TIMED_OUT = "ApprovalTimedOut"
    CLUSTER_DELETED = "ClusterDeleted"
    UNREACHABLE = "ClusterUnreachable"
    NO_NODE = "NoNode"
    NOT_MANAGED = "NotManaged"

    @property
    def is_warning(self) -> bool:
        """Tell whether the node goes without having been prepared, though somebody should have done that."""
        return self in (ReleaseReason.TIMED_OUT, ReleaseReason.UNREACHABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known of a Machine."""

    machine: Machine
    now: datetime
    settings: ClusterApiSettings = field(default_factory=ClusterApiSettings)
    node: Node | None = None
    is_node_known: bool = True  # its cluster answers: that there is no node then means that it is gone
    unreachable_since: datetime | None = None  # or unreadable
    is_unreadable: bool = False
    is_cluster_being_deleted: bool = False
    is_cluster_paused: bool = False
    budget_refusal: str = ""  # why the cluster may not begin with maintenance
    drain_rules: str | None = None  # what its node should say of them; None: what it says stays


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataChange:
    """Labels and annotations of one object that are to become different, and nothing else of it."""

    labels: DesiredValues = field(default_factory=dict)
    annotations: DesiredValues = field(default_factory=dict)
    checks_resource_version: bool = False  # it rests on all that was seen of the object

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations)

    def __str__(self) -> str:
        """Return it for the log: `label a=true, annotation b removed`."""
        groups = (("label", self.labels), ("annotation", self.annotations))
        parts = (f"{kind} {_format_value(key, value)}" for kind, keys in groups for key, value in keys.items())
        return ", ".join(parts)

    def to_patch(self, obj: Object) -> Patch:
        """Return the patch for the object that was found, and for no other of its name."""
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
    """Return what of the wanted is not so yet."""
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
    """Something that people should hear of."""

    reason: str  # in a word
    note: str
    is_warning: bool = False
    on_node: bool = False  # it is told about the node, too


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialDecision:
    """What follows from one of the two protocols: a deletion, or a maintenance that is asked for."""

    node_labels: DesiredValues = field(default_factory=dict)
    node_annotations: DesiredValues = field(default_factory=dict)
    machine_labels: DesiredValues = field(default_factory=dict)
    machine_annotations: DesiredValues = field(default_factory=dict)
    is_new_request: bool = False  # something is asked for that was not before
    is_active: bool = False  # something is asked for, now or since before
    status: MachineRequestStatus | None = None
    events: tuple[PendingEvent, ...] = ()
    status_events: tuple[PendingEvent, ...] = ()
    requeue_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to write, the node first, what to tell once that is done, and how things then stand."""

    node: MetadataChange = field(default_factory=MetadataChange)
    machine: MetadataChange = field(default_factory=MetadataChange)
    is_new_request: bool = False  # something is asked for that was not before: may the cluster begin?
    is_active: bool = False  # something is asked for, now or since before
    is_settled: bool = True  # there is no node that should be looked at before the Machine is forgotten
    statuses: tuple[MachineRequestStatus, ...] = ()
    events: tuple[PendingEvent, ...] = ()  # of what is written
    status_events: tuple[PendingEvent, ...] = ()  # of how it stands, to be told once
    requeue_at: datetime | None = None
