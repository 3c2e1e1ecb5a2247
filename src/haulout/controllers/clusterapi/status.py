"""How workload clusters stand, as the hub sees them: values for whoever shows or counts them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from haulout.api.clusterapi import ClusterKey


class ConnectionState(StrEnum):
    """Whether a workload cluster can be spoken to."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    UNREACHABLE = "unreachable"
    UNREADABLE = "unreadable"  # it answers, but with more than it may, or with what is no list of nodes

    @property
    def is_unavailable(self) -> bool:
        """Tell whether nothing is known of the cluster."""
        return self in (ConnectionState.UNREACHABLE, ConnectionState.UNREADABLE)


class RequestType(StrEnum):
    """What a Machine is maintained for."""

    DELETION = "deletion"
    MAINTENANCE = "maintenance"


class MaintenanceState(StrEnum):
    """What goes on in a workload cluster."""

    IDLE = "idle"
    WAITING = "waiting"  # for the budget across clusters
    IN_MAINTENANCE = "in-maintenance"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRequestStatus:
    """A Machine about which something goes on, or is asked for."""

    name: str
    node: str = ""
    request_type: RequestType = RequestType.MAINTENANCE
    is_approved: bool = False  # its node is ready for it
    reason: str = ""  # in a line: what it waits for, and who is to blame
    since: datetime | None = None  # when it was asked for, as far as is known
    until: datetime | None = None  # when it is not waited for any longer


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadClusterStatus:
    """A workload cluster with Machines that are enabled."""

    key: ClusterKey
    connection_state: ConnectionState
    reason: str = ""  # why it cannot be reached or read, in a line
    since: datetime | None = None  # of this reach
    last_response_at: datetime | None = None  # when it last answered
    server: str = ""  # its address
    version: str = ""  # of its Kubernetes, as far as is known
    machines: int = 0  # that there are
    enabled: int = 0
    nodes: int = 0  # that are known
    is_being_deleted: bool = False  # it is being deleted
    requests: tuple[MachineRequestStatus, ...] = ()  # ordered by name
    waiting_reason: str = ""  # why its maintenance may not begin yet: the budget across clusters

    @property
    def state(self) -> MaintenanceState:
        """What goes on in it."""
        if self.waiting_reason:
            return MaintenanceState.WAITING
        return MaintenanceState.IN_MAINTENANCE if self.requests else MaintenanceState.IDLE
