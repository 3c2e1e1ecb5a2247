"""A node and all that the leader knows about it at one instant: the input of tiles and details. A value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.nodemaintenance import NodeMaintenance
from haulout.api.objects import Condition, Node
from haulout.controllers.profiles.plugin import ProfileStatus
from haulout.controllers.profiles.status import NodeStatus
from haulout.drain.manager import DrainSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObservation:
    """A node with its profiles, drains, NodeMaintenances and notices."""

    node: Node
    now: datetime
    entries: Mapping[str, ProfileStatus] = field(default_factory=dict)  # by profile
    data_problem: str = ""  # why the profiles' data annotation cannot be read
    info: NodeStatus | None = None  # the last decision of the profiles controller
    drains: Mapping[str, DrainSnapshot] = field(default_factory=dict)  # of profiles, by name
    orders: tuple[NodeMaintenance, ...] = ()  # NodeMaintenances of the node
    notices: tuple[MaintenanceNotice, ...] = ()  # those that are not over
    knows_orders: bool = True  # all NodeMaintenances are known: a missing one is deleted
    waiting_positions: Mapping[str, int] = field(default_factory=dict)  # by NodeMaintenance: its place in the line

    @property
    def ready_condition(self) -> Condition | None:
        """The node's condition `Ready`."""
        return next((condition for condition in self.node.status.conditions if condition.type == "Ready"), None)

    @property
    def is_ready(self) -> bool:
        ready = self.ready_condition
        return ready is not None and ready.status == "True"
