"""One OCI tenancy with a stream of all maintenance events: simulated events, and the API calls."""

import base64
import itertools
from datetime import datetime, timedelta
from typing import Any

import msgspec

from haulout.core.clock import Clock
from haulout_sandbox.clouds.faults import Faults
from haulout_sandbox.clouds.oci.compute import ComputeService, Document
from haulout_sandbox.clouds.oci.streaming import Stream
from haulout_sandbox.clouds.oci.time_format import format_duration, format_time

REGION = "eu-frankfurt-1"
COMPARTMENT = "ocid1.compartment.oc1..sandbox"
STREAM = f"ocid1.stream.oc1.{REGION}.sandbox"
_COMPUTE_EVENT_PREFIX = "com.oraclecloud.computeapi."
_MAINTENANCE_EVENT_TYPE = f"{_COMPUTE_EVENT_PREFIX}instancemaintenance"
_EVENT_STATES = {"SUCCEEDED": "SUCCESSFUL"}  # the Events service spells this one differently
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)


class OciCloud:
    """A tenancy; events are sent to the stream unless `silent`.

    Tenancies of different realms share no OCIDs.
    """

    def __init__(
        self, clock: Clock, *, partitions: int = 1, retention: timedelta = timedelta(days=7), id_seed: str = "sandbox"
    ) -> None:
        self.clock = clock
        self.faults = Faults(clock)
        self.stream = Stream("node-maintenance-stream", clock, partitions=partitions, retention=retention)
        self.compute_service = ComputeService(clock)
        self._id_seed = id_seed  # suffix of all OCIDs
        self._numbers = itertools.count(1)

    # Simulated events

    def launch(self, name: str, *, compartment: str = COMPARTMENT) -> str:
        """Launch an instance with this display name; return its OCID."""
        instance = f"ocid1.instance.oc1.{REGION}.{self._id_seed}{next(self._numbers):06}"
        self.compute_service.instances[instance] = {
            "id": instance,
            "displayName": name,
            "compartmentId": compartment,
            "lifecycleState": "RUNNING",
            "region": REGION,
            "availabilityDomain": "Uocm:EU-FRANKFURT-1-AD-1",
            "shape": "VM.Standard.E5.Flex",
            "timeCreated": format_time(self.clock.now()),
        }
        return instance

    def terminate(self, instance: str, *, forget: bool = False) -> None:
        """Terminate an instance; with `forget`, it is no longer listed."""
        if forget:
            del self.compute_service.instances[instance]
        else:
            self.compute_service.instances[instance] = self.compute_service.instances[instance] | {
                "lifecycleState": "TERMINATED"
            }

    def preempt(self, instance: str) -> None:
        """Announce that an instance is terminated in two minutes because its capacity is reclaimed."""
        instance_document = self.compute_service.instances[instance]
        self.publish(
            self._envelope(
                f"{_COMPUTE_EVENT_PREFIX}instancepreemptionaction", instance_document, {"preemptionAction": "TERMINATE"}
            )
        )

    def fail_host(self, instance: str) -> None:
        """Announce that the host of an instance has failed."""
        instance_document = self.compute_service.instances[instance]
        self.publish(self._envelope(f"{_COMPUTE_EVENT_PREFIX}instancefailed", instance_document, {}))

    def schedule(
        self,
        instance: str,
        *,
        start: datetime,
        window: timedelta | None = _DAY,
        estimate: timedelta | None = 2 * _HOUR,
        action: str = "REBOOT_MIGRATION",
        hard_due_date: datetime | None = None,
        can_reschedule: bool = True,
        silent: bool = False,
    ) -> str:
        """Schedule a maintenance; return its OCID."""
        event = f"ocid1.instancemaintenanceevent.oc1.{REGION}.{self._id_seed}{next(self._numbers):06}"
        instance_document = self.compute_service.instances.get(instance, {})
        self.compute_service.patch_event(
            event,
            id=event,
            instanceId=instance,
            compartmentId=instance_document.get("compartmentId", COMPARTMENT),
            displayName=f"maintenance of {instance_document.get('displayName', instance)}",
            maintenanceCategory="FLEXIBLE" if can_reschedule else "MANDATORY",
            maintenanceReason="HARDWARE_REPLACEMENT",
            instanceAction=action,
            alternativeResolutionActions=["REBOOT_MIGRATION", "TERMINATE"],
            description="The hardware below this instance is replaced.",
            timeWindowStart=format_time(start),
            startWindowDuration=format_duration(window),
            estimatedDuration=format_duration(estimate),
            timeHardDueDate=None if hard_due_date is None else format_time(hard_due_date),
            canReschedule=can_reschedule,
            timeCreated=format_time(self.clock.now()),
            lifecycleState="SCHEDULED",
            createdBy="SYSTEM",
            correlationToken="",
            definedTags={},
            freeformTags={},
        )
        self._publish_event(event, "", silent=silent)
        return event

    def reschedule(self, event: str, start: datetime, *, silent: bool = False) -> None:
        self.compute_service.patch_event(event, timeWindowStart=format_time(start))
        self._publish_event(event, "", silent=silent)

    def start_maintenance(self, event: str, *, silent: bool = False) -> None:
        self.compute_service.patch_event(event, lifecycleState="STARTED", timeStarted=format_time(self.clock.now()))
        self._publish_event(event, ".begin", silent=silent)

    def end_maintenance(self, event: str, *, state: str = "SUCCEEDED", silent: bool = False) -> None:
        """End a maintenance as SUCCEEDED, FAILED or CANCELED."""
        self.compute_service.patch_event(event, lifecycleState=state, timeFinished=format_time(self.clock.now()))
        self._publish_event(event, ".end", silent=silent)

    def forget_event(self, event: str) -> None:
        """Remove a maintenance, as after a long time."""
        del self.compute_service.events[event]

    def event_document(self, event: str, suffix: str = "") -> Document:
        """Return the Events service's document about the current state of a maintenance."""
        maintenance = self.compute_service.events[event]
        excluded = ("id", "compartmentId", "displayName", "definedTags", "freeformTags", "timeCreated", "createdBy")
        details = {
            key: value
            for key, value in maintenance.items()
            if key not in (*excluded, "timeHardDueDate", "timeStarted", "timeFinished")
        }
        details["lifecycleState"] = _EVENT_STATES.get(maintenance["lifecycleState"], maintenance["lifecycleState"])
        return self._envelope(f"{_MAINTENANCE_EVENT_TYPE}{suffix}", maintenance, {**details, "schemaVersion": 1})

    def _envelope(self, event_type: str, resource: Document, details: Document) -> Document:
        return {
            "eventType": event_type,
            "cloudEventsVersion": "0.1",
            "eventTypeVersion": "2.0",
            "source": "ComputeApi",
            "eventTime": format_time(self.clock.now()),
            "contentType": "application/json",
            "data": {
                "compartmentId": resource["compartmentId"],
                "compartmentName": "sandbox",
                "resourceName": resource["displayName"],
                "resourceId": resource["id"],
                "availabilityDomain": "Uocm:EU-FRANKFURT-1-AD-1",
                "additionalDetails": details,
            },
            "eventID": f"sandbox-{next(self._numbers)}",
            "extensions": {"compartmentId": resource["compartmentId"]},
        }

    def publish(self, document: Any) -> None:
        self.publish_bytes(msgspec.json.encode(document))

    def publish_bytes(self, content: bytes) -> None:
        self.stream.put_messages([{"key": None, "value": base64.b64encode(content).decode()}])

    def _publish_event(self, event: str, suffix: str, *, silent: bool) -> None:
        if not silent:
            self.publish(self.event_document(event, suffix))

    # API calls

    @property
    def compartments(self) -> tuple[str, ...]:
        """Return the compartments of instances that are launched without one."""
        return (COMPARTMENT,)

    def streaming(self) -> "StreamingClient":
        return StreamingClient(self)

    def compute(self) -> "ComputeClient":
        return ComputeClient(self)


class StreamingClient:
    def __init__(self, cloud: OciCloud) -> None:
        self._stream = cloud.stream
        self._faults = cloud.faults

    async def group_cursor(self, *, group: str, instance: str) -> str:
        """Return a cursor for a member of a group that commits automatically."""
        details = {"type": "TRIM_HORIZON", "groupName": group, "instanceName": instance, "commitOnGet": False}
        return await self._faults.call("CreateGroupCursor", lambda: self._stream.create_group_cursor(details))

    async def messages(self, cursor: str, *, limit: int) -> tuple[list[Document], str]:
        """Return the next messages, and the next cursor."""
        return await self._faults.call("GetMessages", lambda: self._stream.get_messages(cursor, limit))

    async def commit(self, cursor: str) -> str:
        return await self._faults.call("ConsumerCommit", lambda: self._stream.commit(cursor))

    async def heartbeat(self, cursor: str) -> str:
        return await self._faults.call("ConsumerHeartbeat", lambda: self._stream.heartbeat(cursor))


class ComputeClient:
    """The calls of a client of Compute."""

    def __init__(self, cloud: OciCloud) -> None:
        self._compute_service = cloud.compute_service
        self._faults = cloud.faults

    async def maintenance_events(self, compartment: str, *, state: str, page: str = "") -> tuple[list[Document], str]:
        """Return a page of maintenance events, and the next page."""
        query = {"compartmentId": compartment, "lifecycleState": state, "page": page}
        return await self._faults.call(
            "ListInstanceMaintenanceEvents", lambda: self._compute_service.list_events(query)
        )

    async def maintenance_event(self, event: str) -> tuple[Document, str]:
        """Return a maintenance event and its etag."""
        return await self._faults.call("GetInstanceMaintenanceEvent", lambda: self._compute_service.get_event(event))

    async def move_event(self, event: str, *, start: datetime, etag: str, token: str) -> None:
        details = {"timeWindowStart": format_time(start)}

        def apply_update() -> None:
            self._compute_service.update_event(event, details, etag=etag, token=token)

        await self._faults.call("UpdateInstanceMaintenanceEvent", apply_update)

    async def instance(self, instance: str) -> Document:
        return await self._faults.call("GetInstance", lambda: self._compute_service.get_instance(instance))
