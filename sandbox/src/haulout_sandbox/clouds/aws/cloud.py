"""One account of AWS in one region, with a queue that hears of all maintenance: what happens, and calls it answers."""

import hashlib
import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from haulout.core.clock import Clock
from haulout_sandbox.clouds.aws.groups import Action, Groups
from haulout_sandbox.clouds.aws.instances import Document, Instances
from haulout_sandbox.clouds.aws.metadata import Metadata, MetadataServices
from haulout_sandbox.clouds.aws.queue import Queue
from haulout_sandbox.clouds.aws.telling import health, told
from haulout_sandbox.clouds.faults import Faults

_HOUR = timedelta(hours=1)
_SPOT_NOTICE = timedelta(minutes=2)


class AwsCloud:
    """A cloud; what happens is told on the queue, unless it is `silent`. Clouds of other realms have other names."""

    def __init__(self, clock: Clock, *, realm: str = "") -> None:
        self.clock = clock
        self.faults = Faults(clock)
        digits = hashlib.sha256(realm.encode()).hexdigest()[:8] if realm else "0" * 8
        self.machines = Instances(clock, digits)
        self.queue = Queue(clock)
        self.groups = Groups(clock, goes=self._let_go)
        self.services = MetadataServices(clock, self.machines, self.faults)
        self._numbers = itertools.count(1)

    # What happens

    def launch(self, *, tags: dict[str, str] | None = None, called: str = "") -> str:
        """Return a new instance that runs; `called`: under the name that somebody else has for it."""
        return self.machines.launch(tags or {}, called=called)

    def schedule(
        self,
        instance: str,
        code: str = "system-reboot",
        *,
        start: datetime,
        last: timedelta | None = 2 * _HOUR,
        deadline: datetime | None = None,
        description: str = "The host needs maintenance",
        silent: bool = False,
    ) -> str:
        """Plan an event; return its name."""
        event: Document = {"Code": code, "Description": description, "NotBefore": start}
        event |= {} if last is None else {"NotAfter": start + last}
        event |= {} if deadline is None else {"NotBeforeDeadline": deadline}
        called = self.machines.schedule(instance, event)
        self._tell_health(instance, called, "upcoming", silent=silent)
        return called

    def reschedule(self, instance: str, event: str, *, start: datetime, silent: bool = False) -> None:
        """Have AWS itself move an event."""
        found = self.machines.by_name[instance].events[event]
        by = start - found["NotBefore"]
        moved = {key: found[key] + by for key in ("NotBefore", "NotAfter") if key in found}
        self.machines.by_name[instance].events[event] = found | moved
        self._tell_health(instance, event, "upcoming", silent=silent)

    def cancel(self, instance: str, event: str, *, silent: bool = False) -> None:
        """Cancel an event."""
        self._close(instance, event, "[Canceled] ", silent=silent)

    def finish(self, instance: str, event: str, *, silent: bool = False) -> None:
        """Say that an event is over."""
        self._close(instance, event, "[Completed] ", silent=silent)

    def forget(self, instance: str, event: str) -> None:
        """Have EC2 list an event no more."""
        self.machines.by_name[instance].events.pop(event, None)

    def change(self, instance: str, state: str, *, silent: bool = False) -> None:
        """Have an instance be stopped, say, or run again."""
        self.machines.by_name[instance].state = state
        self._tell(
            "aws.ec2",
            "EC2 Instance State-change Notification",
            {"instance-id": instance, "state": state},
            silent=silent,
        )

    def drop(self, instance: str) -> None:
        """Have EC2 know nothing of an instance any more."""
        del self.machines.by_name[instance]

    def interrupt(self, instance: str, action: str = "terminate", *, silent: bool = False) -> None:
        """Tell that a spot instance is taken back."""
        at = self.clock.now() + _SPOT_NOTICE
        if instance in self.machines.by_name:  # others share the queue
            self.machines.by_name[instance].spot = {"action": action, "time": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
        detail = {"instance-id": instance, "instance-action": action}
        self._tell("aws.ec2", "EC2 Spot Instance Interruption Warning", detail, silent=silent)

    def recommend(self, instance: str, *, silent: bool = False) -> None:
        """Tell that a spot instance is likely to be taken back."""
        if instance in self.machines.by_name:
            self.machines.by_name[instance].rebalance = {"noticeTime": f"{self.clock.now():%Y-%m-%dT%H:%M:%SZ}"}
        detail = {"instance-id": instance}
        self._tell("aws.ec2", "EC2 Instance Rebalance Recommendation", detail, silent=silent)

    def scale(
        self,
        instance: str,
        *,
        group: str = "workers",
        hook: str = "drain",
        launch: bool = False,
        silent: bool = False,
    ) -> Action:
        """Have Auto Scaling take an instance out of service, or into it, when we agree."""
        transition = "LAUNCHING" if launch else "TERMINATING"
        if instance in self.machines.by_name:
            self.machines.by_name[instance].target = "InService" if launch else "Terminated"
        action = self.groups.begin(instance, group=group, hook=hook, transition=transition)
        detail = {
            "LifecycleActionToken": action.token,
            "AutoScalingGroupName": group,
            "LifecycleHookName": hook,
            "EC2InstanceId": instance,
            "LifecycleTransition": f"autoscaling:EC2_INSTANCE_{transition}",
        }
        self._tell(
            "aws.autoscaling",
            f"EC2 Instance-{'launch' if launch else 'terminate'} Lifecycle Action",
            detail,
            silent=silent,
        )
        return action

    def metadata(self, instance: str) -> Metadata:
        """Return how an instance asks its metadata service."""
        return Metadata(self.services, instance)

    # What it answers

    async def statuses(self, instances: Sequence[str], *, page: str = "") -> tuple[Sequence[Document], str]:
        """Return how instances are."""
        return await self.faults.call("DescribeInstanceStatus", lambda: self.machines.statuses(instances, page=page))

    async def instances(self, instances: Sequence[str]) -> Sequence[Document]:
        """Return instances, with their tags."""
        return await self.faults.call("DescribeInstances", lambda: self.machines.describe(instances))

    async def move_event(self, instance: str, event: str, *, to: datetime) -> Document:
        """Have an event begin at another time."""
        return await self.faults.call(
            "ModifyInstanceEventStartTime", lambda: self.machines.move(instance, event, to=to)
        )

    async def receive(self, *, most: int, wait: timedelta, hidden: timedelta) -> Sequence[Document]:
        """Wait for messages and return some."""
        await self.queue.wait(wait)
        return await self.faults.call("ReceiveMessage", lambda: self.queue.receive(most=most, hidden=hidden))

    async def hide(self, receipt: str, *, hidden: timedelta) -> None:
        """Hide a message for some time."""
        await self.faults.call("ChangeMessageVisibility", lambda: self.queue.hide(receipt, hidden=hidden))

    async def delete(self, receipt: str) -> None:
        """Delete a message."""
        await self.faults.call("DeleteMessage", lambda: self.queue.delete(receipt))

    async def heartbeat(self, instance: str, *, group: str, hook: str, token: str) -> None:
        """Have Auto Scaling wait longer."""
        await self.faults.call(
            "RecordLifecycleActionHeartbeat",
            lambda: self.groups.heartbeat(instance, group=group, hook=hook, token=token),
        )

    async def complete(self, instance: str, *, group: str, hook: str, token: str) -> None:
        """Have Auto Scaling go on."""
        await self.faults.call(
            "CompleteLifecycleAction", lambda: self.groups.complete(instance, group=group, hook=hook, token=token)
        )

    async def termination_hooks(self, instance: str) -> tuple[str, Sequence[str]]:
        """Return the group of an instance and the hooks that its termination waits for."""
        return await self.faults.call("DescribeAutoScalingInstances", lambda: self.groups.termination_hooks(instance))

    async def patience(self, *, group: str, hook: str) -> timedelta | None:
        """Return how long Auto Scaling waits for a heartbeat."""
        return await self.faults.call("DescribeLifecycleHooks", lambda: self.groups.patience(group=group, hook=hook))

    def _close(self, instance: str, event: str, prefix: str, *, silent: bool) -> None:
        found = self.machines.by_name[instance].events[event]
        self.machines.by_name[instance].events[event] = found | {"Description": prefix + found["Description"]}
        self._tell_health(instance, event, "closed", silent=silent)

    def _tell_health(self, instance: str, event: str, status: str, *, silent: bool) -> None:
        document = self.machines.by_name[instance].events[event]
        detail = health(instance, document, status=status, at=self.clock.now())
        self._tell("aws.health", "AWS Health Event", detail, silent=silent)

    def _tell(self, source: str, detail_type: str, detail: dict[str, Any], *, silent: bool = False) -> None:
        if not silent:
            called = f"00000000-0000-4000-9000-{next(self._numbers):012}"
            self.queue.send(told(source, detail_type, detail, called=called, at=self.clock.now()))

    def _let_go(self, action: Action) -> None:
        if action.transition == "TERMINATING" and action.instance in self.machines.by_name:
            self.machines.by_name[action.instance].state = "terminated"
