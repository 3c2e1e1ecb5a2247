"""The instance metadata service as an event source, for `haulout agent --cloud aws`.

    source = ImdsEventSource(http_fetch(address), node="n1", clock=clock, random=random)

It polls every two seconds, as aws-node-termination-handler does: a spot interruption is announced two minutes ahead.
Events are matched with the notice that the operator created from the queue or EC2, if there is one (`correlation`).

Each document becomes the same events that the queue or EC2 would produce, with the annotation `SHOWN_BY_IMDS`. An agent
ends only notices whose event its instance was shown, since EC2 and the queue may know events that this service does not
show yet. An event that was shown is over only if it was missing from all responses for some seconds. An error never
ends a notice. All state is in the notices: after a restart the source reads those of its node.

This module runs on every node: it must not import boto3, aiohttp or anything else that is large.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Protocol

import msgspec

from haulout.api.maintenancenotice import MaintenanceKind, MaintenanceNotice, NoticeStage, is_finished
from haulout.api.notice_reports import MaintenancePlan, NoticeReport
from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.core.retry import Retry
from haulout.errors import CloudError, KubeError
from haulout.providers.aws.correlation import SPOT_GRACE_PERIOD, end_stage, has_event_type
from haulout.providers.aws.imds import HISTORY, REBALANCE, SCHEDULED, SPOT, TARGET_STATE, Ec2InstanceMetadata
from haulout.providers.aws.instance_events import (
    SHOWN_BY_IMDS,
    SOURCE,
    EventType,
    InstanceEvent,
    UnreadableEvent,
    new_plan,
    parse_instant,
)
from haulout.providers.aws.instance_status import parse_status
from haulout.providers.aws.notice_writer import AwsNoticeWriter
from haulout.providers.event_source import AgentEventSource
from haulout.providers.http_fetch import DECODE_ERRORS, Fetch
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.poller import Poller

log = logging.getLogger(__name__)

PATHS: Mapping[EventType, str] = {
    EventType.SPOT: SPOT,
    EventType.TARGET_LIFECYCLE_STATE: TARGET_STATE,
    EventType.SCHEDULED_EVENT: SCHEDULED,
    EventType.REBALANCE: REBALANCE,
}
_POLL_INTERVAL = timedelta(seconds=2)
_ENDED_AFTER = timedelta(seconds=10)
_RELIST_AFTER = timedelta(minutes=5)  # another client may have changed or deleted a notice
_MAX_RETRY_AFTER = timedelta(minutes=1)
_BACKOFF = Backoff(first=_POLL_INTERVAL, limit=timedelta(seconds=30), jitter=0.5)

_IMDS_ANNOTATIONS = {SHOWN_BY_IMDS: "shown"}
_TERMINATED_STATES = ("Terminated", "Warmed:Terminated")
_END_STAGES = {"completed": NoticeStage.ENDED, "canceled": NoticeStage.CANCELLED, "cancelled": NoticeStage.CANCELLED}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImdsEvents:
    """The events in a document, and what could not be parsed."""

    events: tuple[InstanceEvent, ...] = ()
    unreadable: tuple[str, ...] = ()


class ParseImds(Protocol):
    """Parses a document of the metadata service."""

    def __call__(self, body: bytes, *, instance: str, at: datetime) -> ImdsEvents:
        """Return its events as of `at`; raise `UnreadableEvent` if it is invalid as a whole."""
        ...


def parse_spot(body: bytes, *, instance: str, at: datetime) -> ImdsEvents:
    """Parse a spot interruption; none if it is overdue by `SPOT_GRACE_PERIOD`. Raise `UnreadableEvent`."""
    try:
        found = msgspec.json.decode(body, type=_Spot)
    except DECODE_ERRORS as error:
        raise UnreadableEvent(f"expected a spot instance action: {error}") from None
    start = parse_instant(found.time)
    if not found.action or start is None:
        raise UnreadableEvent(f"expected a spot instance action with an action and a time, found {body!r:.100}")
    if at >= start + SPOT_GRACE_PERIOD:
        return ImdsEvents()
    kind = MaintenanceKind.TERMINATE if found.action == "terminate" else MaintenanceKind.STOP
    description = "EC2 reclaims the spot instance"
    plan = new_plan(kind, reason=f"spot-{found.action}", description=description, start=start)
    return _single_event(EventType.SPOT, found.time, instance=instance, at=at, plan=plan)


def parse_rebalance(body: bytes, *, instance: str, at: datetime) -> ImdsEvents:
    """Parse a rebalance recommendation; raise `UnreadableEvent`."""
    try:
        found = msgspec.json.decode(body, type=_Rebalance)
    except DECODE_ERRORS as error:
        raise UnreadableEvent(f"expected a rebalance recommendation: {error}") from None
    if parse_instant(found.notice_time) is None:
        raise UnreadableEvent(f"expected a rebalance recommendation with a noticeTime, found {body!r:.100}")
    plan = new_plan(
        MaintenanceKind.TERMINATE,
        reason="rebalance-recommendation",
        description="the spot instance is likely to be reclaimed soon",
    )
    return _single_event(EventType.REBALANCE, found.notice_time, instance=instance, at=at, plan=plan)


def parse_target_state(body: bytes, *, instance: str, at: datetime) -> ImdsEvents:
    """Return a termination by Auto Scaling, if the target lifecycle state is one of termination."""
    state = body.decode("utf-8", "replace").strip()
    if state not in _TERMINATED_STATES:
        return ImdsEvents()
    plan = new_plan(MaintenanceKind.TERMINATE, reason="autoscaling", description="Auto Scaling terminates the instance")
    return _single_event(EventType.TARGET_LIFECYCLE_STATE, state, instance=instance, at=at, plan=plan)


def parse_events(body: bytes, *, instance: str, at: datetime) -> ImdsEvents:
    """Parse a list of scheduled events; raise `UnreadableEvent` if it is none."""
    try:
        found = msgspec.json.decode(body)
    except DECODE_ERRORS as error:
        raise UnreadableEvent(f"expected a list of scheduled events: {error}") from None
    if not isinstance(found, list):
        raise UnreadableEvent(f"expected a list of scheduled events, found {body!r:.100}")
    states = {str(item.get("EventId")): str(item.get("State") or "") for item in found if isinstance(item, Mapping)}
    status = parse_status({"InstanceId": instance, "Events": [_as_ec2_event(item) for item in found]}, at=at)
    if status is None:
        raise UnreadableEvent(f"expected an instance ID, found {instance!r:.100}")
    events = tuple(_with_state(item, states.get(item.event_id, "")) for item in status.events)
    return ImdsEvents(events=events, unreadable=status.unreadable)


_PARSERS: Mapping[EventType, ParseImds] = {
    EventType.SPOT: parse_spot,
    EventType.REBALANCE: parse_rebalance,
    EventType.TARGET_LIFECYCLE_STATE: parse_target_state,
    EventType.SCHEDULED_EVENT: parse_events,
}


class ImdsEventSource(AgentEventSource):
    """Polls the maintenance of the instance of a node; `event_types` are the types to poll."""

    def __init__(
        self,
        fetch: Fetch,
        *,
        node: str,
        clock: Clock,
        random: Random,
        event_types: Sequence[EventType] = tuple(PATHS),
        drains_for_network_maintenance: bool = False,
    ) -> None:
        super().__init__(SOURCE, clock, node=node)
        self._metadata = Ec2InstanceMetadata(fetch, clock=clock)
        self._event_types = event_types
        self._drains_for_network_maintenance = drains_for_network_maintenance
        self._clock = clock
        self._instance = ""
        self._writer: AwsNoticeWriter | None = None
        self._listed_at: float | None = None  # monotonic time of the last list; None: not listed yet
        self._names: frozenset[str] = frozenset()  # names of the notices in the last list
        self._reported: dict[
            tuple[EventType, str], tuple[NoticeStage, MaintenancePlan | None]
        ] = {}  # the state that was written last, by event type and ID
        self._missing_since: dict[str, float] = {}  # by notice name: monotonic time since when its event is missing
        self._poller = Poller(
            Retry(clock, random, _BACKOFF, max_retry_after=_MAX_RETRY_AFTER),
            self._current_problems,
            failure="the metadata service does not answer",
            interval=lambda: _POLL_INTERVAL,
        )

    async def run(self, notice_writer: NoticeWriter) -> None:
        """Write the instance's events as notices, until cancelled."""
        await self._poller.run(lambda: self.poll(notice_writer))

    async def poll(self, notice_writer: NoticeWriter) -> None:
        """Poll once and write the notices; raise `CloudError` or `KubeError`."""
        if not self._instance:
            self._instance = await self._metadata.instance()
            log.info("aws: the agent runs on instance %s", self._instance, extra={"node": self._node})
        writer = await self._refreshed_writer(notice_writer)
        failure: CloudError | KubeError | None = None
        for event_type in self._event_types:
            try:
                await self._poll_event_type(writer, event_type)
            except (CloudError, KubeError) as error:
                if isinstance(error, CloudError) and not error.status:
                    raise  # no response: the other types would get none either
                failure = error
        if failure is not None:
            raise failure

    async def _poll_event_type(self, writer: AwsNoticeWriter, event_type: EventType) -> None:
        answer = await self._read(PATHS[event_type], _PARSERS[event_type])
        self._last_answer.record()
        await self._write_changed(writer, answer.events)
        if not answer.unreadable:  # otherwise the event that seems to be missing may be the one that cannot be parsed
            await self._end_missing(writer, event_type, {event.event_id for event in answer.events})

    # Read events

    async def _read(self, path: str, parse: ParseImds) -> ImdsEvents:
        """Return the events at a path; quarantine what cannot be parsed."""
        body = await self._metadata.get(path)
        if body is None:
            return ImdsEvents()
        try:
            answer = parse(body, instance=self._instance, at=self._clock.now())
        except UnreadableEvent as problem:
            answer = ImdsEvents(unreadable=(str(problem),))
        for why in answer.unreadable:
            self.quarantine.add(where=path, why=why, what=body.decode("utf-8", "replace"))
        return answer

    # Write notices

    async def _refreshed_writer(self, notice_writer: NoticeWriter) -> AwsNoticeWriter:
        if self._writer is None:
            self._writer = AwsNoticeWriter(
                notice_writer,
                on_change=self._count_written,
                quarantine=self.quarantine,
                node_of=lambda _: self._node,
                node=self._node,
                drains_for_network=self._drains_for_network_maintenance,
            )
        now = self._clock.monotonic()
        if self._listed_at is None or now - self._listed_at > _RELIST_AFTER.total_seconds():
            await self._writer.refresh()
            names = frozenset(notice.name for notice in self._writer.notices_of(self._instance))
            if self._names - names:
                self._reported.clear()  # a user may have deleted a notice whose event is still planned
            self._listed_at, self._names = now, names
        return self._writer

    async def _write_changed(self, writer: AwsNoticeWriter, events: Sequence[InstanceEvent]) -> None:
        """Write events that are new or have changed since the last poll.

        Unchanged events are not written again: meanwhile EC2 may have told the operator a new start, which this service
        shows some minutes later.
        """
        for event in events:
            key, state = (event.event_type, event.event_id), (event.stage, event.plan)
            if self._reported.get(key) != state:
                await writer.write([event])
                self._reported[key] = state
                self._names |= {notice.name for notice in writer.notices_of(self._instance)}

    async def _end_missing(self, writer: AwsNoticeWriter, event_type: EventType, shown_ids: set[str]) -> None:
        """End the notices whose events have been missing for `_ENDED_AFTER`."""
        now = self._clock.monotonic()
        for notice in self._open_notices(writer, event_type):
            if (event_type is not EventType.SCHEDULED_EVENT and shown_ids) or notice.metadata.annotations[
                event_type
            ] in shown_ids:
                self._missing_since.pop(notice.name, None)
            elif now - self._missing_since.setdefault(notice.name, now) >= _ENDED_AFTER.total_seconds():
                await self._end(writer, event_type, notice)

    def _open_notices(self, writer: AwsNoticeWriter, event_type: EventType) -> Iterator[MaintenanceNotice]:
        for notice in writer.notices_of(self._instance):
            if (
                has_event_type(notice, event_type)
                and SHOWN_BY_IMDS in notice.metadata.annotations
                and not is_finished(notice)
            ):
                yield notice

    async def _end(self, writer: AwsNoticeWriter, event_type: EventType, notice: MaintenanceNotice) -> None:
        at = self._clock.now()
        stage = (
            await self._event_end_stage(notice, at)
            if event_type is EventType.SCHEDULED_EVENT
            else _end_stage(event_type, notice, at)
        )
        if stage is None:
            return
        log.info("aws: the metadata service no longer lists %s: %s", notice.name, stage, extra={"node": self._node})
        await writer.write_report(
            NoticeReport(source=SOURCE, notice_id=notice.spec.notice_id, at=at, provider_id=self._instance, stage=stage)
        )
        self._reported = {key: state for key, state in self._reported.items() if key[0] is not event_type}
        self._missing_since.pop(notice.name, None)

    async def _event_end_stage(self, notice: MaintenanceNotice, at: datetime) -> NoticeStage:
        """Return how a scheduled event ended: from the event history, or else from its start."""
        found = await self._read(HISTORY, parse_events)
        event_id = notice.metadata.annotations[EventType.SCHEDULED_EVENT]
        end_stages = [
            event.stage
            for event in found.events
            if event.event_id == event_id and event.stage in (NoticeStage.ENDED, NoticeStage.CANCELLED)
        ]
        return end_stages[0] if end_stages else end_stage(notice.spec.start, at)

    def _count_written(self) -> None:
        self._messages_processed += 1


def _end_stage(event_type: EventType, notice: MaintenanceNotice, at: datetime) -> NoticeStage | None:
    """Return how an event ended that is no longer shown; None if it is too early to tell.

    A spot instance is often interrupted some time after the announced moment, so its notice ends `SPOT_GRACE_PERIOD`
    later.
    """
    start = notice.spec.start
    if event_type is EventType.SPOT and start is not None and at >= start:
        return NoticeStage.ENDED if at >= start + SPOT_GRACE_PERIOD else None
    return NoticeStage.ENDED if notice.spec.stage == NoticeStage.STARTED else NoticeStage.CANCELLED


class _Spot(msgspec.Struct, frozen=True):
    action: str = ""
    time: str = ""


class _Rebalance(msgspec.Struct, frozen=True, rename="camel"):
    notice_time: str = ""


def _single_event(
    event_type: EventType, event_id: str, *, instance: str, at: datetime, plan: MaintenancePlan
) -> ImdsEvents:
    event = InstanceEvent(
        event_type=event_type,
        event_id=event_id,
        instance=instance,
        at=at,
        plan=plan,
        annotations=_IMDS_ANNOTATIONS,
    )
    return ImdsEvents(events=(event,))


def _as_ec2_event(event: object) -> object:
    return {**event, "InstanceEventId": event.get("EventId")} if isinstance(event, Mapping) else event


def _with_state(event: InstanceEvent, state: str) -> InstanceEvent:
    return replace(event, stage=_END_STAGES.get(state.lower(), event.stage), annotations=_IMDS_ANNOTATIONS)
