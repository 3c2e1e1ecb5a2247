"""One project of Google Cloud: what happens to its machines, and the requests that it answers."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from haulout.core.clock import Clock
from haulout_sandbox.clouds.faults import Faults
from haulout_sandbox.clouds.gcp.access import Access
from haulout_sandbox.clouds.gcp.calls import Answer, Calls
from haulout_sandbox.clouds.gcp.instances import Instances, planned, written
from haulout_sandbox.clouds.gcp.operations import Operations

PROJECT, ZONE = "sandbox-project", "europe-west1-b"

_WINDOW = timedelta(hours=3)
_NONE = "NONE"


class GcpCloud:
    """A cloud. The metadata server of a machine is under /machines/NAME, before its own paths."""

    def __init__(self, clock: Clock, *, project: str = PROJECT) -> None:
        self.clock = clock
        self.faults = Faults(clock)
        self.access = Access(clock)
        self.machines = Instances(project=project, zone=ZONE)
        self.operations = Operations(clock)
        self._calls = Calls(self.machines, operations=self.operations, access=self.access, faults=self.faults)

    # What happens

    def launch(
        self,
        name: str,
        *,
        zone: str = "",
        labels: dict[str, str] | None = None,
        migrates: bool = False,
        spot: bool = False,
    ) -> str:
        """Return the name of a new instance that runs; another machine than any that had this name."""
        return self.machines.launch(name, zone=zone, labels=labels or {}, migrates=migrates, is_spot=spot).name

    def provider_id(self, name: str) -> str:
        """Return what the node of an instance says of it."""
        instance = self.machines.by_name[name]
        return f"gce://{instance.project}/{instance.zone}/{instance.name}"

    def schedule(
        self,
        name: str,
        *,
        start: datetime,
        last: timedelta = _WINDOW,
        latest: datetime | None = None,
        can_begin_early: bool = True,
        kind: str = "SCHEDULED",
        reasons: tuple[str, ...] = ("PLANNED_UPDATE",),
    ) -> None:
        """Plan a maintenance; there is one at most."""
        upcoming = planned(
            start, last=last, latest=latest, can_begin_early=can_begin_early, kind=kind, reasons=[*reasons]
        )
        self.machines.by_name[name].plan(upcoming)

    def reschedule(self, name: str, *, start: datetime, last: timedelta = _WINDOW) -> None:
        """Have Google itself move a maintenance."""
        moved = {"windowStartTime": written(start), "windowEndTime": written(start + last)}
        self.machines.by_name[name].plan_else(**moved)

    def cancel(self, name: str) -> None:
        """Have a maintenance not take place."""
        self.machines.by_name[name].plan(None)

    def begin(self, name: str) -> None:
        """Have a maintenance begin: the machine is told so as well."""
        instance = self.machines.by_name[name]
        instance.plan_else(maintenanceStatus="ONGOING", canReschedule=False)
        instance.happen(instance.word)

    def end(self, name: str, *, is_elsewhere: bool = False) -> None:
        """Have a maintenance be over; `is_elsewhere`: the metadata server of its new host has heard of nothing."""
        instance = self.machines.by_name[name]
        instance.status = "RUNNING"
        instance.plan(None)
        instance.has_heard = not is_elsewhere
        instance.happen(_NONE)

    def migrate(self, name: str) -> None:
        """Tell a machine that it is about to move, which nobody had planned."""
        self.machines.by_name[name].happen("MIGRATE_ON_HOST_MAINTENANCE")

    def settle(self, name: str) -> None:
        """Have nothing happen to a machine any more."""
        self.machines.by_name[name].happen(_NONE)

    def preempt(self, name: str) -> None:
        """Tell a machine that it is taken back."""
        instance = self.machines.by_name[name]
        instance.is_preempted = True
        instance.tell()

    def change(self, name: str, status: str) -> None:
        """Have an instance be TERMINATED, say, or RUNNING again; one that runs again is not taken back."""
        instance = self.machines.by_name[name]
        instance.status, instance.is_preempted = status, False
        instance.tell()

    def drop(self, name: str) -> None:
        """Have an instance be gone."""
        self.machines.by_name.pop(name).tell()

    # What it answers

    async def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        """Answer a request; raises `CloudError` with the status 0 if no answer is to come."""
        return await self._calls.answer(method, target, headers, body)
