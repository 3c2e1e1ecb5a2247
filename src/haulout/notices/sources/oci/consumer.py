"""Follows the stream: each event becomes a notice, and only then is its offset committed.

Of what can go wrong with a stream (a cursor expires, another consumer has our partition, the service is busy or gone)
nothing is worth telling apart: after a pause we ask for a new cursor, which begins at what the group has committed.
What we had read and not committed comes again, and that is harmless: a notice knows which messages it was made from.

A maintenance that is over does not begin again, unless somebody sends its event again by hand: Compute does not know it
then. Such an event gets another notice (`occurrences`).

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

from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import BadRequest, CloudError, Invalid, KubeError
from haulout.kinds.notice import MaintenanceNotice, Stage
from haulout.kinds.reports import Report
from haulout.notices.inbox import Inbox
from haulout.notices.sources.calls import answered, no_beat
from haulout.notices.sources.oci import SOURCE
from haulout.notices.sources.oci.cloud import Document, Streaming
from haulout.notices.sources.oci.occurrences import (
    ENDED_BY_MESSAGE,
    Occurrences,
    Run,
    heard,
    in_order,
    is_over,
    runs,
)
from haulout.notices.sources.oci.reading import Hint, Told, Unreadable, of_message
from haulout.notices.sources.quarantine import Quarantine

log = logging.getLogger(__name__)

# A call and the pause after it take less than 30 s together: so soon the stream is read after an outage.
_ANSWERED_WITHIN = timedelta(seconds=12)
_CLOUD_PAUSE = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=15), jitter=0.5)
_WRITE_PAUSE = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=30), jitter=0.5)
_WRITTEN_WITHIN = timedelta(seconds=60)
_WRITES_AT_ONCE = 8
_BEAT_EVERY = timedelta(seconds=10)
_BETWEEN_FULL_BATCHES = timedelta(milliseconds=250)  # five reads a second are allowed
_UNAUTHORIZED = (401, 403)
_REQUEST_ERRORS = range(400, 429)
_SERVER_ERRORS = 500


T = TypeVar("T")

Hears = Callable[[str, str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Our place among the consumers of a stream, and how we read."""

    instance: str  # no other process has this name
    group: str = "wd-group"
    limit: int = 500
    idle_pause: timedelta = timedelta(seconds=6)
    pause: timedelta = timedelta(seconds=1)


class Present(Protocol):
    """Knows how things are now."""

    async def ask(self, report: Report) -> Report | None:
        """Return the present state of a maintenance; None if it cannot be had."""
        ...

    async def is_unknown(self, report: Report) -> bool | None:
        """Tell whether Compute does not know a maintenance, though it knows its instance; None if that is not known."""
        ...


class Consumer:
    """Follows one stream.

    `hears` is told that something happened, with the maintenance and the compartment if the message has them.
    """

    def __init__(
        self,
        streaming: Streaming,
        place: Place,
        *,
        clock: Clock,
        random: Random,
        quarantine: Quarantine,
        hears: Hears,
        compute: Present,
        beat: Callable[[], object] = no_beat,
    ) -> None:
        self.trouble = ""
        self.taken = 0  # messages that were about a maintenance
        self.passed_over = 0  # messages about something else
        self._streaming = streaming
        self._place = place
        self._clock = clock
        self._random = random
        self._quarantine = quarantine
        self._hears = hears
        self._compute = compute
        self._heard = beat
        self._failures = 0
        self._cursor = ""

    async def run(self, inbox: Inbox) -> None:
        """Follow the stream until cancelled."""
        while True:
            try:
                await self._follow(inbox)
            except CloudError as error:
                self._failures += 1
                await self._complain(error, self._pause_for(error))

    async def _follow(self, inbox: Inbox) -> None:
        """Follow the stream until something goes wrong."""
        place = self._place
        opening = self._streaming.group_cursor(group=place.group, instance=place.instance)
        self._cursor = await _answered(opening, doing="asking for a cursor")
        while True:
            reading = self._streaming.messages(self._cursor, limit=place.limit)
            messages, self._cursor = await _answered(reading, doing="reading the stream")
            self._heard()
            if messages:
                await self._work(inbox, messages)
                self._cursor = await _answered(self._streaming.commit(self._cursor), doing="committing what was read")
            self._failures, self.trouble = 0, ""
            await self._clock.sleep(self._pause_after(len(messages)))

    def _pause_for(self, error: CloudError) -> timedelta:
        """Return how long to wait; a service that is down does not know when it will be back."""
        pause = _CLOUD_PAUSE.delay(self._failures, self._random)
        told = error.retry_after if error.status < _SERVER_ERRORS else None
        return max(pause, told or timedelta())

    def _pause_after(self, count: int) -> timedelta:
        if count >= self._place.limit:
            return _BETWEEN_FULL_BATCHES
        return self._place.pause if count else self._place.idle_pause

    async def _complain(self, error: CloudError, pause: timedelta) -> None:
        if error.status in _REQUEST_ERRORS and error.status not in _UNAUTHORIZED and self._failures == 1:
            log.info("oci: the cursor is of no use any more, and a new one is asked for: %s", error)
        else:
            trouble = f"oci: the stream cannot be read, which is tried again: {error}"
            if trouble != self.trouble:
                log.warning("%s", trouble)
            self.trouble = trouble
        await self._clock.sleep(pause)

    # A batch

    async def _work(self, inbox: Inbox, messages: Sequence[Document]) -> None:
        """Take what messages say."""
        told = self._read(messages)
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(self._beat())
            try:
                await self._take_all(inbox, told)
            finally:
                beating.cancel()
        for each in told:
            self._hears(each.report.notice_id, each.compartment)
        self.taken += len(told)

    def _read(self, messages: Sequence[Document]) -> list[Told]:
        found = []
        for message in messages:
            try:
                told = of_message(message)
            except Unreadable as error:
                where = f"partition {message.get('partition')}, offset {message.get('offset')}"
                self._quarantine.put(where=where, why=str(error), what=message.get("value"))
                self._hears("", "")
                continue
            match told:
                case Told():
                    found.append(told)
                case Hint():
                    self._hears("", told.compartment)
                case None:
                    self.passed_over += 1
        return found

    async def _take_all(self, inbox: Inbox, told: Sequence[Told]) -> None:
        """Take messages: those about one maintenance in their order, those about different ones at once."""
        if not told:
            return
        limit = asyncio.Semaphore(_WRITES_AT_ONCE)
        notices = await self._written(lambda: inbox.of(SOURCE), f"notice {told[0].report.name} cannot be written")
        by_maintenance: dict[str, list[Told]] = {}
        for each in told:
            by_maintenance.setdefault(each.report.notice_id, []).append(each)

        async def take(maintenance: str, messages: Sequence[Told]) -> None:
            async with limit:
                await self._take_messages(inbox, Occurrences.of(maintenance, notices), messages)

        async with asyncio.TaskGroup() as group:
            for maintenance, messages in by_maintenance.items():
                group.create_task(take(maintenance, messages))

    async def _take_messages(self, inbox: Inbox, occurrences: Occurrences, messages: Sequence[Told]) -> None:
        new = [(self._noted(it), it.position) for it in messages if not occurrences.has_taken(it.position)]
        for run in runs(new):
            try:
                await self._take_run(inbox, occurrences, run)
            except (Invalid, BadRequest) as error:
                where, why = run.report.notice_id, f"the API server refuses it: {error}"
                self._quarantine.put(where=where, why=why, what=run.report)

    def _noted(self, told: Told) -> Report:
        """Return a report that says when it was heard, and from which message."""
        notes = {**heard(self._clock.now()), **(told.position.notes if told.position else {})}
        if told.report.stage in (Stage.ENDED, Stage.CANCELLED):
            notes[ENDED_BY_MESSAGE] = "true"
        return replace(told.report, notes=notes)

    async def _take_run(self, inbox: Inbox, occurrences: Occurrences, run: Run) -> None:
        """Have a notice say what messages say; one that ends meanwhile, for another reason, does not swallow them."""
        before = await self._before(run.report)
        while True:
            latest = occurrences.latest
            is_again = latest is not None and is_over(latest) and not run.is_over
            if is_again and await self._is_sent_again(latest, run.report):
                report = occurrences.another(run)
            else:
                report = in_order(latest, occurrences.about_latest(run.report))
            for each in (*(replace(it, notice_id=report.notice_id) for it in before), report):
                notice = await self._taken(inbox, each)
                occurrences.put(notice)
            if is_again or run.is_over or before or not is_over(notice):
                return

    async def _is_sent_again(self, notice: MaintenanceNotice | None, report: Report) -> bool:
        """Tell whether somebody sent the event of a maintenance that is over once more.

        What Compute knows is OCI's own, and was told late. If Compute does not answer, an event that is older than the
        message that ended it is late, too; and a notice that a person ended stays so.
        """
        unknown = await self._compute.is_unknown(report)
        if unknown is not None or notice is None:
            return bool(unknown)
        told = notice.spec.reported_at
        is_late = told is not None and report.at < told.replace(microsecond=told.microsecond // 1000 * 1000)
        return ENDED_BY_MESSAGE in notice.metadata.annotations and not is_late

    async def _before(self, report: Report) -> Sequence[Report]:
        """Return how things are now, which is taken before a report that may be very old."""
        end = None if report.plan is None else report.plan.end
        if report.stage is not Stage.SCHEDULED or end is None or self._clock.now() < end:
            return ()
        present = await self._compute.ask(report)
        return () if present is None else (present,)

    async def _taken(self, inbox: Inbox, report: Report) -> MaintenanceNotice:
        return await self._written(lambda: inbox.take(report), f"notice {report.name} cannot be written")

    async def _written(self, call: Callable[[], Awaitable[T]], problem: str) -> T:
        """Return what the API server says, however long that takes; raises what it refuses for good."""
        failures = 0
        while True:
            try:
                async with asyncio.timeout(_WRITTEN_WITHIN.total_seconds()):
                    return await call()
            except (Invalid, BadRequest):
                raise
            except (KubeError, TimeoutError) as error:
                failures += 1
                why = str(error) or f"not done within {_WRITTEN_WITHIN.seconds} s"
                self.trouble = f"oci: {problem}, which is tried again: {why}"
                log.warning("%s", self.trouble)
                await self._clock.sleep(_WRITE_PAUSE.delay(failures, self._random))

    async def _beat(self) -> None:
        """Say from time to time that we are still at work, until cancelled."""
        while True:
            await self._clock.sleep(_BEAT_EVERY)
            try:
                self._cursor = await _answered(self._streaming.heartbeat(self._cursor), doing="sending a heartbeat")
            except CloudError as error:
                log.info("%s", error)  # if our place is lost, the commit will tell


async def _answered(call: Awaitable[T], *, doing: str) -> T:
    return await answered(call, doing=doing, within=_ANSWERED_WITHIN)
