"""Who holds a node, by our mark on it, and whether they are still there.

An owner is named `NodeMaintenance/patch-n1`, `profile/os`, `Kubernikus/delete-node` or `ESX`. A NodeMaintenance that is
gone, or is about another node, holds nothing, nor does a profile that the node no longer has, nor a label or a mark
that it has no more: what they left is an orphan, which a person may clear away. Where we may not look, or cannot read,
it counts as there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from haulout.core import duration
from haulout.drain.cordon import Cordon
from haulout.errors import KubeError, NotFound
from haulout.esx.decision import is_initiated
from haulout.esx.keys import OWNER as ESX
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.kubernikus import keys as kubernikus
from haulout.maintenance.holding import OWNER_PREFIX
from haulout.maintenance.resource import NODE_MAINTENANCES, NodeMaintenance
from haulout.profiles import data
from haulout.profiles.data import DataError
from haulout.profiles.plugin import DATA_ANNOTATION

_PROFILE = "profile/"


class Presence(StrEnum):
    """Whether an owner is still there."""

    THERE = "There"
    GONE = "Gone"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Holder:
    """One who keeps a node cordoned."""

    owner: str  # as the mark names it
    since: datetime
    presence: Presence
    node: str

    @property
    def name(self) -> str:
        """How people call it."""
        return self.owner.replace("/", " ", 1)

    @property
    def ends_by(self) -> str:
        """The command that ends it, or tells how; empty if nobody knows one."""
        if name := _maintenance(self.owner):
            return f"kubectl delete nm {name}"
        if self.owner == kubernikus.OWNER:
            return f"kubectl label node {self.node} {kubernikus.DELETE_NODE}-"
        return f"haulout why {self.node}, which tells what it waits for" if _profile(self.owner) else ""

    def told(self, *, now: datetime) -> str:
        """Return who it is and since when."""
        doubt = {Presence.GONE: ", which is no more,", Presence.UNKNOWN: ", which you may not see,"}
        return f"{self.name}{doubt.get(self.presence, '')} since {since(self.since, now=now)}"


def since(instant: datetime, *, now: datetime) -> str:
    """Return an instant with how long ago that is."""
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC ({elapsed(now - instant)} ago)"


def elapsed(span: timedelta) -> str:
    """Return a span in whole seconds, as Go writes it; minutes are enough for hours and days."""
    seconds = max(int(span.total_seconds()), 0)
    if seconds >= _DAY:
        return f"{seconds // _DAY}d{seconds % _DAY // _HOUR}h"
    if seconds >= _HOUR:
        return f"{seconds // _HOUR}h{seconds % _HOUR // _MINUTE}m"
    return duration.format(timedelta(seconds=seconds))


_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


def judged(mark: Cordon, node: Node, maintenances: Mapping[str, NodeMaintenance] | None) -> list[Holder]:
    """Return the owners of a mark; `maintenances` are all there are, by name, or None if nobody may see them."""
    return [
        Holder(owner, hold.since, _presence(owner, node, maintenances), node.name)
        for owner, hold in mark.owners.items()
    ]


async def look_up(client: Client, node: Node, mark: Cordon) -> list[Holder]:
    """Return the owners of a mark, after asking the server for each."""
    names = filter(None, map(_maintenance, mark.owners))
    try:
        return judged(mark, node, await _found(client, names))
    except KubeError:
        return judged(mark, node, None)


async def _found(client: Client, names: Iterable[str]) -> dict[str, NodeMaintenance]:
    found: dict[str, NodeMaintenance] = {}
    for name in names:
        try:
            found[name] = await client.get(NODE_MAINTENANCES, name)
        except NotFound:  # of the object, or of the kind: in both cases there is none
            continue
    return found


def _presence(owner: str, node: Node, maintenances: Mapping[str, NodeMaintenance] | None) -> Presence:
    if profile := _profile(owner):
        return _presence_of_profile(profile, node)
    if owner == kubernikus.OWNER:
        return Presence.THERE if kubernikus.is_ordered(node) else Presence.GONE
    if owner == ESX:
        return Presence.THERE if is_initiated(node) else Presence.GONE
    name = _maintenance(owner)
    if not name or maintenances is None:
        return Presence.UNKNOWN
    is_there = name in maintenances and maintenances[name].node == node.name
    return Presence.THERE if is_there else Presence.GONE


def _presence_of_profile(profile: str, node: Node) -> Presence:
    """Tell whether a node has a profile, by the data that whoever sees to profiles keeps there."""
    try:
        known = data.entries_of(node.metadata.annotations.get(DATA_ANNOTATION))
    except DataError:
        return Presence.UNKNOWN
    return Presence.THERE if profile in known else Presence.GONE


def _profile(owner: str) -> str:
    """Return the name of the profile that an owner is; empty if it is something else."""
    return owner.removeprefix(_PROFILE) if owner.startswith(_PROFILE) else ""


def _maintenance(owner: str) -> str:
    """Return the name of the NodeMaintenance that an owner is; empty if it is something else."""
    return owner.removeprefix(OWNER_PREFIX) if owner.startswith(OWNER_PREFIX) else ""
