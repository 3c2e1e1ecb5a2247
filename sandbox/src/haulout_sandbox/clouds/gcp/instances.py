"""The instances of a project as the Compute API shows them, with their upcoming maintenance."""

import asyncio
import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from haulout.errors import CloudError

Document = dict[str, Any]

_PAGE_SIZE = 500
_NOT_FOUND = 404


@dataclass(slots=True)
class Instance:
    """A machine and the values of its metadata server."""

    numeric_id: str
    name: str
    project: str
    zone: str
    labels: dict[str, str]
    live_migrates: bool
    is_spot: bool
    status: str = "RUNNING"
    upcoming_maintenance: Document | None = None
    has_notifications: bool = False  # any maintenance was announced since it is on this host
    maintenance_event: str = "NONE"
    is_preempted: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def scheduling(self) -> Document:
        """Return the scheduling document: what host maintenance does to the instance."""
        return {
            "onHostMaintenance": "MIGRATE" if self.live_migrates else "TERMINATE",
            "automaticRestart": not self.is_spot,
            "preemptible": self.is_spot,
        }

    def to_document(self, root: str) -> Document:
        maintenance_fields = (
            {} if self.upcoming_maintenance is None else {"upcomingMaintenance": self.upcoming_maintenance}
        )
        return {
            "kind": "compute#instance",
            "id": self.numeric_id,
            "name": self.name,
            "zone": f"{root}/projects/{self.project}/zones/{self.zone}",
            "status": self.status,
            "labels": self.labels,
            "scheduling": self.scheduling,
            "resourceStatus": maintenance_fields,
        }

    @property
    def maintenance_event_value(self) -> str:
        """Return the value of the metadata server during host maintenance."""
        return f"{self.scheduling['onHostMaintenance']}_ON_HOST_MAINTENANCE"

    def set_upcoming(self, upcoming: Document | None) -> None:
        self.upcoming_maintenance, self.has_notifications = upcoming, True
        self.notify()

    def update_upcoming(self, **changes: Any) -> None:
        if self.upcoming_maintenance is None:
            raise ValueError(f"nothing is planned for {self.name}")
        self.set_upcoming(self.upcoming_maintenance | changes)

    def set_maintenance_event(self, event: str) -> None:
        self.maintenance_event = event
        self.notify()

    def notify(self) -> None:
        """Wake requests that wait for a change."""
        self.changed.set()
        self.changed = asyncio.Event()


class Instances:
    """All instances by name; unlike in Google Cloud, a name is unique across zones."""

    def __init__(self, *, project: str, zone: str) -> None:
        self.project = project
        self.by_name: dict[str, Instance] = {}
        self.unreachable: set[str] = set()  # zones that do not respond
        self.page_size = _PAGE_SIZE
        self._zone = zone
        self._numbers = itertools.count(4_100_000_000_000_000_001)

    def launch(self, name: str, *, zone: str, labels: dict[str, str], live_migrates: bool, is_spot: bool) -> Instance:
        """Add an instance; one with the same name is replaced."""
        numeric_id = str(next(self._numbers))
        instance = Instance(numeric_id, name, self.project, zone or self._zone, labels, live_migrates, is_spot)
        self.by_name[name] = instance
        return instance

    def get(self, project: str, zone: str, name: str) -> Instance:
        """Return an instance; raise `CloudError` if there is none."""
        instance = self.by_name.get(name)
        if instance is None or (instance.project, instance.zone) != (project, zone):
            resource_path = f"projects/{project}/zones/{zone}/instances/{name}"
            raise api_error(f"The resource '{resource_path}' was not found", status=_NOT_FOUND, code="notFound")
        return instance

    def list_page(self, project: str, *, limit: int, page: str, root: str) -> Document:
        """Return one page of all instances of a project, by zone."""
        if project != self.project:
            message = f"The resource 'projects/{project}' was not found"
            raise api_error(message, status=_NOT_FOUND, code="notFound")
        reachable = [element for element in self.by_name.values() if element.zone not in self.unreachable]
        first, size = int(page or 0), min(limit, self.page_size)
        scopes: dict[str, Document] = {}
        for instance in reachable[first : first + size]:
            scope = scopes.setdefault(f"zones/{instance.zone}", {"instances": []})
            scope["instances"].append(instance.to_document(root))
        empty_scope = {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "There are no results for this scope."}}
        page_document: Document = {"items": {**scopes, "regions/none": empty_scope}}
        if self.unreachable:
            page_document["unreachables"] = [
                f"projects/{project}/zones/{element}" for element in sorted(self.unreachable)
            ]
        return page_document | ({"nextPageToken": str(first + size)} if first + size < len(reachable) else {})


def new_upcoming_maintenance(
    start: datetime,
    *,
    duration: timedelta,
    latest_start: datetime | None,
    can_start_early: bool,
    maintenance_type: str,
    reasons: list[str],
) -> Document:
    document: Document = {
        "canReschedule": can_start_early,
        "windowStartTime": format_time(start),
        "windowEndTime": format_time(start + duration),
        "maintenanceStatus": "PENDING",
        "type": maintenance_type,
        "maintenanceOnShutdown": False,
        "maintenanceReasons": reasons,
    }
    return document | ({} if latest_start is None else {"latestWindowStartTime": format_time(latest_start)})


def format_time(instant: datetime) -> str:
    return f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def api_error(message: str, *, status: int, code: str) -> CloudError:
    """Return an error of the Compute API."""
    return CloudError(message, doing="Compute", status=status, code=code)
