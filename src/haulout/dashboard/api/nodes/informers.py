"""The leader's informers as one view, and notifications when the summary of a node may change.

The controllers of profiles and notices may fail and restart with new informers. A subscription calls `resubscribe` now
and then, which checks whether they are still the same.

A node and all that the leader knows about it at one instant: the input of summaries and details. A value.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from haulout.api.hold import Hold
from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.nodemaintenance import NodeMaintenance
from haulout.api.objects import Node, Object
from haulout.budget.budget_check import WaitingList
from haulout.budget.limits import Budget
from haulout.controllers.nodemaintenance.informers import BY_NODE as OF_ORDERS
from haulout.controllers.notices.controller import BY_NODE as OF_NOTICES
from haulout.controllers.notices.controller import MaintenanceNoticeController as NoticesController
from haulout.controllers.profiles.machine import data_annotation
from haulout.controllers.profiles.machine.data_annotation import DataError
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, ProfileStatus
from haulout.controllers.profiles.status import NodeProfilesStatus
from haulout.core.clock import Clock
from haulout.dashboard.api.notices import phase_of
from haulout.drain.manager import DrainSnapshot
from haulout.kube.informer import Informer
from haulout.runtime.freezes import Freezes, FreezeSource, NoFreezes

if TYPE_CHECKING:
    from haulout.controllers.profiles.controller import ProfilesController

OnChange = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Informers:
    """The informers and controllers of the leader."""

    clock: Clock
    nodes: Informer[Node]
    maintenances: Informer[NodeMaintenance]
    waiting_list: WaitingList
    profiles: Callable[[], "ProfilesController | None"]  # None: no controller runs here
    notices: Callable[[], NoticesController | None]
    budget: Callable[[], Budget]
    freezes: FreezeSource = field(default_factory=NoFreezes)

    def observer(self) -> "NodeObserver":
        """Return an observer, which takes one snapshot for many nodes."""
        return NodeObserver(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSnapshot:
    """A node with its profiles, drains, NodeMaintenances and notices."""

    node: Node
    now: datetime
    entries: Mapping[str, ProfileStatus] = field(default_factory=dict)  # by profile
    data_problem: str = ""  # why the profiles' data annotation cannot be read
    info: NodeProfilesStatus | None = None  # the last decision of the profiles controller
    drains: Mapping[str, DrainSnapshot] = field(default_factory=dict)  # of profiles, by name
    orders: tuple[NodeMaintenance, ...] = ()  # NodeMaintenances of the node
    notices: tuple[MaintenanceNotice, ...] = ()  # those that are not over
    knows_orders: bool = True  # all NodeMaintenances are known: a missing one is deleted
    waiting_positions: Mapping[str, int] = field(default_factory=dict)  # by NodeMaintenance: its place in the line
    freezes: Freezes = field(default_factory=Freezes)

    @property
    def hold(self) -> Hold | None:
        """What keeps new maintenance off the node."""
        return self.freezes.hold_on(self.node, now=self.now)


class NodeObserver:
    """Observes nodes at one instant."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        self._now = informers.clock.now()
        self._profiles = informers.profiles()
        self._notices = informers.notices()
        self._freezes = informers.freezes.current()
        self._knows_orders = informers.maintenances.health().has_synced
        self._positions = {
            maintenance.name: position for position, maintenance in enumerate(informers.waiting_list.entries(), 1)
        }

    def observe(self, name: str) -> NodeSnapshot | None:
        """Return the observation of a node; None if it does not exist."""
        node = self._informers.nodes.get(name)
        if node is None:
            return None
        entries, problem = self._entries(node)
        profiles = self._profiles
        return NodeSnapshot(
            node=node,
            now=self._now,
            entries=entries,
            data_problem=problem,
            info=None if profiles is None else profiles.statuses.get(name),
            drains={} if profiles is None else profiles.drains(name),
            orders=tuple(sorted(self._informers.maintenances.by_index(OF_ORDERS, name), key=_creation_key)),
            notices=self._open_notices(name),
            knows_orders=self._knows_orders,
            waiting_positions=self._positions,
            freezes=self._freezes,
        )

    def _entries(self, node: Node) -> tuple[Mapping[str, ProfileStatus], str]:
        node_view = None if self._profiles is None else self._profiles.observed_node(node.name)
        if node_view is not None and node_view.node.uid == node.uid:
            return node_view.statuses, node_view.problem
        try:
            return data_annotation.statuses_of(node.metadata.annotations.get(DATA_ANNOTATION)), ""
        except DataError as error:
            return {}, str(error)

    def _open_notices(self, name: str) -> tuple[MaintenanceNotice, ...]:
        if self._notices is None:
            return ()
        found = (
            notice
            for notice in self._notices.notices.by_index(OF_NOTICES, name)
            if not phase_of(notice, now=self._now).is_over
        )
        return tuple(sorted(found, key=_creation_key))


def _creation_key(obj: Object) -> tuple[object, ...]:
    """Return the sort key for the order of creation."""
    created = obj.metadata.creation_timestamp
    return created is None, created, obj.name


@dataclass(slots=True)
class InformerSubscription:
    """Calls `on_node` and `on_notice` on changes, between `start` and `stop`."""

    informers: Informers
    on_node: OnChange
    on_notice: OnChange
    _unsubscribes: list[Callable[[], None]] = field(default_factory=list)
    _profiles: "ProfilesController | None" = None
    _notices: NoticesController | None = None
    _component_unsubscribes: list[Callable[[], None]] = field(default_factory=list)

    def start(self) -> None:
        """Subscribe, and call back for all nodes."""
        self._unsubscribes = [
            self.informers.nodes.subscribe(self._handle_node),
            self.informers.maintenances.subscribe(self._handle_maintenance),
            self.informers.freezes.subscribe(self._handle_all_nodes),
        ]
        self.resubscribe()

    def stop(self) -> None:
        """Unsubscribe from all informers and components; also from the controllers of profiles and notices."""
        self._unsubscribe_components()
        self._profiles = self._notices = None
        for unsubscribe in self._unsubscribes:
            unsubscribe()
        self._unsubscribes = []

    def resubscribe(self) -> None:
        """Subscribe to controllers that restarted."""
        profiles, notices = self.informers.profiles(), self.informers.notices()
        if profiles is self._profiles and notices is self._notices:
            return
        self._unsubscribe_components()
        self._profiles, self._notices = profiles, notices
        if profiles is not None:
            self._component_unsubscribes.append(profiles.statuses.subscribe(self.on_node))
        if notices is not None:
            self._component_unsubscribes.append(notices.notices.subscribe(self._handle_notice))
        self._handle_all_nodes()

    def _handle_all_nodes(self) -> None:
        for node in self.informers.nodes.all():
            self.on_node(node.name)

    def _unsubscribe_components(self) -> None:
        for unsubscribe in self._component_unsubscribes:
            unsubscribe()
        self._component_unsubscribes = []

    def _handle_node(self, old: Node | None, new: Node | None) -> None:
        if not _is_heartbeat(old, new):
            self.on_node((new or old or Node()).name)

    def _handle_maintenance(self, old: NodeMaintenance | None, new: NodeMaintenance | None) -> None:
        for name in {maintenance.node for maintenance in (old, new) if maintenance is not None}:
            self.on_node(name)

    def _handle_notice(self, old: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        self.on_notice((new or old or MaintenanceNotice()).name)
        for name in {notice.node for notice in (old, new) if notice is not None and notice.node}:
            self.on_node(name)


def _is_heartbeat(old: Node | None, new: Node | None) -> bool:
    """Return whether only heartbeats of the kubelet changed."""
    if old is None or new is None:
        return False
    before, after = old.metadata, new.metadata
    is_same_metadata = (
        before.uid == after.uid and before.labels == after.labels and before.annotations == after.annotations
    )
    return is_same_metadata and old.spec == new.spec and old.status == new.status
