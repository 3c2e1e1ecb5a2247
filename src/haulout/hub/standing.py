"""How workload clusters stand, as the hub sees them: values for whoever shows or counts them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from haulout.kinds.clusterapi import ClusterKey


class Reach(StrEnum):
    """Whether a workload cluster can be spoken to."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    UNREACHABLE = "unreachable"
    UNREADABLE = "unreadable"  # it answers, but with more than it may, or with what is no list of nodes

    @property
    def is_away(self) -> bool:
        """Tell whether nothing is known of the cluster."""
        return self in (Reach.UNREACHABLE, Reach.UNREADABLE)


class Why(StrEnum):
    """What a Machine is maintained for."""

    DELETION = "deletion"
    MAINTENANCE = "maintenance"


class State(StrEnum):
    """What goes on in a workload cluster."""

    IDLE = "idle"
    WAITING = "waiting"  # for the budget across clusters
    IN_MAINTENANCE = "in-maintenance"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineStanding:
    """A Machine about which something goes on, or is asked for."""

    name: str
    node: str = ""
    why: Why = Why.MAINTENANCE
    is_approved: bool = False  # its node is ready for it
    reason: str = ""  # in a line: what it waits for, and who is to blame
    since: datetime | None = None  # when it was asked for, as far as is known
    until: datetime | None = None  # when it is not waited for any longer


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStanding:
    """A workload cluster with Machines that are enabled."""

    key: ClusterKey
    reach: Reach
    reason: str = ""  # why it cannot be reached or read, in a line
    since: datetime | None = None  # of this reach
    heard: datetime | None = None  # when it last answered
    server: str = ""  # its address
    version: str = ""  # of its Kubernetes, as far as is known
    machines: int = 0  # that there are
    enabled: int = 0
    nodes: int = 0  # that are known
    is_leaving: bool = False  # it is being deleted
    active: tuple[MachineStanding, ...] = ()  # ordered by name
    waits_for: str = ""  # why its maintenance may not begin yet: the budget across clusters

    @property
    def state(self) -> State:
        """What goes on in it."""
        if self.waits_for:
            return State.WAITING
        return State.IN_MAINTENANCE if self.active else State.IDLE
