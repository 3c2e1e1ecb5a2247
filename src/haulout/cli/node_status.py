"""How nodes stand, for `haulout status`: who holds them, how far their maintenance is, and what stands in its way.

It only reads, and needs nothing to be installed. What we may not see, or what is not there, is a note and no error: a
person who may see nodes gets to know what can be known.
"""

import asyncio
import os
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from haulout.cli.holders import Holder, Presence, judged
from haulout.cli.noticing.sights import Sight, all_of_them
from haulout.drain.cordon import BadMark, Cordon, cordon_of
from haulout.drain.pods import on_node
from haulout.errors import Forbidden, KubeError, NotFound
from haulout.kinds.hold import HELD, Hold, hold_of
from haulout.kube.client import Client
from haulout.kube.locks import held_until
from haulout.kube.objects import Lease, Node, Page, Pod
from haulout.kube.resources import LEASES, NODES, PODS
from haulout.maintenance.lease import NAMESPACE, name_of
from haulout.maintenance.resource import NODE_MAINTENANCES, ConditionType, NodeMaintenance, Phase, StatusBlocker
from haulout.profiles.plugin import STATE_LABEL, State

T = TypeVar("T")

_WAITS_FOR_BUDGET = "waiting for the budget"
_HELD_BACK = "held back"
_BEFORE_CORDON = ("failed", _WAITS_FOR_BUDGET, _HELD_BACK)
_LEASE_NAMESPACE = "LEASE_NAMESPACE"  # the environment's word, as the operator reads it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """What is known of one node."""

    name: str
    node: Node | None  # None: there is none of that name
    mark: Cordon | None = None
    bad_mark: str = ""
    holders: tuple[Holder, ...] = ()
    maintenances: tuple[NodeMaintenance, ...] = ()
    lease: Lease | None = None
    lease_until: datetime | None = None  # None: nobody holds it
    pods: tuple[Pod, ...] | None = None  # None: nobody looked, or may
    notices: tuple[Sight, ...] = ()  # what is announced for it, and happens within a day
    hold: Hold | None = None  # a person keeps maintenance off it
    was_held: Hold | None = None  # the same, and its time is over

    @property
    def is_cordoned(self) -> bool:
        """Tell whether no new pods come."""
        return self.node is not None and self.node.spec.unschedulable

    @property
    def is_ready(self) -> bool:
        """Tell whether its kubelet says that it is well."""
        conditions = () if self.node is None else self.node.status.conditions
        return any(it.type == "Ready" and it.status == "True" for it in conditions)

    @property
    def orphans(self) -> tuple[Holder, ...]:
        """Those who hold it by our mark, and are no more."""
        return tuple(it for it in self.holders if it.presence is Presence.GONE)

    @property
    def blockers(self) -> tuple[StatusBlocker, ...]:
        """What stands in the way of its maintenances."""
        return tuple(blocker for it in self.maintenances for blocker in it.status.blockers)

    @property
    def next_look(self) -> datetime | None:
        """When something is done about it next, whatever else happens."""
        return min((it.status.next_look for it in self.maintenances if it.status.next_look), default=None)

    @property
    def has_news(self) -> bool:
        """Tell whether there is something to say about it."""
        marked = self.mark is not None or self.bad_mark
        is_held = self.hold is not None or self.lease_until
        return bool(self.is_cordoned or marked or self.maintenances or is_held or not self.is_ready)

    @property
    def state(self) -> str:
        """Return how it stands, in a word or two."""
        if self.node is None:
            return "no such node"
        state = _state(self.maintenances)
        if not state and self.orphans:
            state = "left cordoned"
        if not state and self.is_cordoned:
            state = "in maintenance" if self._is_in_maintenance_by_a_profile else "cordoned"
        if state and self.maintenances and not self.is_cordoned and state not in _BEFORE_CORDON:
            state += ", not cordoned"
        ready = "" if self.is_ready else "not ready"
        held = "held" if self.hold is not None and state != _HELD_BACK else ""
        return ", ".join(part for part in (state or ("" if ready else "in service"), ready, held) if part)

    @property
    def _is_in_maintenance_by_a_profile(self) -> bool:
        label = "" if self.node is None else self.node.metadata.labels.get(STATE_LABEL, "")
        return bool(self.holders) and label == State.IN_MAINTENANCE


def _state(maintenances: tuple[NodeMaintenance, ...]) -> str:
    if not maintenances:
        return ""
    if any(it.is_leaving for it in maintenances):
        return "returning to service"
    phases = [it.status.phase for it in maintenances]
    if Phase.FAILED in phases:
        return "failed"
    if Phase.RUNNING in phases:
        if all(map(_is_held_back, maintenances)):
            return _HELD_BACK
        return _WAITS_FOR_BUDGET if all(map(_waits_for_budget, maintenances)) else "draining"
    return "in maintenance" if Phase.SUCCEEDED in phases else "waiting for the operator"


def _is_held_back(maintenance: NodeMaintenance) -> bool:
    told = maintenance.status.condition(ConditionType.DRAINED)
    return told is not None and told.reason == HELD


def _waits_for_budget(maintenance: NodeMaintenance) -> bool:
    told = maintenance.status.condition(ConditionType.WITHIN_BUDGET)
    return told is not None and told.status == "False"


@dataclass(frozen=True, slots=True)
class Standings:
    """How nodes stand, and what could not be seen."""

    nodes: tuple[NodeStatus, ...]
    notes: tuple[str, ...]
    now: datetime


async def look(client: Client, name: str | None = None) -> Standings:
    """Return how all nodes stand, or the one of that name; raises `KubeError` if not even that may be seen."""
    notes: list[str] = []
    namespace = os.environ.get(_LEASE_NAMESPACE) or NAMESPACE
    try:
        async with asyncio.TaskGroup() as group:
            nodes = group.create_task(_nodes(client, name))
            maintenances = group.create_task(
                _seen(
                    client.list(NODE_MAINTENANCES), "NodeMaintenances", notes, without="the operator is not installed"
                )
            )
            leases = group.create_task(_seen(client.list(LEASES, namespace=namespace), f"leases in {namespace}", notes))
            announced = group.create_task(_announced(client, notes))
            pods = group.create_task(
                _seen(client.list(PODS, fields=on_node(name)), "pods", notes) if name else _nothing()
            )
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    found = _Found(
        maintenances=_items(maintenances.result()),
        leases={lease.name: lease for lease in _items(leases.result()) or ()},
        pods=_items(pods.result()),
        notices=announced.result(),
        now=client.clock.now(),
    )
    there = {node.name: node for node in nodes.result()}
    wanted = [name] if name else sorted({*there, *(it.node for it in found.maintenances or () if it.node)})
    ordered, announced_for = [it.node for it in found.maintenances or ()], [it.node for it in found.notices]
    if name and name not in (*there, *ordered, *announced_for):
        raise KubeError(f'nodes "{name}" not found, nor a NodeMaintenance for it')
    return Standings(tuple(found.about(it, there.get(it)) for it in wanted), tuple(sorted(notes)), found.now)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    maintenances: tuple[NodeMaintenance, ...] | None  # None: nobody may see them
    leases: Mapping[str, Lease]
    pods: tuple[Pod, ...] | None
    notices: tuple[Sight, ...]
    now: datetime

    def about(self, name: str, node: Node | None) -> NodeStatus:
        mark, bad_mark = _mark(node)
        by_name = None if self.maintenances is None else {it.name: it for it in self.maintenances}
        lease = self.leases.get(name_of(name))
        hold = None if node is None else hold_of(node)
        is_over = hold is not None and hold.is_over(self.now)
        return NodeStatus(
            name=name,
            node=node,
            mark=mark,
            bad_mark=bad_mark,
            holders=() if mark is None or node is None else tuple(judged(mark, node, by_name)),
            maintenances=tuple(it for it in self.maintenances or () if it.node == name),
            lease=lease,
            lease_until=None if lease is None else held_until(lease.spec, now=self.now),
            pods=self.pods,
            hold=None if is_over else hold,
            was_held=hold if is_over else None,
            notices=tuple(it for it in self.notices if it.node == name and (node is None or it.notice.fits(node))),
        )


def _mark(node: Node | None) -> tuple[Cordon | None, str]:
    try:
        return (None if node is None else cordon_of(node)), ""
    except BadMark as error:
        return None, str(error)


async def _nodes(client: Client, name: str | None) -> tuple[Node, ...]:
    if name is None:
        return (await client.list(NODES)).items
    try:
        return (await client.get(NODES, name),)
    except NotFound:
        return ()


async def _seen(asked: Awaitable[Page[T]], what: str, notes: list[str], *, without: str = "") -> Page[T] | None:
    """Return what is there; None, and a note, if it may not be seen."""
    try:
        return await asked
    except NotFound:
        if without:
            notes.append(f"{what}: there is no such kind here, so {without}")
        return Page()
    except Forbidden as error:
        notes.append(f"{what}: you may not see them ({error.message})")
        return None


async def _announced(client: Client, notes: list[str]) -> tuple[Sight, ...]:
    """Return what is announced and near; nothing where nobody can announce anything."""
    try:
        sights, unreadable = await all_of_them(client)
    except NotFound:
        return ()
    except Forbidden as error:
        notes.append(f"MaintenanceNotices: you may not see them ({error.message})")
        return ()
    notes += unreadable
    return tuple(it for it in sights if it.is_pressing)


async def _nothing() -> None:
    return None


def _items(page: Page[T] | None) -> tuple[T, ...] | None:
    return None if page is None else page.items
