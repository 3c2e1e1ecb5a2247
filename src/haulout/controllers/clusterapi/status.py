"""The status of workload clusters, for the dashboard, the CLI and metrics."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from haulout.api.clusterapi import ClusterKey


class ConnectionState(StrEnum):
    """Whether a workload cluster can be reached."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    UNREACHABLE = "unreachable"
    UNREADABLE = "unreadable"  # it responds, but the response is too large or no node list

    @property
    def is_unavailable(self) -> bool:
        """Whether nothing is known about the cluster."""
        return self in (ConnectionState.UNREACHABLE, ConnectionState.UNREADABLE)


class RequestType(StrEnum):
    """What a Machine's node must be prepared for."""

    DELETION = "deletion"
    MAINTENANCE = "maintenance"


class MaintenanceState(StrEnum):
    """Whether a workload cluster is in maintenance."""

    IDLE = "idle"
    WAITING = "waiting"  # for the budget across clusters
    IN_MAINTENANCE = "in-maintenance"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRequestStatus:
    """The status of a deletion or maintenance of one Machine."""

    name: str
    node: str = ""
    request_type: RequestType = RequestType.MAINTENANCE
    is_approved: bool = False  # its node is ready
    reason: str = ""  # one line: what the Machine waits for, and on whom
    since: datetime | None = None  # when it was requested, if known
    until: datetime | None = None  # when a deletion is released without approval


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadClusterStatus:
    """The status of a workload cluster with enabled Machines."""

    key: ClusterKey
    connection_state: ConnectionState
    reason: str = ""  # why the cluster cannot be reached or read, in one line
    since: datetime | None = None  # since when the connection state holds
    last_response_at: datetime | None = None  # time of the last response
    server: str = ""  # its address
    version: str = ""  # its Kubernetes version, if known
    machines: int = 0  # number of Machines
    enabled: int = 0
    nodes: int = 0  # number of known nodes
    is_being_deleted: bool = False
    requests: tuple[MachineRequestStatus, ...] = ()  # ordered by name
    waiting_reason: str = ""  # why its maintenance may not begin yet: the budget across clusters

    @property
    def state(self) -> MaintenanceState:
        if self.waiting_reason:
            return MaintenanceState.WAITING
        return MaintenanceState.IN_MAINTENANCE if self.requests else MaintenanceState.IDLE
