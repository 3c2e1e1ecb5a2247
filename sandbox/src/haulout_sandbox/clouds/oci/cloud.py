"""One tenancy of OCI with a stream that hears of all maintenance: what happens in it, and the calls that it answers."""

import base64
import itertools
from datetime import datetime, timedelta
from typing import Any

import msgspec

from haulout.core.clock import Clock
from haulout_sandbox.clouds.faults import Faults
from haulout_sandbox.clouds.oci.machines import Document, Machines
from haulout_sandbox.clouds.oci.streams import Stream
from haulout_sandbox.clouds.oci.written import lasting, written

REGION = "eu-frankfurt-1"
COMPARTMENT = "ocid1.compartment.oc1..sandbox"
STREAM = f"ocid1.stream.oc1.{REGION}.sandbox"
_COMPUTE = "com.oraclecloud.computeapi."
_TYPE = f"{_COMPUTE}instancemaintenance"
_AS_EVENT = {"SUCCEEDED": "SUCCESSFUL"}  # events spell this one differently
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)


class OciCloud:
    """A cloud; what happens is told on the stream, unless it is `silent`.

    Two of different realms have no name in common.
    """

    def __init__(
        self, clock: Clock, *, partitions: int = 1, retention: timedelta = timedelta(days=7), realm: str = "sandbox"
    ) -> None:
        self.clock = clock
        self.faults = Faults(clock)
        self.stream = Stream("node-maintenance-stream", clock, partitions=partitions, retention=retention)
        self.machines = Machines(clock)
        self._realm = realm  # with which all names end
        self._numbers = itertools.count(1)

    # What happens

    def launch(self, name: str, *, compartment: str = COMPARTMENT) -> str:
        """Return a new instance that people call so."""
        instance = f"ocid1.instance.oc1.{REGION}.{self._realm}{next(self._numbers):06}"
        self.machines.instances[instance] = {
            "id": instance,
            "displayName": name,
            "compartmentId": compartment,
            "lifecycleState": "RUNNING",
            "region": REGION,
            "availabilityDomain": "Uocm:EU-FRANKFURT-1-AD-1",
            "shape": "VM.Standard.E5.Flex",
            "timeCreated": written(self.clock.now()),
        }
        return instance

    def terminate(self, instance: str, *, forget: bool = False) -> None:
        """End an instance; some time later nobody knows of it any more."""
        if forget:
            del self.machines.instances[instance]
        else:
            self.machines.instances[instance] = self.machines.instances[instance] | {"lifecycleState": "TERMINATED"}

    def preempt(self, instance: str) -> None:
        """Say that an instance will be terminated in two minutes, since others need the room."""
        about = self.machines.instances[instance]
        self.publish(self._envelope(f"{_COMPUTE}instancepreemptionaction", about, {"preemptionAction": "TERMINATE"}))

    def fail(self, instance: str) -> None:
        """Say that the host of an instance has failed."""
        about = self.machines.instances[instance]
        self.publish(self._envelope(f"{_COMPUTE}instancefailed", about, {}))

    def schedule(
        self,
        instance: str,
        *,
        start: datetime,
        window: timedelta | None = _DAY,
        estimate: timedelta | None = 2 * _HOUR,
        action: str = "REBOOT_MIGRATION",
        due: datetime | None = None,
        movable: bool = True,
        silent: bool = False,
    ) -> str:
        """Plan a maintenance; return its OCID."""
        event = f"ocid1.instancemaintenanceevent.oc1.{REGION}.{self._realm}{next(self._numbers):06}"
        known = self.machines.instances.get(instance, {})
        self.machines.change(
            event,
            id=event,
            instanceId=instance,
            compartmentId=known.get("compartmentId", COMPARTMENT),
            displayName=f"maintenance of {known.get('displayName', instance)}",
            maintenanceCategory="FLEXIBLE" if movable else "MANDATORY",
            maintenanceReason="HARDWARE_REPLACEMENT",
            instanceAction=action,
            alternativeResolutionActions=["REBOOT_MIGRATION", "TERMINATE"],
            description="The hardware below this instance is replaced.",
            timeWindowStart=written(start),
            startWindowDuration=lasting(window),
            estimatedDuration=lasting(estimate),
            timeHardDueDate=None if due is None else written(due),
            canReschedule=movable,
            timeCreated=written(self.clock.now()),
            lifecycleState="SCHEDULED",
            createdBy="SYSTEM",
            correlationToken="",
            definedTags={},
            freeformTags={},
        )
        self._tell(event, "", silent=silent)
        return event

    def reschedule(self, event: str, start: datetime, *, silent: bool = False) -> None:
        """Move a maintenance."""
        self.machines.change(event, timeWindowStart=written(start))
        self._tell(event, "", silent=silent)

    def begin(self, event: str, *, silent: bool = False) -> None:
        """Begin a maintenance."""
        self.machines.change(event, lifecycleState="STARTED", timeStarted=written(self.clock.now()))
        self._tell(event, ".begin", silent=silent)

    def end(self, event: str, *, state: str = "SUCCEEDED", silent: bool = False) -> None:
        """End a maintenance; also as FAILED or CANCELED."""
        self.machines.change(event, lifecycleState=state, timeFinished=written(self.clock.now()))
        self._tell(event, ".end", silent=silent)

    def forget(self, event: str) -> None:
        """Have a maintenance never been there, as after a long time."""
        del self.machines.events[event]

    def told(self, event: str, suffix: str = "") -> Document:
        """Return what the Events service says about a maintenance now."""
        known = self.machines.events[event]
        left_out = ("id", "compartmentId", "displayName", "definedTags", "freeformTags", "timeCreated", "createdBy")
        details = {
            key: value
            for key, value in known.items()
            if key not in (*left_out, "timeHardDueDate", "timeStarted", "timeFinished")
        }
        details["lifecycleState"] = _AS_EVENT.get(known["lifecycleState"], known["lifecycleState"])
        return self._envelope(f"{_TYPE}{suffix}", known, {**details, "schemaVersion": 1})

    def _envelope(self, kind: str, about: Document, details: Document) -> Document:
        return {
            "eventType": kind,
            "cloudEventsVersion": "0.1",
            "eventTypeVersion": "2.0",
            "source": "ComputeApi",
            "eventTime": written(self.clock.now()),
            "contentType": "application/json",
            "data": {
                "compartmentId": about["compartmentId"],
                "compartmentName": "sandbox",
                "resourceName": about["displayName"],
                "resourceId": about["id"],
                "availabilityDomain": "Uocm:EU-FRANKFURT-1-AD-1",
                "additionalDetails": details,
            },
            "eventID": f"sandbox-{next(self._numbers)}",
            "extensions": {"compartmentId": about["compartmentId"]},
        }

    def publish(self, document: Any) -> None:
        """Put a document on the stream."""
        self.put(msgspec.json.encode(document))

    def put(self, content: bytes) -> None:
        """Put anything on the stream."""
        self.stream.put_messages([{"key": None, "value": base64.b64encode(content).decode()}])

    def _tell(self, event: str, suffix: str, *, silent: bool) -> None:
        if not silent:
            self.publish(self.told(event, suffix))

    # The calls

    @property
    def compartments(self) -> tuple[str, ...]:
        """The compartments in which instances are launched if nobody says otherwise."""
        return (COMPARTMENT,)

    def streaming(self) -> "StreamCalls":
        """Return the calls of the stream."""
        return StreamCalls(self)

    def compute(self) -> "ComputeCalls":
        """Return the calls of Compute."""
        return ComputeCalls(self)


class StreamCalls:
    """What a consumer asks Streaming for."""

    def __init__(self, cloud: OciCloud) -> None:
        self._stream = cloud.stream
        self._faults = cloud.faults

    async def group_cursor(self, *, group: str, instance: str) -> str:
        """Return a cursor for a member of a group that commits by itself."""
        details = {"type": "TRIM_HORIZON", "groupName": group, "instanceName": instance, "commitOnGet": False}
        return await self._faults.call("CreateGroupCursor", lambda: self._stream.create_group_cursor(details))

    async def messages(self, cursor: str, *, limit: int) -> tuple[list[Document], str]:
        """Return the next messages, and the cursor to go on with."""
        return await self._faults.call("GetMessages", lambda: self._stream.get_messages(cursor, limit))

    async def commit(self, cursor: str) -> str:
        """Commit how far a cursor is."""
        return await self._faults.call("ConsumerCommit", lambda: self._stream.commit(cursor))

    async def heartbeat(self, cursor: str) -> str:
        """Keep what a cursor has reserved."""
        return await self._faults.call("ConsumerHeartbeat", lambda: self._stream.heartbeat(cursor))


class ComputeCalls:
    """What a reconciler asks Compute for."""

    def __init__(self, cloud: OciCloud) -> None:
        self._machines = cloud.machines
        self._faults = cloud.faults

    async def maintenance_events(self, compartment: str, *, state: str, page: str = "") -> tuple[list[Document], str]:
        """Return a page of maintenance events, and the next page."""
        query = {"compartmentId": compartment, "lifecycleState": state, "page": page}
        return await self._faults.call("ListInstanceMaintenanceEvents", lambda: self._machines.list_events(query))

    async def maintenance_event(self, event: str) -> tuple[Document, str]:
        """Return one, and its etag."""
        return await self._faults.call("GetInstanceMaintenanceEvent", lambda: self._machines.get_event(event))

    async def move_event(self, event: str, *, start: datetime, etag: str, token: str) -> None:
        """Move one."""
        details = {"timeWindowStart": written(start)}

        def work() -> None:
            self._machines.update_event(event, details, etag=etag, token=token)

        await self._faults.call("UpdateInstanceMaintenanceEvent", work)

    async def instance(self, instance: str) -> Document:
        """Return an instance."""
        return await self._faults.call("GetInstance", lambda: self._machines.get_instance(instance))
