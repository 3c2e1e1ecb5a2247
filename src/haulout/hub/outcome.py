"""What is known when something is decided about a Machine and its node, and what a decision is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from haulout.hub.settings import HubSettings
from haulout.hub.standing import MachineStanding
from haulout.kinds.clusterapi import Machine
from haulout.kube.objects import Node, Object
from haulout.kube.patches import Patch, merge_patch

Wanted = Mapping[str, str | None]  # by key; None: it should not be there


class Release(StrEnum):
    """Why a deletion is not held any more."""

    APPROVED = "DeletionApproved"
    TIMED_OUT = "ApprovalTimedOut"
    CLUSTER_LEAVES = "ClusterDeleted"
    UNREACHABLE = "ClusterUnreachable"
    NO_NODE = "NoNode"
    NOT_MANAGED = "NotManaged"

    @property
    def is_bad(self) -> bool:
        """Tell whether the node goes without having been prepared, though somebody should have done that."""
        return self in (Release.TIMED_OUT, Release.UNREACHABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of a Machine."""

    machine: Machine
    now: datetime
    settings: HubSettings = field(default_factory=HubSettings)
    node: Node | None = None
    is_node_known: bool = True  # its cluster answers: that there is no node then means that it is gone
    unreachable_since: datetime | None = None  # or unreadable
    is_unreadable: bool = False
    is_cluster_leaving: bool = False
    is_cluster_paused: bool = False
    barred: str = ""  # why the cluster may not begin with maintenance
    drain_rules: str | None = None  # what its node should say of them; None: what it says stays


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Labels and annotations of one object that are to become different, and nothing else of it."""

    labels: Wanted = field(default_factory=dict)
    annotations: Wanted = field(default_factory=dict)
    is_exact: bool = False  # it rests on all that was seen of the object

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations)

    def __str__(self) -> str:
        """Return it for the log: `label a=true, annotation b removed`."""
        told = (("label", self.labels), ("annotation", self.annotations))
        each = (f"{what} {_written(key, value)}" for what, keys in told for key, value in keys.items())
        return ", ".join(each)

    def patch(self, found: Object) -> Patch:
        """Return the patch for the object that was found, and for no other of its name."""
        metadata: dict[str, Any] = {"uid": found.uid}
        if self.is_exact:
            metadata["resourceVersion"] = found.resource_version
        metadata |= {"labels": dict(self.labels)} if self.labels else {}
        metadata |= {"annotations": dict(self.annotations)} if self.annotations else {}
        return merge_patch({"metadata": metadata})


def change_of(
    found: Object, *, labels: Wanted | None = None, annotations: Wanted | None = None, is_exact: bool = False
) -> Change:
    """Return what of the wanted is not so yet."""
    return Change(
        labels=_different(found.metadata.labels, labels or {}),
        annotations=_different(found.metadata.annotations, annotations or {}),
        is_exact=is_exact,
    )


def _written(key: str, value: str | None) -> str:
    return f"{key} removed" if value is None else f"{key}={value}"


def _different(have: Mapping[str, str], want: Wanted) -> dict[str, str | None]:
    return {key: value for key, value in want.items() if have.get(key) != value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """Something that people should hear of."""

    reason: str  # in a word
    note: str
    is_bad: bool = False
    of_node: bool = False  # it is told about the node, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What follows from one of the two protocols: a deletion, or a maintenance that is asked for."""

    node_labels: Wanted = field(default_factory=dict)
    node_annotations: Wanted = field(default_factory=dict)
    machine_labels: Wanted = field(default_factory=dict)
    machine_annotations: Wanted = field(default_factory=dict)
    begins: bool = False  # something is asked for that was not before
    is_active: bool = False  # something is asked for, now or since before
    standing: MachineStanding | None = None
    tellings: tuple[Telling, ...] = ()
    remarks: tuple[Telling, ...] = ()
    next_look: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What to write, the node first, what to tell once that is done, and how things then stand."""

    node: Change = field(default_factory=Change)
    machine: Change = field(default_factory=Change)
    begins: bool = False  # something is asked for that was not before: may the cluster begin?
    is_active: bool = False  # something is asked for, now or since before
    is_settled: bool = True  # there is no node that should be looked at before the Machine is forgotten
    standings: tuple[MachineStanding, ...] = ()
    tellings: tuple[Telling, ...] = ()  # of what is written
    remarks: tuple[Telling, ...] = ()  # of how it stands, to be told once
    next_look: datetime | None = None
