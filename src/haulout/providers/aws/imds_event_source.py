"""What EC2 tells an instance about its own maintenance, as a source of notices: for `haulout agent --cloud aws`.

    source = AwsMetadataSource(over_http(address), node="n1", clock=clock, random=random)

It asks every two seconds, as aws-node-termination-handler does: a spot instance has two minutes. What it is told meets
the notice that the operator made of the queue or of EC2, if there is one (`correlation`).

What was shown and is not shown any more is over only if it was missing from all answers for some seconds. An error says
nothing. Nothing that matters is kept here: after a restart it reads the notices of its node, and goes on from there.

No boto3 and no aiohttp here, nor anything else that is big: this runs on each node.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random

from haulout.api.maintenancenotice import MaintenanceNotice, NoticeStage
from haulout.api.notice_reports import MaintenancePlan, NoticeReport
from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import ApiError, CloudError, KubeError
from haulout.providers.aws.correlation import SPOT_GRACE_PERIOD, end_stage, has_event_type, is_finished
from haulout.providers.aws.imds import HISTORY, REBALANCE, SCHEDULED, SPOT, TARGET_STATE, Ec2InstanceMetadata
from haulout.providers.aws.imds_events import (
    ImdsEvents,
    ParseImds,
    parse_events,
    parse_rebalance,
    parse_spot,
    parse_target_state,
)
from haulout.providers.aws.instance_events import SHOWN_BY_IMDS, SOURCE, EventType, InstanceEvent, UnreadableEvent
from haulout.providers.aws.notice_writer import AwsNoticeWriter
from haulout.providers.http_fetch import Fetch
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.quarantine import Quarantine
from haulout.providers.retry import LastAnswer

log = logging.getLogger(__name__)

PATHS: Mapping[EventType, str] = {
    EventType.SPOT: SPOT,
    EventType.TARGET_LIFECYCLE_STATE: TARGET_STATE,
    EventType.SCHEDULED_EVENT: SCHEDULED,
    EventType.REBALANCE: REBALANCE,
}
_POLL_INTERVAL = timedelta(seconds=2)
_ENDED_AFTER = timedelta(seconds=10)
_RELIST_AFTER = timedelta(minutes=5)  # notices: somebody else may have changed or deleted one
_MAX_PAUSE = timedelta(minutes=1)
_BACKOFF = Backoff(first=_POLL_INTERVAL, limit=timedelta(seconds=30), jitter=0.5)

_PARSERS: Mapping[EventType, ParseImds] = {
    EventType.SPOT: parse_spot,
    EventType.REBALANCE: parse_rebalance,
    EventType.TARGET_LIFECYCLE_STATE: parse_target_state,
    EventType.SCHEDULED_EVENT: parse_events,
}


class ImdsEventSource:
    """Maintenance of the instance that a node runs on; `event_types` are what it asks for."""

    name = SOURCE

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
        self.quarantine = Quarantine(SOURCE, clock)
        self.messages_processed = 0
        self._metadata = Ec2InstanceMetadata(fetch, clock=clock)
        self._node = node
        self._event_types = event_types
        self._drains_for_network_maintenance = drains_for_network_maintenance
        self._clock = clock
        self._random = random
        self._last_answer = LastAnswer(clock)
        self._instance = ""
        self._writer: AwsNoticeWriter | None = None
        self._listed_at: float | None = None  # the notices; None: not yet
        self._names: frozenset[str] = frozenset()  # of the notices that there were then
        self._reported: dict[
            tuple[EventType, str], tuple[NoticeStage, MaintenancePlan | None]
        ] = {}  # what notices say already
        self._missing_since: dict[str, float] = {}  # by name of the notice: since when it is not shown
        self._problem = ""

    @property
    def is_up(self) -> bool:
        """Tell whether it hears what EC2 says."""
        return not self._problem and self._last_answer.age() is not None

    def problems(self) -> Sequence[str]:
        """Return what keeps it from its work, and what makes no sense."""
        return (*([self._problem] if self._problem else ()), *self.quarantine.problems())

    def time_since_last_answer(self) -> timedelta | None:
        """Return how long ago the metadata service last answered."""
        return self._last_answer.age()

    async def run(self, notice_writer: NoticeWriter) -> None:
        """Report what EC2 says, until cancelled."""
        failures = 0
        while True:
            try:
                await self.poll(notice_writer)
            except (CloudError, KubeError) as error:
                failures += 1
                self._report_problem(error)
                retry_after = error.retry_after if isinstance(error, CloudError | ApiError) else None
                pause = max(_BACKOFF.delay(failures, self._random), retry_after or timedelta())
                await self._clock.sleep(min(pause, _MAX_PAUSE))
            else:
                if self._problem:
                    log.info("aws: all is well again", extra={"node": self._node})
                failures, self._problem = 0, ""
                await self._clock.sleep(_POLL_INTERVAL)

    async def poll(self, notice_writer: NoticeWriter) -> None:
        """Ask once, and have notices say the same; raises `CloudError` or `KubeError`."""
        if not self._instance:
            self._instance = await self._metadata.instance()
            log.info("aws: this is instance %s", self._instance, extra={"node": self._node})
        writer = await self._refreshed_writer(notice_writer)
        failure: CloudError | KubeError | None = None
        for event_type in self._event_types:
            try:
                await self._poll_event_type(writer, event_type)
            except (CloudError, KubeError) as error:
                if isinstance(error, CloudError) and not error.status:
                    raise  # the others would not be answered either
                failure = error
        if failure is not None:
            raise failure

    async def _poll_event_type(self, writer: AwsNoticeWriter, event_type: EventType) -> None:
        answer = await self._read(PATHS[event_type], _PARSERS[event_type])
        self._last_answer.record()
        await self._write_changed(writer, answer.events)
        if not answer.unreadable:  # otherwise it may be what cannot be read that seems to be missing
            await self._end_missing(writer, event_type, {event.event_id for event in answer.events})

    # What is shown

    async def _read(self, path: str, parse: ParseImds) -> ImdsEvents:
        """Return what the service shows, and put aside what makes no sense."""
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

    # What becomes of it

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
                self._reported.clear()  # somebody has deleted what may still be planned
            self._listed_at, self._names = now, names
        return self._writer

    async def _write_changed(self, writer: AwsNoticeWriter, events: Sequence[InstanceEvent]) -> None:
        """Have notices say what is shown for the first time, or is not as it was shown before.

        What is shown again is no news: EC2 may have told the operator of another start meanwhile, which this service
        shows some minutes later.
        """
        for event in events:
            key, state = (event.event_type, event.event_id), (event.stage, event.plan)
            if self._reported.get(key) != state:
                await writer.write([event])
                self._reported[key] = state
                self._names |= {notice.name for notice in writer.notices_of(self._instance)}

    async def _end_missing(self, writer: AwsNoticeWriter, event_type: EventType, shown_ids: set[str]) -> None:
        """End what was shown, and has not been for a while."""
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
        log.info("aws: %s is not shown any more: %s", notice.name, stage, extra={"node": self._node})
        await writer.write_report(
            NoticeReport(source=SOURCE, notice_id=notice.spec.notice_id, at=at, provider_id=self._instance, stage=stage)
        )
        self._reported = {key: state for key, state in self._reported.items() if key[0] is not event_type}
        self._missing_since.pop(notice.name, None)

    async def _event_end_stage(self, notice: MaintenanceNotice, at: datetime) -> NoticeStage:
        """Return how a scheduled event ended: as its history says, or else by its start."""
        found = await self._read(HISTORY, parse_events)
        event_id = notice.metadata.annotations[EventType.SCHEDULED_EVENT]
        end_stages = [
            event.stage
            for event in found.events
            if event.event_id == event_id and event.stage in (NoticeStage.ENDED, NoticeStage.CANCELLED)
        ]
        return end_stages[0] if end_stages else end_stage(notice.spec.start, at)

    def _count_written(self) -> None:
        self.messages_processed += 1

    def _report_problem(self, error: CloudError | KubeError) -> None:
        what = "the metadata service" if isinstance(error, CloudError) else "notices cannot be read or written"
        does = " does not answer" if isinstance(error, CloudError) else ""
        problem = f"aws: {what}{does}, which is tried again: {error}"
        if problem != self._problem:
            log.warning("%s", problem, extra={"node": self._node})
        self._problem = problem


def _end_stage(event_type: EventType, notice: MaintenanceNotice, at: datetime) -> NoticeStage | None:
    """Return how something ended that is shown no more; None if it is too early to tell.

    A spot instance is often taken back some time after the announced moment, so that a notice ends well after it.
    """
    start = notice.spec.start
    if event_type is EventType.SPOT and start is not None and at >= start:
        return NoticeStage.ENDED if at >= start + SPOT_GRACE_PERIOD else None
    return NoticeStage.ENDED if notice.spec.stage == NoticeStage.STARTED else NoticeStage.CANCELLED
