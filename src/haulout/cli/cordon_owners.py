"""The cordon owners of a node, from its annotation, and whether each still exists.

An owner is named `NodeMaintenance/patch-n1`, `profile/os`, or as a component of the operator declares it. A
NodeMaintenance that is deleted or is about another node owns nothing, nor does a profile that the node no longer has,
nor a label or mark that was removed: their cordon is orphaned, and a user may remove it. An owner counts as present if
we may not read it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from haulout.api.nodemaintenance import NODE_MAINTENANCES, NodeMaintenance
from haulout.api.objects import Node
from haulout.app.components import cordon_owners
from haulout.controllers.nodemaintenance.node_cordon import OWNER_PREFIX
from haulout.controllers.profiles.machine import data_annotation
from haulout.controllers.profiles.machine.data_annotation import DataError
from haulout.controllers.profiles.plugin import DATA_ANNOTATION
from haulout.core import duration
from haulout.drain.cordon import Cordon
from haulout.errors import KubeError, NotFound
from haulout.kube.client import Client

_PROFILE = "profile/"


class OwnerPresence(StrEnum):
    """Whether an owner still exists."""

    PRESENT = "Present"
    GONE = "Gone"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class CordonOwner:
    """An owner of a node's cordon."""

    owner: str  # as in the annotation
    since: datetime
    presence: OwnerPresence
    node: str

    @property
    def name(self) -> str:
        return self.owner.replace("/", " ", 1)

    @property
    def release_command(self) -> str:
        """The command that ends the ownership or explains it; empty if there is none."""
        if name := _maintenance_name(self.owner):
            return f"kubectl delete nm {name}"
        if (component := cordon_owners().get(self.owner)) is not None:
            return component.release_command(self.node)
        return f"haulout why {self.node}, which shows what it waits for" if _profile_name(self.owner) else ""

    def describe(self, *, now: datetime) -> str:
        """Return the owner's name and the start of its ownership."""
        doubts = {
            OwnerPresence.GONE: ", which no longer exists,",
            OwnerPresence.UNKNOWN: ", which you are not allowed to read,",
        }
        return f"{self.name}{doubts.get(self.presence, '')} since {format_since(self.since, now=now)}"


def format_since(at: datetime, *, now: datetime) -> str:
    """Return an instant with its age."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC ({format_elapsed(now - at)} ago)"


def format_elapsed(span: timedelta) -> str:
    """Return a duration in Go's format with seconds; above an hour in minutes, above a day in hours."""
    seconds = max(int(span.total_seconds()), 0)
    if seconds >= _DAY:
        return f"{seconds // _DAY}d{seconds % _DAY // _HOUR}h"
    if seconds >= _HOUR:
        return f"{seconds // _HOUR}h{seconds % _HOUR // _MINUTE}m"
    return duration.format(timedelta(seconds=seconds))


_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


def owners_of_mark(mark: Cordon, node: Node, maintenances: Mapping[str, NodeMaintenance] | None) -> list[CordonOwner]:
    """Return the owners in an annotation; `maintenances` are all, by name, or None if they are forbidden."""
    return [
        CordonOwner(owner, hold.since, _presence(owner, node, maintenances), node.name)
        for owner, hold in mark.owners.items()
    ]


async def fetch_owners(client: Client, node: Node, mark: Cordon) -> list[CordonOwner]:
    """Return the owners in an annotation, reading each NodeMaintenance from the server."""
    names = filter(None, map(_maintenance_name, mark.owners))
    try:
        return owners_of_mark(mark, node, await _fetch_maintenances(client, names))
    except KubeError:
        return owners_of_mark(mark, node, None)


async def _fetch_maintenances(client: Client, names: Iterable[str]) -> dict[str, NodeMaintenance]:
    found: dict[str, NodeMaintenance] = {}
    for name in names:
        try:
            found[name] = await client.get(NODE_MAINTENANCES, name)
        except NotFound:  # of the object, or of its CRD: no NodeMaintenance exists either way
            continue
    return found


def _presence(owner: str, node: Node, maintenances: Mapping[str, NodeMaintenance] | None) -> OwnerPresence:
    if profile := _profile_name(owner):
        return _profile_presence(profile, node)
    if (component := cordon_owners().get(owner)) is not None:
        return OwnerPresence.PRESENT if component.is_present(node) else OwnerPresence.GONE
    name = _maintenance_name(owner)
    if not name or maintenances is None:
        return OwnerPresence.UNKNOWN
    is_there = name in maintenances and maintenances[name].node == node.name
    return OwnerPresence.PRESENT if is_there else OwnerPresence.GONE


def _profile_presence(profile: str, node: Node) -> OwnerPresence:
    """Return whether a node has a profile, by the data annotation of the profiles controller."""
    try:
        known = data_annotation.statuses_of(node.metadata.annotations.get(DATA_ANNOTATION))
    except DataError:
        return OwnerPresence.UNKNOWN
    return OwnerPresence.PRESENT if profile in known else OwnerPresence.GONE


def _profile_name(owner: str) -> str:
    """Return the profile name of an owner; empty if it is none."""
    return owner.removeprefix(_PROFILE) if owner.startswith(_PROFILE) else ""


def _maintenance_name(owner: str) -> str:
    """Return the NodeMaintenance name of an owner; empty if it is none."""
    return owner.removeprefix(OWNER_PREFIX) if owner.startswith(OWNER_PREFIX) else ""
