"""Messages that EventBridge puts on the queue."""

from datetime import datetime
from typing import Any

import msgspec

_REGION = "eu-west-1"
_ACCOUNT = "111122223333"
_EVENT_TYPE_CODES = {
    "instance-reboot": "AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED",
    "system-reboot": "AWS_EC2_SYSTEM_REBOOT_MAINTENANCE_SCHEDULED",
    "system-maintenance": "AWS_EC2_INSTANCE_NETWORK_MAINTENANCE_SCHEDULED",
    "instance-stop": "AWS_EC2_INSTANCE_STOP_SCHEDULED",
    "instance-retirement": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
}


def eventbridge_event(source: str, detail_type: str, detail: dict[str, Any], *, event_id: str, at: datetime) -> str:
    event = {
        "version": "0",
        "id": event_id,
        "detail-type": detail_type,
        "source": source,
        "account": _ACCOUNT,
        "time": f"{at:%Y-%m-%dT%H:%M:%S}Z",
        "region": _REGION,
        "resources": [],
        "detail": detail,
    }
    return msgspec.json.encode(event).decode()


def health_event_detail(instance: str, event: dict[str, Any], *, status: str, at: datetime) -> dict[str, Any]:
    """Return the detail of an AWS Health event about a scheduled event of EC2."""
    code = _EVENT_TYPE_CODES[event["Code"]]
    times = {"startTime": _format_rfc1123(event["NotBefore"])}
    if "NotAfter" in event:
        times["endTime"] = _format_rfc1123(event["NotAfter"])
    return {
        "eventArn": f"arn:aws:health:{_REGION}::event/EC2/{code}/{code}_{event['InstanceEventId'][-8:]}",
        "service": "EC2",
        "eventScopeCode": "ACCOUNT_SPECIFIC",
        "eventTypeCode": code,
        "eventTypeCategory": "scheduledChange",
        "statusCode": status,
        "eventRegion": _REGION,
        **times,
        "lastUpdatedTime": _format_rfc1123(at),
        "eventDescription": [{"language": "en_US", "latestDescription": event["Description"]}],
        "affectedEntities": [{"entityValue": instance, "status": "PENDING" if status != "closed" else "RESOLVED"}],
        "affectedAccount": _ACCOUNT,
        "page": "1",
        "totalPages": "1",
    }


def _format_rfc1123(instant: datetime) -> str:
    return f"{instant:%a, %d %b %Y %H:%M:%S} GMT"
