"""Message bodies and EC2 responses of AWS, with fields that a test can override."""

import json
from datetime import UTC, datetime
from typing import Any

FIRST_INSTANCE, SECOND_INSTANCE = "i-0aaa1111bbb22222c", "i-0ddd3333eee44444f"
SENT_AT = datetime(2026, 5, 2, 10, tzinfo=UTC)
START = datetime(2026, 5, 16, 10, tzinfo=UTC)
END = datetime(2026, 5, 16, 12, tzinfo=UTC)
EVENT = "instance-event-0a1b2c3d4e5f60718"
CODE = "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED"
ARN = f"arn:aws:health:eu-west-1::event/EC2/{CODE}/{CODE}_0b6e"
TOKEN = "87654321-4321-4321-4321-210987654321"


def rfc1123(instant: datetime) -> str:
    """Return an instant as AWS Health writes it."""
    return f"{instant:%a, %d %b %Y %H:%M:%S} GMT"


def rfc3339(instant: datetime) -> str:
    """Return an instant as EventBridge writes it."""
    return f"{instant:%Y-%m-%dT%H:%M:%S}Z"


def envelope(source: str, detail_type: str, detail: object, *, at: datetime = SENT_AT, **other: object) -> str:
    """Return what EventBridge puts around a detail."""
    whole = {
        "version": "0",
        "id": "6c0d3e2a-7f1b-4f53-9d3f-0f4e2b7a1c11",
        "detail-type": detail_type,
        "source": source,
        "account": "111122223333",
        "time": rfc3339(at),
        "region": "eu-west-1",
        "resources": [],
        "detail": detail,
    }
    return json.dumps(whole | other)


def health(*instances: str, start: datetime | None = START, at: datetime = SENT_AT, **other: object) -> str:
    """Return an event of AWS Health about some instances; `other` is different in its detail."""
    detail: dict[str, object] = {
        "eventArn": ARN,
        "service": "EC2",
        "eventScopeCode": "ACCOUNT_SPECIFIC",
        "eventTypeCode": CODE,
        "eventTypeCategory": "scheduledChange",
        "statusCode": "upcoming",
        "eventRegion": "eu-west-1",
        "lastUpdatedTime": rfc1123(at),
        "eventDescription": [{"language": "en_US", "latestDescription": "the host is failing"}],
        "affectedEntities": [
            {"entityValue": instance, "status": "PENDING", "tags": {"team": "x"}} for instance in instances
        ],
        "page": "1",
        "totalPages": "1",
    }
    if start is not None:
        detail |= {"startTime": rfc1123(start), "endTime": rfc1123(start + (END - START))}
    return envelope("aws.health", "AWS Health Event", detail | other, at=at, resources=list(instances))


def spot(instance: str = FIRST_INSTANCE, *, at: datetime = SENT_AT, action: str = "terminate") -> str:
    """Return the warning that a spot instance is taken back."""
    detail = {"instance-id": instance, "instance-action": action}
    return envelope("aws.ec2", "EC2 Spot Instance Interruption Warning", detail, at=at)


def rebalance(instance: str = FIRST_INSTANCE, *, at: datetime = SENT_AT) -> str:
    """Return a rebalance recommendation."""
    return envelope("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": instance}, at=at)


def state(
    instance: str = FIRST_INSTANCE, *, state: str = "stopping", at: datetime = SENT_AT, event_id: str = "s-1"
) -> str:
    """Return that the state of an instance has changed."""
    detail = {"instance-id": instance, "state": state}
    return envelope("aws.ec2", "EC2 Instance State-change Notification", detail, at=at, id=event_id)


def action(instance: str = FIRST_INSTANCE, *, transition: str = "TERMINATING", **other: object) -> dict[str, object]:
    """Return a lifecycle action."""
    return {
        "LifecycleActionToken": TOKEN,
        "AutoScalingGroupName": "workers",
        "LifecycleHookName": "drain",
        "EC2InstanceId": instance,
        "LifecycleTransition": f"autoscaling:EC2_INSTANCE_{transition}",
    } | other


def lifecycle(instance: str = FIRST_INSTANCE, *, transition: str = "TERMINATING", at: datetime = SENT_AT) -> str:
    """Return a lifecycle action in an EventBridge envelope."""
    verb = "terminate" if transition == "TERMINATING" else "launch"
    detail = action(instance, transition=transition)
    return envelope("aws.autoscaling", f"EC2 Instance-{verb} Lifecycle Action", detail, at=at)


def in_sns_notification(body: str) -> str:
    """Return a message in an SNS notification."""
    return json.dumps({"Type": "Notification", "MessageId": "m-1", "TopicArn": "arn:aws:sns:x", "Message": body})


def event(code: str = "system-reboot", description: str = "planned", **other: object) -> dict[str, Any]:
    """Return a scheduled event of EC2."""
    fields = {"InstanceEventId": EVENT, "Code": code, "Description": description, "NotBefore": START, "NotAfter": END}
    return fields | other


def status(*events: object, instance: str = FIRST_INSTANCE, state: str = "running") -> dict[str, Any]:
    """Return what DescribeInstanceStatus says of an instance."""
    return {
        "InstanceId": instance,
        "AvailabilityZone": "eu-west-1a",
        "InstanceState": {"Code": 16, "Name": state},
        "Events": list(events),
    }
