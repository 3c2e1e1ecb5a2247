"""The AWS event source: polls EC2 for all nodes every few minutes, and reads the queue if there is one.

`reschedule` moves a scheduled event of EC2 to another time. EC2's rules are checked here first, so that a refusal has a
clear message.
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceNotice, NoticeCondition
from haulout.api.objects import Node
from haulout.core.backoff import POLL_FAILED
from haulout.core.retry import Retry
from haulout.errors import CloudError, KubeError, RescheduleRefused
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.aws.api import AutoScaling, Ec2, Sqs, explain_error, is_retryable
from haulout.providers.aws.instance_events import SOURCE, EventType, parse_instance_id
from haulout.providers.aws.instance_status_poller import InstanceStatusPoller
from haulout.providers.aws.lifecycle_actions import LifecycleActions, LifecycleTimings, TerminationHooks
from haulout.providers.aws.node_index import InstanceTags, NetworkIdentities, NodeIndex, identity_report
from haulout.providers.aws.notice_writer import AwsNoticeWriter
from haulout.providers.aws.settings import AwsSettings
from haulout.providers.aws.sqs_reader import SqsReader
from haulout.providers.cloud_calls import CloudCaller
from haulout.providers.event_source import BaseEventSource
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.poller import Poller

# The rules of ModifyInstanceEventStartTime: only events with a NotBeforeDeadline can be moved, to a time at least an
# hour ahead, and not within the last minutes before they begin.
_MIN_TIME_AHEAD = timedelta(minutes=60)
_FROZEN_BEFORE_START = timedelta(minutes=5)
_RETRYABLE_CODES = ("ExpiredToken", "RequestExpired", "AuthFailure", "UnauthorizedOperation", "SignatureDoesNotMatch")


class AwsEventSource(BaseEventSource):
    """One account and region. Call `run` at most once; the caller runs the node informer."""

    def __init__(
        self,
        *,
        ec2: Ec2,
        auto_scaling: AutoScaling,
        sqs: Sqs | None,
        client: Client,
        nodes: Informer[Node],
        settings: AwsSettings,
    ) -> None:
        clock = client.clock
        super().__init__(SOURCE, clock)
        self._client = client
        self._clock = clock
        self._ec2 = ec2
        self._nodes = nodes
        self._drains_for_network_maintenance = settings.drains_for_network_maintenance
        self._caller = CloudCaller(clock, client.random, is_retryable=is_retryable, last_answer=self._last_answer)
        self._node_index = NodeIndex()
        self._status_poller = InstanceStatusPoller(
            ec2, clock=clock, caller=self._caller, node_index=self._node_index, quarantine=self.quarantine
        )
        timings = LifecycleTimings(
            heartbeat=settings.heartbeat,
            heartbeat_until=settings.heartbeat_until,
            complete_after=settings.complete_after,
        )
        self._identities = NetworkIdentities(ec2, node_index=self._node_index, caller=self._caller)
        self._lifecycle_actions = LifecycleActions(
            auto_scaling,
            client=client,
            caller=self._caller,
            node_index=self._node_index,
            identities=self._identities,
            timings=timings,
            problems=self._current_problems,
        )
        self.sqs_reader = sqs and SqsReader(
            sqs,
            client=client,
            node_index=self._node_index,
            status_poller=self._status_poller,
            lifecycle_actions=self._lifecycle_actions,
            tags=InstanceTags(ec2, tag=settings.managed_tag, clock=clock, caller=self._caller),
            identities=self._identities,
            quarantine=self.quarantine,
            problems=self._current_problems,
            last_answer=self._last_answer,
            visibility_timeout=settings.visibility_timeout,
        )
        self._termination_hooks = TerminationHooks(
            auto_scaling,
            client=client,
            caller=self._caller,
            node_index=self._node_index,
            problems=self._current_problems,
        )
        self._poller = Poller(
            Retry(clock, client.random, POLL_FAILED.up_to(settings.poll_interval)),
            self._current_problems,
            failure="EC2 does not answer",
            interval=lambda: settings.poll_interval,
        )

    @property
    def messages_processed(self) -> int:
        """The number of queue messages that became notices."""
        return self.sqs_reader.messages_processed if self.sqs_reader else 0

    async def run(self, notice_writer: NoticeWriter) -> None:
        """Write AWS's events as notices, until cancelled."""
        await self._nodes.wait_synced()
        with ExitStack() as subscriptions:  # the node informer outlives this source
            for on_node in (self._node_index.update, self._lifecycle_actions.on_node):
                subscriptions.callback(self._nodes.subscribe(on_node))
            writer = AwsNoticeWriter(
                notice_writer,
                on_change=self._lifecycle_actions.wake,
                quarantine=self.quarantine,
                node_of=self._node_index.node_of,
                drains_for_network=self._drains_for_network_maintenance,
            )
            await self._list_notices(writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._poller.run(lambda: self._poll_once(writer)))
                group.create_task(self._lifecycle_actions.run(writer))
                group.create_task(self._termination_hooks.run(writer))
                if self.sqs_reader:
                    group.create_task(self.sqs_reader.run(writer))

    async def reschedule(self, notice: MaintenanceNotice, to: datetime) -> None:
        """Move a scheduled event to another start; return once EC2 has agreed.

        Raise `RescheduleRefused` if EC2 refuses, and another `ExternalError` if it does not answer.
        """
        await reschedule(self._ec2, notice, to, now=self._clock.now(), caller=self._caller)

    async def _list_notices(self, writer: AwsNoticeWriter) -> None:
        """List the existing notices, and retry until that succeeds: without them duplicates would be created."""
        retry = Retry(self._clock, self._client.random, POLL_FAILED)
        while True:
            try:
                await writer.refresh()
            except KubeError as error:
                self._current_problems.set("list", f"MaintenanceNotices cannot be read or written, retrying: {error}")
                await retry.wait(error)
            else:
                self._current_problems.set("list")
                return

    async def _poll_once(self, writer: AwsNoticeWriter) -> Sequence[str]:
        await writer.refresh()
        await writer.set_node_names()
        instances = {*self._node_index.instances(), *(instance for instance, _ in writer.open_notices())}
        problems = [*await self._status_poller.reconcile(writer, instances), *await self._write_identities(writer)]
        return [f"EC2 does not answer, retrying: {problem}" for problem in problems]

    async def _write_identities(self, writer: AwsNoticeWriter) -> Sequence[str]:
        """Add the private DNS name and address to notices without a node; return the problems."""
        for instance, notice in list(writer.open_notices()):
            condition = notice.status.condition(NoticeCondition.NODE_FOUND)
            if notice.spec.machine_name or condition is None or condition.status == "True":
                continue
            try:
                identity = await self._identities.resolve(instance, notice)
            except CloudError as error:
                return [explain_error(error)]
            if identity.name or identity.address:
                await writer.write_report(identity_report(notice, identity, at=self._clock.now()))
        return []


def refusal_reason(notice: MaintenanceNotice, to: datetime, *, now: datetime) -> str:
    """Return why EC2 would not move the event to this time; empty if it would."""
    spec = notice.spec
    if EventType.SCHEDULED_EVENT not in notice.metadata.annotations:
        return "only scheduled events of EC2 can be moved, and this is not one"
    if spec.start is None or spec.deadline is None:
        return "EC2 gives no deadline for this event, so that it cannot be moved"
    if now >= spec.start - _FROZEN_BEFORE_START:
        return (
            f"it begins at {spec.start:%Y-%m-%d %H:%M} UTC, and EC2 moves no event in the "
            "last 5 minutes before it begins"
        )
    if to < now + _MIN_TIME_AHEAD:
        return "EC2 moves events only to times that are at least 60 minutes ahead"
    if to > spec.deadline:
        return f"EC2 does not move it beyond its deadline, {spec.deadline:%Y-%m-%d %H:%M} UTC"
    return ""


async def reschedule(ec2: Ec2, notice: MaintenanceNotice, to: datetime, *, now: datetime, caller: CloudCaller) -> None:
    """Return once EC2 has agreed; raise `RescheduleRefused` if it refuses, `CloudError` if it does not answer."""
    if notice.spec.start == to:
        return
    reason = refusal_reason(notice, to, now=now)
    instance = parse_instance_id(notice.spec.provider_id)
    if reason or instance is None:
        raise RescheduleRefused(f"{notice.name}: {reason or f'{notice.spec.provider_id} is not an EC2 instance'}")
    event = notice.metadata.annotations[EventType.SCHEDULED_EVENT]
    try:
        await caller.call(lambda: ec2.move_event(instance, event, to=to), doing=f"moving {event}")
    except CloudError as error:
        if is_retryable(error) or error.code in _RETRYABLE_CODES:
            raise
        raise RescheduleRefused(f"{notice.name}: {explain_error(error)}") from error
