"""A node, and all that the leader knows about it at one instant: what tiles and details are made of. A value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from haulout.drain.keeper import Kept
from haulout.kinds.notice import MaintenanceNotice
from haulout.kube.objects import Condition, Node
from haulout.maintenance.resource import NodeMaintenance
from haulout.profiles.info import NodeInfo
from haulout.profiles.plugin import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A node, and what is known of it."""

    node: Node
    now: datetime
    entries: Mapping[str, Entry] = field(default_factory=dict)  # by profile: where it stands
    data_problem: str = ""  # why that cannot be read
    info: NodeInfo | None = None  # what was last decided about it
    drains: Mapping[str, Kept] = field(default_factory=dict)  # on behalf of profiles, by their names
    orders: tuple[NodeMaintenance, ...] = ()  # that name it
    notices: tuple[MaintenanceNotice, ...] = ()  # that are not over
    knows_orders: bool = True  # all of them: who is not among them is gone
    places: Mapping[str, int] = field(default_factory=dict)  # by order: its place in the line for the budget

    @property
    def ready(self) -> Condition | None:
        """What its kubelet says."""
        return next((it for it in self.node.status.conditions if it.type == "Ready"), None)

    @property
    def is_ready(self) -> bool:
        """Tell whether its kubelet says that it is well."""
        ready = self.ready
        return ready is not None and ready.status == "True"
