"""The AWS event source: polls EC2 for all nodes every few minutes, and reads the queue if there is one.

`reschedule` moves a scheduled event of EC2 to another time. EC2's rules are checked here first, so that a refusal has a
clear message.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceNotice, NoticeCondition
from haulout.api.objects import Node
from haulout.core.backoff import Backoff
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
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.quarantine import Quarantine
from haulout.providers.retry import Retrier

log = logging.getLogger(__name__)

_BACKOFF = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=5), jitter=0.3)

# The rules of ModifyInstanceEventStartTime: only events with a NotBeforeDeadline can be moved, to a time at least an
# hour ahead, and not within the last minutes before they begin.
_MIN_TIME_AHEAD = timedelta(minutes=60)
_FROZEN_BEFORE_START = timedelta(minutes=5)
_RETRYABLE_CODES = ("ExpiredToken", "RequestExpired", "AuthFailure", "UnauthorizedOperation", "SignatureDoesNotMatch")


class AwsEventSource:
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
        self.quarantine = Quarantine(SOURCE, clock)
        self._client = client
        self._clock = clock
        self._ec2 = ec2
        self._nodes = nodes
        self._poll_interval = settings.poll_interval
        self._drains_for_network_maintenance = settings.drains_for_network_maintenance
        self._retrier = Retrier(clock, client.random, is_retryable=is_retryable)
        self._node_index = NodeIndex()
        self._status_poller = InstanceStatusPoller(
            ec2, clock=clock, retrier=self._retrier, node_index=self._node_index, quarantine=self.quarantine
        )
        timings = LifecycleTimings(
            heartbeat=settings.heartbeat,
            heartbeat_until=settings.heartbeat_until,
            complete_after=settings.complete_after,
        )
        self._identities = NetworkIdentities(ec2, node_index=self._node_index, retrier=self._retrier)
        self._lifecycle_actions = LifecycleActions(
            auto_scaling,
            client=client,
            retrier=self._retrier,
            node_index=self._node_index,
            identities=self._identities,
            timings=timings,
        )
        self.sqs_reader = sqs and SqsReader(
            sqs,
            client=client,
            node_index=self._node_index,
            status_poller=self._status_poller,
            lifecycle_actions=self._lifecycle_actions,
            tags=InstanceTags(ec2, tag=settings.managed_tag, clock=clock, retrier=self._retrier),
            identities=self._identities,
            quarantine=self.quarantine,
            visibility_timeout=settings.visibility_timeout,
        )
        self._termination_hooks = TerminationHooks(
            auto_scaling, client=client, retrier=self._retrier, node_index=self._node_index
        )
        self._problems: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The value of `spec.source` in its notices."""
        return SOURCE

    @property
    def messages_processed(self) -> int:
        """The number of queue messages that became notices."""
        return self.sqs_reader.messages_processed if self.sqs_reader else 0

    def time_since_last_answer(self) -> timedelta | None:
        """Return the time since AWS's last response."""
        ages = self._retrier.last_answer.age(), self.sqs_reader.last_answer.age() if self.sqs_reader else None
        return min((age for age in ages if age is not None), default=None)

    @property
    def is_up(self) -> bool:
        """Whether EC2, Auto Scaling and the queue respond."""
        return not self._all_problems()

    def problems(self) -> Sequence[str]:
        return (*self._all_problems(), *self.quarantine.problems())

    def _all_problems(self) -> list[str]:
        queue = self.sqs_reader.problem if self.sqs_reader else ""
        return [
            problem
            for problem in (*self._problems, queue, self._lifecycle_actions.problem, self._termination_hooks.problem)
            if problem
        ]

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
                group.create_task(self._poll_forever(writer))
                group.create_task(self._lifecycle_actions.run(writer))
                group.create_task(self._termination_hooks.run(writer))
                if self.sqs_reader:
                    group.create_task(self.sqs_reader.run(writer))

    async def reschedule(self, notice: MaintenanceNotice, to: datetime) -> None:
        """Move a scheduled event to another start; return once EC2 has agreed.

        Raise `RescheduleRefused` if EC2 refuses, and another `ExternalError` if it does not answer.
        """
        await reschedule(self._ec2, notice, to, now=self._clock.now(), retrier=self._retrier)

    async def _list_notices(self, writer: AwsNoticeWriter) -> None:
        """List the existing notices, and retry until that succeeds: without them duplicates would be created."""
        failures = 0
        while True:
            try:
                await writer.refresh()
            except KubeError as error:
                failures += 1
                self._report_problems(f"MaintenanceNotices cannot be read, retrying: {error}")
                await self._clock.sleep(_BACKOFF.delay(failures, self._client.random))
            else:
                self._problems = ()
                return

    async def _poll_forever(self, writer: AwsNoticeWriter) -> None:
        failures = 0
        while True:
            problems = await self._poll_once(writer)
            failures = failures + 1 if problems else 0
            if problems:
                self._report_problems(*problems)
            else:
                self._problems = ()
            pause = _BACKOFF.delay(failures, self._client.random) if failures else self._poll_interval
            await self._clock.sleep(min(pause, self._poll_interval))

    async def _poll_once(self, writer: AwsNoticeWriter) -> Sequence[str]:
        try:
            await writer.refresh()
            await writer.set_node_names()
            instances = {*self._node_index.instances(), *(instance for instance, _ in writer.open_notices())}
            problems = [*await self._status_poller.reconcile(writer, instances), *await self._write_identities(writer)]
            return [f"EC2 does not answer, retrying: {problem}" for problem in problems]
        except KubeError as error:
            return [f"MaintenanceNotices cannot be written, retrying: {error}"]

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

    def _report_problems(self, *problems: str) -> None:
        self._problems = [f"aws: {problem}" for problem in dict.fromkeys(problems)]
        for line in self._problems:
            log.warning("%s", line)


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


async def reschedule(ec2: Ec2, notice: MaintenanceNotice, to: datetime, *, now: datetime, retrier: Retrier) -> None:
    """Return once EC2 has agreed; raise `RescheduleRefused` if it refuses, `CloudError` if it does not answer."""
    if notice.spec.start == to:
        return
    reason = refusal_reason(notice, to, now=now)
    instance = parse_instance_id(notice.spec.provider_id)
    if reason or instance is None:
        raise RescheduleRefused(f"{notice.name}: {reason or f'{notice.spec.provider_id} is not an EC2 instance'}")
    event = notice.metadata.annotations[EventType.SCHEDULED_EVENT]
    try:
        await retrier.call(lambda: ec2.move_event(instance, event, to=to), doing=f"moving {event}")
    except CloudError as error:
        if is_retryable(error) or error.code in _RETRYABLE_CODES:
            raise
        raise RescheduleRefused(f"{notice.name}: {explain_error(error)}") from error
