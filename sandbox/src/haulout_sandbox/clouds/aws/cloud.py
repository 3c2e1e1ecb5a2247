"""One AWS account in one region, with a queue for all maintenance events: simulated events, and the API calls."""

import hashlib
import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from haulout.core.clock import Clock
from haulout_sandbox.clouds.aws.autoscaling import AutoScaling, LifecycleAction
from haulout_sandbox.clouds.aws.ec2 import Document, Ec2Instances
from haulout_sandbox.clouds.aws.imds import MetadataServices
from haulout_sandbox.clouds.aws.sqs import SqsQueue
from haulout_sandbox.clouds.faults import Faults
from haulout_sandbox.clouds.metadata_fetch import MetadataFetch

_REGION = "eu-west-1"
_ACCOUNT = "111122223333"
_EVENT_TYPE_CODES = {
    "instance-reboot": "AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED",
    "system-reboot": "AWS_EC2_SYSTEM_REBOOT_MAINTENANCE_SCHEDULED",
    "system-maintenance": "AWS_EC2_INSTANCE_NETWORK_MAINTENANCE_SCHEDULED",
    "instance-stop": "AWS_EC2_INSTANCE_STOP_SCHEDULED",
    "instance-retirement": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
}
_HOUR = timedelta(hours=1)
_SPOT_NOTICE_PERIOD = timedelta(minutes=2)


class AwsCloud:
    """An AWS account; events are sent to the queue unless `silent`. Accounts of other partitions have other names."""

    def __init__(self, clock: Clock, *, id_seed: str = "") -> None:
        self.clock = clock
        self.faults = Faults(clock)
        id_prefix = hashlib.sha256(id_seed.encode()).hexdigest()[:8] if id_seed else "0" * 8
        self.ec2_instances = Ec2Instances(clock, id_prefix)
        self.queue = SqsQueue(clock)
        self.auto_scaling = AutoScaling(clock, on_released=self._on_instance_released)
        self.metadata_services = MetadataServices(clock, self.ec2_instances, self.faults)
        self._event_numbers = itertools.count(1)

    # Simulated events

    def launch(self, *, tags: dict[str, str] | None = None, instance_id: str = "") -> str:
        """Launch an instance and return its id; `instance_id` sets the id."""
        return self.ec2_instances.launch(tags or {}, instance_id=instance_id)

    def schedule(
        self,
        instance: str,
        code: str = "system-reboot",
        *,
        start: datetime,
        duration: timedelta | None = 2 * _HOUR,
        deadline: datetime | None = None,
        description: str = "The host needs maintenance",
        silent: bool = False,
    ) -> str:
        """Schedule an event; return its name."""
        event: Document = {"Code": code, "Description": description, "NotBefore": start}
        event |= {} if duration is None else {"NotAfter": start + duration}
        event |= {} if deadline is None else {"NotBeforeDeadline": deadline}
        event_id = self.ec2_instances.schedule_event(instance, event)
        self._send_health_event(instance, event_id, "upcoming", silent=silent)
        return event_id

    def reschedule(self, instance: str, event: str, *, start: datetime, silent: bool = False) -> None:
        """Reschedule an event, as AWS itself does."""
        current = self.ec2_instances.by_id[instance].events[event]
        offset = start - current["NotBefore"]
        moved = {key: current[key] + offset for key in ("NotBefore", "NotAfter") if key in current}
        self.ec2_instances.by_id[instance].events[event] = current | moved
        self._send_health_event(instance, event, "upcoming", silent=silent)

    def cancel_event(self, instance: str, event: str, *, silent: bool = False) -> None:
        self._close_event(instance, event, "[Canceled] ", silent=silent)

    def complete_event(self, instance: str, event: str, *, silent: bool = False) -> None:
        self._close_event(instance, event, "[Completed] ", silent=silent)

    def forget_event(self, instance: str, event: str) -> None:
        """Remove an event from the responses of EC2."""
        self.ec2_instances.by_id[instance].events.pop(event, None)

    def set_state(self, instance: str, state: str, *, silent: bool = False) -> None:
        """Set the state of an instance, for example stopped or running."""
        self.ec2_instances.by_id[instance].state = state
        self._send_event(
            "aws.ec2",
            "EC2 Instance State-change Notification",
            {"instance-id": instance, "state": state},
            silent=silent,
        )

    def forget_instance(self, instance: str) -> None:
        del self.ec2_instances.by_id[instance]

    def interrupt_spot(self, instance: str, action: str = "terminate", *, silent: bool = False) -> None:
        """Announce the interruption of a spot instance."""
        interruption_time = self.clock.now() + _SPOT_NOTICE_PERIOD
        if instance in self.ec2_instances.by_id:  # other instances share the queue
            self.ec2_instances.by_id[instance].spot_action = {
                "action": action,
                "time": f"{interruption_time:%Y-%m-%dT%H:%M:%SZ}",
            }
        detail = {"instance-id": instance, "instance-action": action}
        self._send_event("aws.ec2", "EC2 Spot Instance Interruption Warning", detail, silent=silent)

    def recommend_rebalance(self, instance: str, *, silent: bool = False) -> None:
        """Announce a rebalance recommendation for a spot instance."""
        if instance in self.ec2_instances.by_id:
            self.ec2_instances.by_id[instance].rebalance = {"noticeTime": f"{self.clock.now():%Y-%m-%dT%H:%M:%SZ}"}
        detail = {"instance-id": instance}
        self._send_event("aws.ec2", "EC2 Instance Rebalance Recommendation", detail, silent=silent)

    def start_lifecycle_action(
        self,
        instance: str,
        *,
        group: str = "workers",
        hook: str = "drain",
        launch: bool = False,
        silent: bool = False,
    ) -> LifecycleAction:
        """Start a lifecycle action, after which Auto Scaling terminates an instance, or puts it into service."""
        transition = "LAUNCHING" if launch else "TERMINATING"
        if instance in self.ec2_instances.by_id:
            self.ec2_instances.by_id[instance].target_lifecycle_state = "InService" if launch else "Terminated"
        action = self.auto_scaling.start_action(instance, group=group, hook=hook, transition=transition)
        detail = {
            "LifecycleActionToken": action.token,
            "AutoScalingGroupName": group,
            "LifecycleHookName": hook,
            "EC2InstanceId": instance,
            "LifecycleTransition": f"autoscaling:EC2_INSTANCE_{transition}",
        }
        self._send_event(
            "aws.autoscaling",
            f"EC2 Instance-{'launch' if launch else 'terminate'} Lifecycle Action",
            detail,
            silent=silent,
        )
        return action

    def metadata(self, instance: str) -> MetadataFetch:
        """Return a client of the instance's metadata service."""
        return MetadataFetch(
            lambda method, target, headers, _: self.metadata_services.handle(instance, method, target, headers)
        )

    # API calls

    async def statuses(self, instances: Sequence[str], *, page: str = "") -> tuple[Sequence[Document], str]:
        return await self.faults.call(
            "DescribeInstanceStatus", lambda: self.ec2_instances.statuses(instances, page=page)
        )

    async def instances(self, instances: Sequence[str]) -> Sequence[Document]:
        return await self.faults.call("DescribeInstances", lambda: self.ec2_instances.describe(instances))

    async def move_event(self, instance: str, event: str, *, to: datetime) -> Document:
        return await self.faults.call(
            "ModifyInstanceEventStartTime", lambda: self.ec2_instances.move_event(instance, event, to=to)
        )

    async def receive(self, *, max_messages: int, wait: timedelta, visibility_timeout: timedelta) -> Sequence[Document]:
        await self.queue.wait(wait)
        return await self.faults.call(
            "ReceiveMessage",
            lambda: self.queue.receive(max_messages=max_messages, visibility_timeout=visibility_timeout),
        )

    async def change_visibility(self, receipt: str, *, visibility_timeout: timedelta) -> None:
        await self.faults.call(
            "ChangeMessageVisibility",
            lambda: self.queue.change_visibility(receipt, visibility_timeout=visibility_timeout),
        )

    async def delete(self, receipt: str) -> None:
        await self.faults.call("DeleteMessage", lambda: self.queue.delete(receipt))

    async def heartbeat(self, instance: str, *, group: str, hook: str, token: str) -> None:
        """Extend the timeout of a lifecycle action."""
        await self.faults.call(
            "RecordLifecycleActionHeartbeat",
            lambda: self.auto_scaling.heartbeat(instance, group=group, hook=hook, token=token),
        )

    async def complete(self, instance: str, *, group: str, hook: str, token: str) -> None:
        await self.faults.call(
            "CompleteLifecycleAction", lambda: self.auto_scaling.complete(instance, group=group, hook=hook, token=token)
        )

    async def termination_hooks(self, instance: str) -> tuple[str, Sequence[str]]:
        """Return the group of an instance and its termination hooks."""
        return await self.faults.call(
            "DescribeAutoScalingInstances", lambda: self.auto_scaling.termination_hooks(instance)
        )

    async def heartbeat_timeout(self, *, group: str, hook: str) -> timedelta | None:
        return await self.faults.call(
            "DescribeLifecycleHooks", lambda: self.auto_scaling.heartbeat_timeout(group=group, hook=hook)
        )

    def _close_event(self, instance: str, event: str, prefix: str, *, silent: bool) -> None:
        current = self.ec2_instances.by_id[instance].events[event]
        self.ec2_instances.by_id[instance].events[event] = current | {"Description": prefix + current["Description"]}
        self._send_health_event(instance, event, "closed", silent=silent)

    def _send_health_event(self, instance: str, event: str, status: str, *, silent: bool) -> None:
        document = self.ec2_instances.by_id[instance].events[event]
        detail = _health_event_detail(instance, document, status=status, at=self.clock.now())
        self._send_event("aws.health", "AWS Health Event", detail, silent=silent)

    def _send_event(self, source: str, detail_type: str, detail: dict[str, Any], *, silent: bool = False) -> None:
        if not silent:
            event_id = f"00000000-0000-4000-9000-{next(self._event_numbers):012}"
            self.queue.send(_eventbridge_event(source, detail_type, detail, event_id=event_id, at=self.clock.now()))

    def _on_instance_released(self, action: LifecycleAction) -> None:
        if action.transition == "TERMINATING" and action.instance in self.ec2_instances.by_id:
            self.ec2_instances.by_id[action.instance].state = "terminated"


# Messages that EventBridge puts on the queue


def _eventbridge_event(source: str, detail_type: str, detail: dict[str, Any], *, event_id: str, at: datetime) -> str:
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


def _health_event_detail(instance: str, event: dict[str, Any], *, status: str, at: datetime) -> dict[str, Any]:
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
