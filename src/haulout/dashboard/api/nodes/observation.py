"""A node, and all that the leader knows about it at one instant: what tiles and details are made of. A value."""

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
    """A node, and what is known of it."""

    node: Node
    now: datetime
    entries: Mapping[str, ProfileStatus] = field(default_factory=dict)  # by profile: where it stands
    data_problem: str = ""  # why that cannot be read
    info: NodeStatus | None = None  # what was last decided about it
    drains: Mapping[str, DrainSnapshot] = field(default_factory=dict)  # on behalf of profiles, by their names
    orders: tuple[NodeMaintenance, ...] = ()  # that name it
    notices: tuple[MaintenanceNotice, ...] = ()  # that are not over
    knows_orders: bool = True  # all of them: who is not among them is gone
    waiting_positions: Mapping[str, int] = field(default_factory=dict)  # by order: its place in the line for the budget

    @property
    def ready_condition(self) -> Condition | None:
        """What its kubelet says."""
        return next((condition for condition in self.node.status.conditions if condition.type == "Ready"), None)

    @property
    def is_ready(self) -> bool:
        """Tell whether its kubelet says that it is well."""
        ready = self.ready_condition
        return ready is not None and ready.status == "True"
