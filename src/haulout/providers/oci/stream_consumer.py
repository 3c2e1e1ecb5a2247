"""Consume the stream: each event becomes a notice, and only then is its offset committed.

Failures of the stream (an expired cursor, a partition assigned to another consumer, a service that is busy or down) are
all handled alike: after a pause a new cursor is requested, which begins at the group's committed offset. Messages that
were read but not committed are received again, which is harmless: a notice records which messages it was made from.

A maintenance that is over does not begin again, unless a user sends its event again by hand: Compute does not know it
then. Such an event gets another notice (`correlation`).

While notices cannot be written, the consumer keeps what it has read and sends heartbeats, so that the partition stays
assigned to it. Reports that the API server rejects are quarantined, as are messages that cannot be parsed: one bad
message must not block others.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Protocol, TypeVar

from haulout.api.maintenancenotice import MaintenanceNotice, NoticeStage, is_finished
from haulout.api.notice_reports import NoticeReport
from haulout.core.backoff import RECONNECT, Backoff
from haulout.core.clock import Clock
from haulout.core.retry import Retry
from haulout.core.timeouts import await_with_timeout
from haulout.errors import BadRequest, CloudError, Invalid, KubeError
from haulout.providers.cloud_calls import LastAnswer
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.oci import SOURCE
from haulout.providers.oci.api import Document, Streaming
from haulout.providers.oci.correlation import (
    ENDED_BY_MESSAGE,
    Occurrences,
    Run,
    heard_annotation,
    ordered,
    split_runs,
)
from haulout.providers.oci.maintenance_events import (
    MaintenanceHint,
    MaintenanceMessage,
    UnreadableMaintenanceEvent,
    parse_message,
)
from haulout.providers.problems import Problems
from haulout.providers.quarantine import Quarantine

log = logging.getLogger(__name__)

# A call and the pause after it take less than 30 s: the longest delay in reading the stream after an outage.
_CALL_TIMEOUT = timedelta(seconds=12)
_CLOUD_BACKOFF = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=15), jitter=0.5)
_WRITE_TIMEOUT = timedelta(seconds=60)
_MAX_RETRY_AFTER = timedelta(minutes=10)  # of a throttled request
_MAX_PARALLEL_WRITES = 8
# OCI assigns the partitions of an instance that neither reads nor sends heartbeats for 30 s to another one.
_HEARTBEAT_INTERVAL = timedelta(seconds=10)
_FULL_BATCH_PAUSE = timedelta(milliseconds=250)  # OCI permits five reads per second
_UNAUTHORIZED = (401, 403)
_REQUEST_ERRORS = range(400, 429)
_SERVER_ERRORS = 500
_TOPIC = "stream"


T = TypeVar("T")

OnMessage = Callable[[str, str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """The consumer's name and group, and how it reads."""

    instance: str  # unique per process
    group: str = "wd-group"
    limit: int = 500
    idle_pause: timedelta = timedelta(seconds=6)
    pause: timedelta = timedelta(seconds=1)


class ComputeState(Protocol):
    """The current state of maintenance in Compute."""

    async def current_state(self, report: NoticeReport) -> NoticeReport | None:
        """Return the current state of a maintenance; None if it cannot be read."""
        ...

    async def is_unknown(self, report: NoticeReport) -> bool | None:
        """Return whether Compute knows the instance of a maintenance, but not the maintenance; None if unclear."""
        ...


class StreamConsumer:
    """Consumes one stream.

    `on_message` is called for each message, with the maintenance and the compartment if the message has them.
    """

    def __init__(  # noqa: PLR0913 - dependencies, each passed by keyword
        self,
        streaming: Streaming,
        options: ConsumerOptions,
        *,
        clock: Clock,
        random: Random,
        quarantine: Quarantine,
        problems: Problems,
        last_answer: LastAnswer,
        on_message: OnMessage,
        compute: ComputeState,
    ) -> None:
        self.messages_processed = 0  # messages about maintenance
        self.messages_ignored = 0  # messages about something else
        self._streaming = streaming
        self._options = options
        self._clock = clock
        self._random = random
        self._quarantine = quarantine
        self._on_message = on_message
        self._compute = compute
        self._problems = problems
        self._last_answer = last_answer
        self._retry = Retry(clock, random, _CLOUD_BACKOFF, max_retry_after=_MAX_RETRY_AFTER)
        self._cursor = ""

    async def run(self, notice_writer: NoticeWriter) -> None:
        while True:
            try:
                await self._consume(notice_writer)
            except CloudError as error:
                self._report_problem(error)
                if error.status >= _SERVER_ERRORS:
                    error.retry_after = None  # a guess of the server
                await self._retry.wait(error)

    async def _consume(self, notice_writer: NoticeWriter) -> None:
        """Consume the stream until a call fails."""
        options = self._options
        cursor_request = self._streaming.group_cursor(group=options.group, instance=options.instance)
        self._cursor = await _call(cursor_request, doing="asking for a cursor")
        while True:
            read_request = self._streaming.messages(self._cursor, limit=options.limit)
            messages, self._cursor = await _call(read_request, doing="reading the stream")
            self._last_answer.record()
            if messages:
                await self._process_batch(notice_writer, messages)
                self._cursor = await _call(self._streaming.commit(self._cursor), doing="committing what was read")
            self._retry.reset()
            self._problems.set(_TOPIC)
            await self._clock.sleep(self._pause_after(len(messages)))

    def _pause_after(self, count: int) -> timedelta:
        if count >= self._options.limit:
            return _FULL_BATCH_PAUSE
        return self._options.pause if count else self._options.idle_pause

    def _report_problem(self, error: CloudError) -> None:
        if error.status in _REQUEST_ERRORS and error.status not in _UNAUTHORIZED and not self._retry.failures:
            log.info("oci: the cursor is no longer valid, requesting a new one: %s", error)
        else:
            self._problems.set(_TOPIC, f"the stream cannot be read, retrying: {error}")

    # A batch

    async def _process_batch(self, notice_writer: NoticeWriter, messages: Sequence[Document]) -> None:
        """Write the notices of a batch of messages, sending heartbeats meanwhile."""
        parsed = self._parse(messages)
        async with asyncio.TaskGroup() as group:
            heartbeat_task = group.create_task(self._send_heartbeats())
            try:
                await self._write_all(notice_writer, parsed)
            finally:
                heartbeat_task.cancel()
        for message in parsed:
            self._on_message(message.report.notice_id, message.compartment)
        self.messages_processed += len(parsed)

    def _parse(self, messages: Sequence[Document]) -> list[MaintenanceMessage]:
        found = []
        for message in messages:
            try:
                parsed = parse_message(message)
            except UnreadableMaintenanceEvent as error:
                where = f"partition {message.get('partition')}, offset {message.get('offset')}"
                self._quarantine.add(where=where, why=str(error), what=message.get("value"))
                self._on_message("", "")
                continue
            match parsed:
                case MaintenanceMessage():
                    found.append(parsed)
                case MaintenanceHint():
                    self._on_message("", parsed.compartment)
                case None:
                    self.messages_ignored += 1
        return found

    async def _write_all(self, notice_writer: NoticeWriter, parsed: Sequence[MaintenanceMessage]) -> None:
        """Write messages: those of one maintenance in order, those of different ones concurrently."""
        if not parsed:
            return
        limit = asyncio.Semaphore(_MAX_PARALLEL_WRITES)
        notices = await self._retry_write(
            lambda: notice_writer.list_by_source(SOURCE), f"MaintenanceNotice {parsed[0].report.name} cannot be written"
        )
        by_maintenance: dict[str, list[MaintenanceMessage]] = {}
        for message in parsed:
            by_maintenance.setdefault(message.report.notice_id, []).append(message)

        async def write(maintenance: str, messages: Sequence[MaintenanceMessage]) -> None:
            async with limit:
                await self._write_messages(notice_writer, Occurrences.for_maintenance(maintenance, notices), messages)

        async with asyncio.TaskGroup() as group:
            for maintenance, messages in by_maintenance.items():
                group.create_task(write(maintenance, messages))

    async def _write_messages(
        self, notice_writer: NoticeWriter, occurrences: Occurrences, messages: Sequence[MaintenanceMessage]
    ) -> None:
        new = [
            (self._with_annotations(message), message.position)
            for message in messages
            if not occurrences.has_processed(message.position)
        ]
        for run in split_runs(new):
            try:
                await self._write_run(notice_writer, occurrences, run)
            except (Invalid, BadRequest) as error:
                where, why = run.report.notice_id, f"the API server refuses it: {error}"
                self._quarantine.add(where=where, why=why, what=run.report)

    def _with_annotations(self, message: MaintenanceMessage) -> NoticeReport:
        """Return the report with annotations for the time of reading and the message's position."""
        annotations = {
            **heard_annotation(self._clock.now()),
            **(message.position.annotations if message.position else {}),
        }
        if message.report.stage in (NoticeStage.ENDED, NoticeStage.CANCELLED):
            annotations[ENDED_BY_MESSAGE] = "true"
        return replace(message.report, notes=annotations)

    async def _write_run(self, notice_writer: NoticeWriter, occurrences: Occurrences, run: Run) -> None:
        """Write a run of messages; repeat it if the notice was ended by another writer meanwhile."""
        current = await self._current_state(run.report)
        while True:
            latest = occurrences.latest
            restarts_finished = latest is not None and is_finished(latest) and not run.is_finished
            if restarts_finished and await self._is_sent_again(latest, run.report):
                report = occurrences.for_new_notice(run)
            else:
                report = ordered(latest, occurrences.for_latest(run.report))
            for next_report in (
                *(replace(current_report, notice_id=report.notice_id) for current_report in current),
                report,
            ):
                notice = await self._write_report(notice_writer, next_report)
                occurrences.remember(notice)
            if restarts_finished or run.is_finished or current or not is_finished(notice):
                return

    async def _is_sent_again(self, notice: MaintenanceNotice | None, report: NoticeReport) -> bool:
        """Return whether the event of a finished maintenance was sent again by hand.

        A maintenance that Compute knows was not sent by hand: its event is late. If Compute does not answer, an event
        that is older than the message that ended the maintenance is late, too; and a notice that a person ended stays
        ended.
        """
        unknown = await self._compute.is_unknown(report)
        if unknown is not None or notice is None:
            return bool(unknown)
        reported_at = notice.spec.reported_at
        is_late = reported_at is not None and report.at < reported_at.replace(
            microsecond=reported_at.microsecond // 1000 * 1000
        )
        return ENDED_BY_MESSAGE in notice.metadata.annotations and not is_late

    async def _current_state(self, report: NoticeReport) -> Sequence[NoticeReport]:
        """Return the current state of a maintenance whose end has passed; it is written before the old report."""
        end = None if report.plan is None else report.plan.end
        if report.stage is not NoticeStage.SCHEDULED or end is None or self._clock.now() < end:
            return ()
        current = await self._compute.current_state(report)
        return () if current is None else (current,)

    async def _write_report(self, notice_writer: NoticeWriter, report: NoticeReport) -> MaintenanceNotice:
        return await self._retry_write(
            lambda: notice_writer.write(report), f"MaintenanceNotice {report.name} cannot be written"
        )

    async def _retry_write(self, call: Callable[[], Awaitable[T]], problem: str) -> T:
        """Call the API server until it succeeds; raise what it rejects permanently."""
        retry = Retry(self._clock, self._random, RECONNECT)
        while True:
            try:
                async with asyncio.timeout(_WRITE_TIMEOUT.total_seconds()):
                    return await call()
            except (Invalid, BadRequest):
                raise
            except (KubeError, TimeoutError) as error:
                reason = str(error) or f"not done within {_WRITE_TIMEOUT.seconds} s"
                self._problems.set(_TOPIC, f"{problem}, retrying: {reason}")
                await retry.wait(error)

    async def _send_heartbeats(self) -> None:
        while True:
            await self._clock.sleep(_HEARTBEAT_INTERVAL)
            try:
                self._cursor = await _call(self._streaming.heartbeat(self._cursor), doing="sending a heartbeat")
            except CloudError as error:
                log.info("%s", error)  # if the partition was lost, the commit fails


async def _call(call: Awaitable[T], *, doing: str) -> T:
    return await await_with_timeout(call, doing=doing, within=_CALL_TIMEOUT)
