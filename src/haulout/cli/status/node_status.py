"""Read the state of nodes for `haulout status`: cordon owners, progress of maintenance, and blockers.

The command only reads, and requires no CRD. Forbidden or missing objects become a note and no error: permission to read
nodes suffices.
"""

import asyncio
import os
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from haulout.api.hold import HELD, Hold, hold_of
from haulout.api.nodemaintenance import (
    NODE_MAINTENANCES,
    BlockerStatus,
    NodeMaintenance,
    NodeMaintenanceConditionType,
    NodeMaintenancePhase,
)
from haulout.api.objects import Lease, Node, Page, Pod
from haulout.api.resources import LEASES, NODES, PODS
from haulout.cli.cordon_owners import CordonOwner, OwnerPresence, owners_of_mark
from haulout.cli.notice.notice_view import NoticeView, list_views
from haulout.controllers.nodemaintenance.node_lease import NAMESPACE, lease_name
from haulout.controllers.profiles.plugin import STATE_LABEL, State
from haulout.drain.cordon import Cordon, InvalidCordonAnnotation, cordon_of
from haulout.drain.pod_informers import node_field_selector
from haulout.errors import Forbidden, KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.leases import held_until
from haulout.runtime.freezes import Freeze, Freezes, read_freezes

T = TypeVar("T")

_WAITS_FOR_BUDGET = "waiting for the budget"
_HELD = "held back"
_STATES_BEFORE_CORDON = ("failed", _WAITS_FOR_BUDGET, _HELD)
_LEASE_NAMESPACE = "LEASE_NAMESPACE"  # the operator's environment variable


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """The state of one node."""

    name: str
    node: Node | None  # None: no such node
    mark: Cordon | None = None
    bad_mark: str = ""
    cordon_owners: tuple[CordonOwner, ...] = ()
    maintenances: tuple[NodeMaintenance, ...] = ()
    lease: Lease | None = None
    lease_until: datetime | None = None  # None: nobody holds it
    pods: tuple[Pod, ...] | None = None  # None: not requested, or forbidden
    notices: tuple[NoticeView, ...] = ()  # announced for the node, within a day
    hold: Hold | None = None  # a user keeps maintenance off the node, or a freeze does
    expired_hold: Hold | None = None  # a hold whose time is over

    @property
    def is_cordoned(self) -> bool:
        return self.node is not None and self.node.spec.unschedulable

    @property
    def is_ready(self) -> bool:
        return self.node is not None and self.node.is_ready

    @property
    def orphans(self) -> tuple[CordonOwner, ...]:
        """Cordon owners that no longer exist."""
        return tuple(owner for owner in self.cordon_owners if owner.presence is OwnerPresence.GONE)

    @property
    def blockers(self) -> tuple[BlockerStatus, ...]:
        """The blockers of all maintenances of the node."""
        return tuple(blocker for maintenance in self.maintenances for blocker in maintenance.status.blockers)

    @property
    def next_look(self) -> datetime | None:
        """The next reconcile, if nothing changes earlier."""
        return min(
            (
                maintenance.status.next_reconcile
                for maintenance in self.maintenances
                if maintenance.status.next_reconcile
            ),
            default=None,
        )

    @property
    def is_noteworthy(self) -> bool:
        """Whether the table shows the node without --all."""
        marked = self.mark is not None or self.bad_mark
        # A freeze of all nodes must not list them all: the table names it once.
        is_held = (self.hold is not None and not self.hold.freeze) or self.lease_until
        return bool(self.is_cordoned or marked or self.maintenances or is_held or not self.is_ready)

    @property
    def state(self) -> str:
        """Return the state in a word or two."""
        if self.node is None:
            return "no such node"
        state = _state(self.maintenances)
        if not state and self.orphans:
            state = "left cordoned"
        if not state and self.is_cordoned:
            state = "in maintenance" if self._is_in_maintenance_by_a_profile else "cordoned"
        if state and self.maintenances and not self.is_cordoned and state not in _STATES_BEFORE_CORDON:
            state += ", not cordoned"
        ready = "" if self.is_ready else "not ready"
        held = "held" if self.hold is not None and state != _HELD else ""
        if held and self.hold is not None and self.hold.freeze:
            held = "frozen"
        return ", ".join(item for item in (state or ("" if ready else "in service"), ready, held) if item)

    @property
    def _is_in_maintenance_by_a_profile(self) -> bool:
        label = "" if self.node is None else self.node.metadata.labels.get(STATE_LABEL, "")
        return bool(self.cordon_owners) and label == State.IN_MAINTENANCE


def _state(maintenances: tuple[NodeMaintenance, ...]) -> str:
    if not maintenances:
        return ""
    if any(maintenance.is_being_deleted for maintenance in maintenances):
        return "returning to service"
    phases = [maintenance.status.phase for maintenance in maintenances]
    if NodeMaintenancePhase.FAILED in phases:
        return "failed"
    if NodeMaintenancePhase.RUNNING in phases:
        if all(map(_is_held, maintenances)):
            return _HELD
        return _WAITS_FOR_BUDGET if all(map(_waits_for_budget, maintenances)) else "draining"
    return "in maintenance" if NodeMaintenancePhase.SUCCEEDED in phases else "waiting for the operator"


def _is_held(maintenance: NodeMaintenance) -> bool:
    condition = maintenance.status.condition(NodeMaintenanceConditionType.DRAINED)
    return condition is not None and condition.reason == HELD


def _waits_for_budget(maintenance: NodeMaintenance) -> bool:
    condition = maintenance.status.condition(NodeMaintenanceConditionType.WITHIN_BUDGET)
    return condition is not None and condition.status == "False"


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The state of nodes, and notes about what could not be read."""

    nodes: tuple[NodeStatus, ...]
    notes: tuple[str, ...]
    now: datetime
    freezes: tuple[Freeze, ...] = ()  # those that are active


async def read_status(client: Client, name: str | None = None) -> StatusReport:
    """Return the state of all nodes, or of one; raise `KubeError` if nodes are forbidden."""
    notes: list[str] = []
    namespace = os.environ.get(_LEASE_NAMESPACE) or NAMESPACE
    try:
        async with asyncio.TaskGroup() as group:
            nodes = group.create_task(_read_nodes(client, name))
            maintenances = group.create_task(
                _read_page(
                    client.list(NODE_MAINTENANCES),
                    "NodeMaintenances",
                    notes,
                    missing_note="the operator is not installed",
                )
            )
            leases = group.create_task(
                _read_page(client.list(LEASES, namespace=namespace), f"leases in {namespace}", notes)
            )
            announced = group.create_task(_read_notices(client, notes))
            freezes = group.create_task(_read_freezes(client, notes))
            pods = group.create_task(
                _read_page(client.list(PODS, fields=node_field_selector(name)), "pods", notes) if name else _no_pods()
            )
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    observed = _ObservedState(
        maintenances=_items(maintenances.result()),
        leases={lease.name: lease for lease in _items(leases.result()) or ()},
        pods=_items(pods.result()),
        notices=announced.result(),
        freezes=freezes.result(),
        now=client.clock.now(),
    )
    nodes_by_name = {node.name: node for node in nodes.result()}
    names = (
        [name] if name else sorted({*nodes_by_name, *(item.node for item in observed.maintenances or () if item.node)})
    )
    maintained_nodes, noticed_nodes = (
        [item.node for item in observed.maintenances or ()],
        [item.node for item in observed.notices],
    )
    if name and name not in (*nodes_by_name, *maintained_nodes, *noticed_nodes):
        raise KubeError(f'nodes "{name}" not found, and no NodeMaintenance names it')
    return StatusReport(
        tuple(observed.node_status(item, nodes_by_name.get(item)) for item in names),
        tuple(sorted(notes)),
        observed.now,
        observed.freezes.active(observed.now),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ObservedState:
    maintenances: tuple[NodeMaintenance, ...] | None  # None: forbidden
    leases: Mapping[str, Lease]
    pods: tuple[Pod, ...] | None
    notices: tuple[NoticeView, ...]
    freezes: Freezes
    now: datetime

    def node_status(self, name: str, node: Node | None) -> NodeStatus:
        mark, bad_mark = _read_mark(node)
        by_name = None if self.maintenances is None else {item.name: item for item in self.maintenances}
        lease = self.leases.get(lease_name(name))
        annotation = None if node is None else hold_of(node)
        is_over = annotation is not None and annotation.is_expired(self.now)
        return NodeStatus(
            name=name,
            node=node,
            mark=mark,
            bad_mark=bad_mark,
            cordon_owners=() if mark is None or node is None else tuple(owners_of_mark(mark, node, by_name)),
            maintenances=tuple(item for item in self.maintenances or () if item.node == name),
            lease=lease,
            lease_until=None if lease is None else held_until(lease.spec, now=self.now),
            pods=self.pods,
            hold=None if node is None else self.freezes.hold_on(node, now=self.now),
            expired_hold=annotation if is_over else None,
            notices=tuple(
                item for item in self.notices if item.node == name and (node is None or item.notice.matches_node(node))
            ),
        )


def _read_mark(node: Node | None) -> tuple[Cordon | None, str]:
    try:
        return (None if node is None else cordon_of(node)), ""
    except InvalidCordonAnnotation as error:
        return None, str(error)


async def _read_nodes(client: Client, name: str | None) -> tuple[Node, ...]:
    if name is None:
        return (await client.list(NODES)).items
    try:
        return (await client.get(NODES, name),)
    except NotFound:
        return ()


async def _read_page(
    request: Awaitable[Page[T]], kind: str, notes: list[str], *, missing_note: str = ""
) -> Page[T] | None:
    """Return the page; None, with a note, if it is forbidden."""
    try:
        return await request
    except NotFound:
        if missing_note:
            notes.append(f"{kind}: not installed in this cluster, so {missing_note}")
        return Page()
    except Forbidden as error:
        notes.append(f"{kind}: you are not allowed to read them ({error.message})")
        return None


async def _read_notices(client: Client, notes: list[str]) -> tuple[NoticeView, ...]:
    """Return imminent notices; empty if the CRD is not installed."""
    try:
        views, unreadable = await list_views(client)
    except NotFound:
        return ()
    except Forbidden as error:
        notes.append(f"MaintenanceNotices: you are not allowed to read them ({error.message})")
        return ()
    notes += unreadable
    return tuple(view for view in views if view.is_imminent)


async def _read_freezes(client: Client, notes: list[str]) -> Freezes:
    """Return the freezes; none if the CRD is not installed."""
    try:
        return await read_freezes(client)
    except Forbidden as error:
        notes.append(f"MaintenanceFreezes: you are not allowed to read them ({error.message})")
        return Freezes()


async def _no_pods() -> None:
    return None


def _items(page: Page[T] | None) -> tuple[T, ...] | None:
    return None if page is None else page.items
