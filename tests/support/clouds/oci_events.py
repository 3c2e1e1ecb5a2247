"""OCI maintenance events in their wire format."""

import base64
import json
from typing import Any

INSTANCE = "ocid1.instance.oc1.eu-frankfurt-1.examplein1"
EVENT = "ocid1.instancemaintenanceevent.oc1.eu-frankfurt-1.exampleme1"
COMPARTMENT = "ocid1.compartment.oc1..exampleaaaa"
SCHEDULED = "com.oraclecloud.computeapi.instancemaintenance"
STARTED = f"{SCHEDULED}.begin"
ENDED = f"{SCHEDULED}.end"
SAMPLE_EVENT = "ocid1.instancemaintenanceevent.oc1.phx.unique_ID"


def details(**changed: Any) -> dict[str, Any]:
    """Return what an event says about a maintenance; None leaves something out."""
    fields = {
        "instanceId": INSTANCE,
        "lifecycleState": "SCHEDULED",
        "maintenanceCategory": "FLEXIBLE",
        "canReschedule": True,
        "description": "Planned hardware replacement.",
        "maintenanceReason": "HARDWARE_REPLACEMENT",
        "instanceAction": "REBOOT_MIGRATION",
        "alternativeResolutionActions": ["REBOOT_MIGRATE", "TERMINATE"],
        "timeWindowStart": "2026-04-16T02:00:00.000Z",
        "startWindowDuration": "P1D",
        "estimatedDuration": "PT2H",
        "correlationToken": "",
        "schemaVersion": 1,
    }
    return {key: value for key, value in (fields | changed).items() if value is not None}


def envelope(
    kind: str = SCHEDULED, *, source: str = "ComputeApi", resource: Any = EVENT, **changed: Any
) -> dict[str, Any]:
    """Return an event, as the Events service puts it on a stream; None leaves something out."""
    return {
        "eventType": kind,
        "cloudEventsVersion": "0.1",
        "eventTypeVersion": "2.0",
        "source": source,
        "eventTime": "2026-04-02T08:15:30.000Z",
        "contentType": "application/json",
        "data": {
            "compartmentId": COMPARTMENT,
            "compartmentName": "prod-workers",
            "resourceName": "maint-worker-7",
            "resourceId": resource,
            "availabilityDomain": "Uocm:EU-FRANKFURT-1-AD-2",
            "additionalDetails": details(**changed),
        },
        "eventID": "3a0b6f2e-6a3a-4d0e-9f0d-2f1e7c9b1a01",
        "extensions": {"compartmentId": COMPARTMENT},
    }


def sample(instance: str, *, start: str, kind: str = SCHEDULED) -> dict[str, Any]:
    """Return the example of the OCI console that ONMH's README has its users send.

    They replace the instance and the start, and nothing else: the time of the event and all identifiers stay.
    """
    state = "SUCCESSFUL" if kind == ENDED else "SCHEDULED"
    return {
        "eventType": kind,
        "cloudEventsVersion": "0.1",
        "eventTypeVersion": "2.0",
        "source": "ComputeApi",
        "eventTime": "2023-08-18T12:00:00.000Z",
        "contentType": "application/json",
        "data": {
            "compartmentId": COMPARTMENT,
            "compartmentName": "example_compartment",
            "resourceName": "maintenance_name",
            "resourceId": SAMPLE_EVENT,
            "availabilityDomain": "availability_domain",
            "additionalDetails": details(
                instanceId=instance,
                lifecycleState=state,
                instanceAction="None",
                timeWindowStart=start,
                estimatedDuration="P5D",
            ),
        },
        "eventID": "unique_ID",
        "extensions": {"compartmentId": COMPARTMENT},
    }


def message(document: Any, *, offset: int = 7) -> dict[str, Any]:
    """Return a message of a stream with a document in it."""
    return {
        "stream": "node-maintenance-stream",
        "partition": "0",
        "key": None,
        "value": base64.b64encode(json.dumps(document).encode()).decode(),
        "offset": offset,
        "timestamp": "2026-04-02T08:15:31.123Z",
    }


def entry(**changed: Any) -> dict[str, Any]:
    """Return a maintenance as the Compute API shows it; None leaves something out."""
    fields = details() | {
        "id": EVENT,
        "compartmentId": COMPARTMENT,
        "displayName": "maint-worker-7",
        "createdBy": "SYSTEM",
        "timeCreated": "2026-04-02T08:15:30Z",
        "timeHardDueDate": "2026-04-30T00:00:00Z",
    }
    return {key: value for key, value in (fields | changed).items() if value is not None}
