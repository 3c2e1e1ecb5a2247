"""Follows the stream: each event becomes a notice, and only then is its offset committed.

Of what can go wrong with a stream (a cursor expires, another consumer has our partition, the service is busy or gone)
nothing is worth telling apart: after a pause we ask for a new cursor, which begins at what the group has committed.
What we had read and not committed comes again, and that is harmless: a notice knows which messages it was made from.

A maintenance that is over does not begin again, unless somebody sends its event again by hand: Compute does not know it
then. Such an event gets another notice (`correlation`).

If notices cannot be written we keep what we have read and say that we are still at work, so that nobody else gets it.
What the API server refuses for good is put aside, as is what makes no sense: one bad message must not stop the others.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Protocol, TypeVar

from haulout.api.maintenancenotice import MaintenanceNotice, NoticeStage
from haulout.api.notice_reports import NoticeReport
from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import BadRequest, CloudError, Invalid, KubeError
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.oci import SOURCE
from haulout.providers.oci.api import Document, Streaming
from haulout.providers.oci.correlation import (
    ENDED_BY_MESSAGE,
    Occurrences,
    Run,
    heard_annotation,
    is_finished,
    ordered,
    split_runs,
)
from haulout.providers.oci.maintenance_events import (
    MaintenanceHint,
    MaintenanceMessage,
    UnreadableMaintenanceEvent,
    parse_message,
)
from haulout.providers.quarantine import Quarantine
from haulout.providers.retry import await_with_timeout, ignore_answer

log = logging.getLogger(__name__)

# A call and the pause after it take less than 30 s together: so soon the stream is read after an outage.
_CALL_TIMEOUT = timedelta(seconds=12)
_CLOUD_BACKOFF = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=15), jitter=0.5)
_WRITE_BACKOFF = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=30), jitter=0.5)
_WRITE_TIMEOUT = timedelta(seconds=60)
_MAX_PARALLEL_WRITES = 8
_HEARTBEAT_INTERVAL = timedelta(seconds=10)
_FULL_BATCH_PAUSE = timedelta(milliseconds=250)  # five reads a second are allowed
_UNAUTHORIZED = (401, 403)
_REQUEST_ERRORS = range(400, 429)
_SERVER_ERRORS = 500


T = TypeVar("T")

OnMessage = Callable[[str, str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Our place among the consumers of a stream, and how we read."""

    instance: str  # no other process has this name
    group: str = "wd-group"
    limit: int = 500
    idle_pause: timedelta = timedelta(seconds=6)
    pause: timedelta = timedelta(seconds=1)


class ComputeState(Protocol):
    """Knows how things are now."""

    async def current_state(self, report: NoticeReport) -> NoticeReport | None:
        """Return the present state of a maintenance; None if it cannot be had."""
        ...

    async def is_unknown(self, report: NoticeReport) -> bool | None:
        """Tell whether Compute does not know a maintenance, though it knows its instance; None if that is not known."""
        ...


class StreamConsumer:
    """Follows one stream.

    `on_message` is told that something happened, with the maintenance and the compartment if the message has them.
    """

    def __init__(
        self,
        streaming: Streaming,
        options: ConsumerOptions,
        *,
        clock: Clock,
        random: Random,
        quarantine: Quarantine,
        on_message: OnMessage,
        compute: ComputeState,
        on_answer: Callable[[], object] = ignore_answer,
    ) -> None:
        self.problem = ""
        self.messages_processed = 0  # messages that were about a maintenance
        self.messages_ignored = 0  # messages about something else
        self._streaming = streaming
        self._options = options
        self._clock = clock
        self._random = random
        self._quarantine = quarantine
        self._on_message = on_message
        self._compute = compute
        self._on_answer = on_answer
        self._failures = 0
        self._cursor = ""

    async def run(self, notice_writer: NoticeWriter) -> None:
        """Follow the stream until cancelled."""
        while True:
            try:
                await self._consume(notice_writer)
            except CloudError as error:
                self._failures += 1
                await self._report_problem(error, self._pause_for(error))

    async def _consume(self, notice_writer: NoticeWriter) -> None:
        """Follow the stream until something goes wrong."""
        options = self._options
        cursor_request = self._streaming.group_cursor(group=options.group, instance=options.instance)
        self._cursor = await _call(cursor_request, doing="asking for a cursor")
        while True:
            read_request = self._streaming.messages(self._cursor, limit=options.limit)
            messages, self._cursor = await _call(read_request, doing="reading the stream")
            self._on_answer()
            if messages:
                await self._process_batch(notice_writer, messages)
                self._cursor = await _call(self._streaming.commit(self._cursor), doing="committing what was read")
            self._failures, self.problem = 0, ""
            await self._clock.sleep(self._pause_after(len(messages)))

    def _pause_for(self, error: CloudError) -> timedelta:
        """Return how long to wait; a service that is down does not know when it will be back."""
        pause = _CLOUD_BACKOFF.delay(self._failures, self._random)
        retry_after = error.retry_after if error.status < _SERVER_ERRORS else None
        return max(pause, retry_after or timedelta())

    def _pause_after(self, count: int) -> timedelta:
        if count >= self._options.limit:
            return _FULL_BATCH_PAUSE
        return self._options.pause if count else self._options.idle_pause

    async def _report_problem(self, error: CloudError, pause: timedelta) -> None:
        if error.status in _REQUEST_ERRORS and error.status not in _UNAUTHORIZED and self._failures == 1:
            log.info("oci: the cursor is of no use any more, and a new one is asked for: %s", error)
        else:
            problem = f"oci: the stream cannot be read, which is tried again: {error}"
            if problem != self.problem:
                log.warning("%s", problem)
            self.problem = problem
        await self._clock.sleep(pause)

    # A batch

    async def _process_batch(self, notice_writer: NoticeWriter, messages: Sequence[Document]) -> None:
        """Take what messages say."""
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
        """Take messages: those about one maintenance in their order, those about different ones at once."""
        if not parsed:
            return
        limit = asyncio.Semaphore(_MAX_PARALLEL_WRITES)
        notices = await self._retry_write(
            lambda: notice_writer.list_by_source(SOURCE), f"notice {parsed[0].report.name} cannot be written"
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
        """Return a report that says when it was heard, and from which message."""
        annotations = {
            **heard_annotation(self._clock.now()),
            **(message.position.annotations if message.position else {}),
        }
        if message.report.stage in (NoticeStage.ENDED, NoticeStage.CANCELLED):
            annotations[ENDED_BY_MESSAGE] = "true"
        return replace(message.report, notes=annotations)

    async def _write_run(self, notice_writer: NoticeWriter, occurrences: Occurrences, run: Run) -> None:
        """Have a notice say what messages say; one that ends meanwhile, for another reason, does not swallow them."""
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
        """Tell whether somebody sent the event of a maintenance that is over once more.

        What Compute knows is OCI's own, and was told late. If Compute does not answer, an event that is older than the
        message that ended it is late, too; and a notice that a person ended stays so.
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
        """Return how things are now, which is taken before a report that may be very old."""
        end = None if report.plan is None else report.plan.end
        if report.stage is not NoticeStage.SCHEDULED or end is None or self._clock.now() < end:
            return ()
        current = await self._compute.current_state(report)
        return () if current is None else (current,)

    async def _write_report(self, notice_writer: NoticeWriter, report: NoticeReport) -> MaintenanceNotice:
        return await self._retry_write(lambda: notice_writer.write(report), f"notice {report.name} cannot be written")

    async def _retry_write(self, call: Callable[[], Awaitable[T]], problem: str) -> T:
        """Return what the API server says, however long that takes; raises what it refuses for good."""
        failures = 0
        while True:
            try:
                async with asyncio.timeout(_WRITE_TIMEOUT.total_seconds()):
                    return await call()
            except (Invalid, BadRequest):
                raise
            except (KubeError, TimeoutError) as error:
                failures += 1
                reason = str(error) or f"not done within {_WRITE_TIMEOUT.seconds} s"
                self.problem = f"oci: {problem}, which is tried again: {reason}"
                log.warning("%s", self.problem)
                await self._clock.sleep(_WRITE_BACKOFF.delay(failures, self._random))

    async def _send_heartbeats(self) -> None:
        """Say from time to time that we are still at work, until cancelled."""
        while True:
            await self._clock.sleep(_HEARTBEAT_INTERVAL)
            try:
                self._cursor = await _call(self._streaming.heartbeat(self._cursor), doing="sending a heartbeat")
            except CloudError as error:
                log.info("%s", error)  # if our place is lost, the commit will tell


async def _call(call: Awaitable[T], *, doing: str) -> T:
    return await await_with_timeout(call, doing=doing, within=_CALL_TIMEOUT)
