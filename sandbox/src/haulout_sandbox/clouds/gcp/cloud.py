"""One Google Cloud project: simulated events of its machines, and the requests that it answers."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from haulout.core.clock import Clock
from haulout_sandbox.clouds.faults import Faults
from haulout_sandbox.clouds.gcp.access_tokens import AccessTokens
from haulout_sandbox.clouds.gcp.instances import Instances, format_time, new_upcoming_maintenance
from haulout_sandbox.clouds.gcp.operations import Operations
from haulout_sandbox.clouds.gcp.request_handler import HttpResponse, RequestHandler

PROJECT, ZONE = "sandbox-project", "europe-west1-b"

_WINDOW_LENGTH = timedelta(hours=3)
_NO_EVENT = "NONE"


class GcpCloud:
    """A project. The metadata server of a machine has the path prefix /machines/NAME."""

    def __init__(self, clock: Clock, *, project: str = PROJECT) -> None:
        self.clock = clock
        self.faults = Faults(clock)
        self.access_tokens = AccessTokens(clock)
        self.instances = Instances(project=project, zone=ZONE)
        self.operations = Operations(clock)
        self._handler = RequestHandler(
            self.instances, operations=self.operations, access_tokens=self.access_tokens, faults=self.faults
        )

    # Simulated events

    def launch(
        self,
        name: str,
        *,
        zone: str = "",
        labels: dict[str, str] | None = None,
        live_migrates: bool = False,
        is_spot: bool = False,
    ) -> str:
        """Launch an instance and return its name; an instance of that name is replaced."""
        return self.instances.launch(
            name, zone=zone, labels=labels or {}, live_migrates=live_migrates, is_spot=is_spot
        ).name

    def provider_id(self, name: str) -> str:
        """Return the providerID of an instance's node."""
        instance = self.instances.by_name[name]
        return f"gce://{instance.project}/{instance.zone}/{instance.name}"

    def schedule(
        self,
        name: str,
        *,
        start: datetime,
        duration: timedelta = _WINDOW_LENGTH,
        latest_start: datetime | None = None,
        can_start_early: bool = True,
        maintenance_type: str = "SCHEDULED",
        reasons: tuple[str, ...] = ("PLANNED_UPDATE",),
    ) -> None:
        """Schedule a maintenance; an instance has at most one."""
        upcoming = new_upcoming_maintenance(
            start,
            duration=duration,
            latest_start=latest_start,
            can_start_early=can_start_early,
            maintenance_type=maintenance_type,
            reasons=[*reasons],
        )
        self.instances.by_name[name].set_upcoming(upcoming)

    def reschedule(self, name: str, *, start: datetime, duration: timedelta = _WINDOW_LENGTH) -> None:
        """Reschedule a maintenance, as Google itself does."""
        moved = {"windowStartTime": format_time(start), "windowEndTime": format_time(start + duration)}
        self.instances.by_name[name].update_upcoming(**moved)

    def cancel_maintenance(self, name: str) -> None:
        self.instances.by_name[name].set_upcoming(None)

    def start_maintenance(self, name: str) -> None:
        """Start a maintenance, which the metadata server then shows as well."""
        instance = self.instances.by_name[name]
        instance.update_upcoming(maintenanceStatus="ONGOING", canReschedule=False)
        instance.set_maintenance_event(instance.maintenance_event_value)

    def end_maintenance(self, name: str, *, on_new_host: bool = False) -> None:
        """End a maintenance; with `on_new_host`, the metadata server of the new host knows of none."""
        instance = self.instances.by_name[name]
        instance.status = "RUNNING"
        instance.set_upcoming(None)
        instance.has_notifications = not on_new_host
        instance.set_maintenance_event(_NO_EVENT)

    def announce_live_migration(self, name: str) -> None:
        """Announce an unplanned live migration to a machine."""
        self.instances.by_name[name].set_maintenance_event("MIGRATE_ON_HOST_MAINTENANCE")

    def clear_maintenance_event(self, name: str) -> None:
        """Clear the maintenance event of a machine."""
        self.instances.by_name[name].set_maintenance_event(_NO_EVENT)

    def preempt(self, name: str) -> None:
        instance = self.instances.by_name[name]
        instance.is_preempted = True
        instance.notify()

    def set_status(self, name: str, status: str) -> None:
        """Set the status of an instance, for example TERMINATED; RUNNING clears a preemption."""
        instance = self.instances.by_name[name]
        instance.status, instance.is_preempted = status, False
        instance.notify()

    def remove(self, name: str) -> None:
        self.instances.by_name.pop(name).notify()

    # Requests

    async def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> HttpResponse:
        """Answer a request; raise `CloudError` with status 0 if no response must be sent."""
        del body  # no request that is answered here has one
        return await self._handler.handle(method, target, headers)
