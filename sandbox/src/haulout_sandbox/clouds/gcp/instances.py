"""The instances of a project, as the Compute API writes them, and what is planned for each."""

import asyncio
import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from haulout.errors import CloudError

Document = dict[str, Any]

_PAGE = 500
_NOT_FOUND = 404


@dataclass(slots=True)
class Instance:
    """A machine, and what its metadata server knows."""

    number: str
    name: str
    project: str
    zone: str
    labels: dict[str, str]
    migrates: bool
    is_spot: bool
    status: str = "RUNNING"
    upcoming: Document | None = None
    has_heard: bool = False  # of any maintenance that was planned, since it came to its host
    event: str = "NONE"
    is_preempted: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def scheduling(self) -> Document:
        """What is to become of it when its host needs maintenance."""
        return {
            "onHostMaintenance": "MIGRATE" if self.migrates else "TERMINATE",
            "automaticRestart": not self.is_spot,
            "preemptible": self.is_spot,
        }

    def document(self, root: str) -> Document:
        """Return it as the Compute API shows it."""
        planned = {} if self.upcoming is None else {"upcomingMaintenance": self.upcoming}
        return {
            "kind": "compute#instance",
            "id": self.number,
            "name": self.name,
            "zone": f"{root}/projects/{self.project}/zones/{self.zone}",
            "status": self.status,
            "labels": self.labels,
            "scheduling": self.scheduling,
            "resourceStatus": planned,
        }

    @property
    def word(self) -> str:
        """What its metadata server says while its host is maintained."""
        return f"{self.scheduling['onHostMaintenance']}_ON_HOST_MAINTENANCE"

    def plan(self, upcoming: Document | None) -> None:
        """Have something be planned, or nothing."""
        self.upcoming, self.has_heard = upcoming, True
        self.tell()

    def plan_else(self, **changes: Any) -> None:
        """Change what is planned."""
        if self.upcoming is None:
            raise ValueError(f"nothing is planned for {self.name}")
        self.plan(self.upcoming | changes)

    def happen(self, event: str) -> None:
        """Have its metadata server say that something happens."""
        self.event = event
        self.tell()

    def tell(self) -> None:
        """Wake those who wait for a change."""
        self.changed.set()
        self.changed = asyncio.Event()


class Instances:
    """All of them, by name: here a name is not given twice, in whatever zone."""

    def __init__(self, *, project: str, zone: str) -> None:
        self.project = project
        self.by_name: dict[str, Instance] = {}
        self.unreachable: set[str] = set()  # zones that do not answer
        self.page_size = _PAGE
        self._zone = zone
        self._numbers = itertools.count(4_100_000_000_000_000_001)

    def launch(self, name: str, *, zone: str, labels: dict[str, str], migrates: bool, is_spot: bool) -> Instance:
        """Return a new one; one of this name that was there is gone."""
        number = str(next(self._numbers))
        found = Instance(number, name, self.project, zone or self._zone, labels, migrates, is_spot)
        self.by_name[name] = found
        return found

    def get(self, project: str, zone: str, name: str) -> Instance:
        """Return one; raises `CloudError`."""
        found = self.by_name.get(name)
        if found is None or (found.project, found.zone) != (project, zone):
            where = f"projects/{project}/zones/{zone}/instances/{name}"
            raise refused(f"The resource '{where}' was not found", status=_NOT_FOUND, code="notFound")
        return found

    def listed(self, project: str, *, limit: int, page: str, root: str) -> Document:
        """Return a page of all of a project, by zone."""
        if project != self.project:
            message = f"The resource 'projects/{project}' was not found"
            raise refused(message, status=_NOT_FOUND, code="notFound")
        known = [it for it in self.by_name.values() if it.zone not in self.unreachable]
        first, size = int(page or 0), min(limit, self.page_size)
        scopes: dict[str, Document] = {}
        for instance in known[first : first + size]:
            scope = scopes.setdefault(f"zones/{instance.zone}", {"instances": []})
            scope["instances"].append(instance.document(root))
        nothing = {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "There are no results for this scope."}}
        found: Document = {"items": {**scopes, "regions/none": nothing}}
        if self.unreachable:
            found["unreachables"] = [f"projects/{project}/zones/{it}" for it in sorted(self.unreachable)]
        return found | ({"nextPageToken": str(first + size)} if first + size < len(known) else {})


def planned(
    start: datetime, *, last: timedelta, latest: datetime | None, can_begin_early: bool, kind: str, reasons: list[str]
) -> Document:
    """Return a maintenance that is planned."""
    found: Document = {
        "canReschedule": can_begin_early,
        "windowStartTime": written(start),
        "windowEndTime": written(start + last),
        "maintenanceStatus": "PENDING",
        "type": kind,
        "maintenanceOnShutdown": False,
        "maintenanceReasons": reasons,
    }
    return found | ({} if latest is None else {"latestWindowStartTime": written(latest)})


def written(instant: datetime) -> str:
    """Return an instant as Google writes it."""
    return f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def refused(message: str, *, status: int, code: str) -> CloudError:
    """Return a no of the Compute API."""
    return CloudError(message, doing="Compute", status=status, code=code)
