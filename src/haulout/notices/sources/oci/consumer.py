"""Follows the stream: each event becomes a notice, and only then is its offset committed.

Of what can go wrong with a stream (a cursor expires, another consumer has our partition, the service is busy or gone)
nothing is worth telling apart: after a pause we ask for a new cursor, which begins at what the group has committed.
What we had read and not committed comes again, and that is harmless: reports may be taken any number of times.

If notices cannot be written we keep what we have read and say that we are still at work, so that nobody else gets it.
What the API server refuses for good is put aside, as is what makes no sense: one bad message must not stop the others.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import BadRequest, CloudError, Invalid, KubeError
from haulout.kinds.notice import Stage
from haulout.kinds.reports import Report, folded
from haulout.notices.inbox import Inbox
from haulout.notices.sources.calls import answered, no_beat
from haulout.notices.sources.oci.cloud import Document, Streaming
from haulout.notices.sources.oci.reading import Hint, Told, Unreadable, of_message
from haulout.notices.sources.quarantine import Quarantine

log = logging.getLogger(__name__)

_CLOUD_PAUSE = Backoff(first=timedelta(seconds=1), limit=timedelta(minutes=2), jitter=0.5)
_WRITE_PAUSE = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=30), jitter=0.5)
_WRITTEN_WITHIN = timedelta(seconds=60)
_WRITES_AT_ONCE = 8
_BEAT_EVERY = timedelta(seconds=10)
_BETWEEN_FULL_BATCHES = timedelta(milliseconds=250)  # five reads a second are allowed
_UNAUTHORIZED = (401, 403)
_REQUEST_ERRORS = range(400, 429)


Hears = Callable[[str, str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Our place among the consumers of a stream, and how we read."""

    instance: str  # no other process has this name
    group: str = "wd-group"
    limit: int = 500
    idle_pause: timedelta = timedelta(seconds=6)
    pause: timedelta = timedelta(seconds=1)


class Consumer:
    """Follows one stream.

    `hears` is told that something happened, with the maintenance and the compartment if the message has them. `ask`
    returns the present state of a maintenance whose time is over as far as the event tells, or None if nobody knows.
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
        ask: Callable[[Report], Awaitable[Report | None]],
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
        self._ask = ask
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
                pause = _CLOUD_PAUSE.delay(self._failures, self._random)
                await self._complain(error, max(pause, error.retry_after or timedelta()))

    async def _follow(self, inbox: Inbox) -> None:
        """Follow the stream until something goes wrong."""
        place = self._place
        opening = self._streaming.group_cursor(group=place.group, instance=place.instance)
        self._cursor = await answered(opening, doing="asking for a cursor")
        while True:
            reading = self._streaming.messages(self._cursor, limit=place.limit)
            messages, self._cursor = await answered(reading, doing="reading the stream")
            self._heard()
            if messages:
                await self._work(inbox, messages)
                self._cursor = await answered(self._streaming.commit(self._cursor), doing="committing what was read")
            self._failures, self.trouble = 0, ""
            await self._clock.sleep(self._pause_after(len(messages)))

    def _pause_after(self, count: int) -> timedelta:
        if count >= self._place.limit:
            return _BETWEEN_FULL_BATCHES
        return self._place.pause if count else self._place.idle_pause

    async def _complain(self, error: CloudError, pause: timedelta) -> None:
        if error.status in _REQUEST_ERRORS and error.status not in _UNAUTHORIZED and self._failures == 1:
            log.info("oci: the cursor is of no use any more, and a new one is asked for: %s", error)
        else:
            self.trouble = f"oci: the stream cannot be read, which is tried again: {error}"
            log.warning("%s", self.trouble)
        await self._clock.sleep(pause)

    # A batch

    async def _work(self, inbox: Inbox, messages: Sequence[Document]) -> None:
        """Take what messages say."""
        told = self._read(messages)
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(self._beat())
            try:
                await self._take_all(inbox, folded(it.report for it in told))
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

    async def _take_all(self, inbox: Inbox, reports: Sequence[Report]) -> None:
        limit = asyncio.Semaphore(_WRITES_AT_ONCE)

        async def take(report: Report) -> None:
            async with limit:
                for each in await self._with_present_state(report):
                    await self._take(inbox, each)

        async with asyncio.TaskGroup() as group:
            for report in reports:
                group.create_task(take(report))

    async def _with_present_state(self, report: Report) -> Sequence[Report]:
        """Return a report that may be very old together with how things are now, which is taken first."""
        end = None if report.plan is None else report.plan.end
        if report.stage is not Stage.SCHEDULED or end is None or self._clock.now() < end:
            return (report,)
        present = await self._ask(report)
        return (report,) if present is None else (present, report)

    async def _take(self, inbox: Inbox, report: Report) -> None:
        failures = 0
        while True:
            try:
                async with asyncio.timeout(_WRITTEN_WITHIN.total_seconds()):
                    await inbox.take(report)
            except (Invalid, BadRequest) as error:
                self._quarantine.put(where=report.notice_id, why=f"the API server refuses it: {error}", what=report)
                return
            except (KubeError, TimeoutError) as error:
                failures += 1
                why = str(error) or f"not done within {_WRITTEN_WITHIN.seconds} s"
                self.trouble = f"oci: notice {report.name} cannot be written, which is tried again: {why}"
                log.warning("%s", self.trouble)
                await self._clock.sleep(_WRITE_PAUSE.delay(failures, self._random))
            else:
                return

    async def _beat(self) -> None:
        """Say from time to time that we are still at work, until cancelled."""
        while True:
            await self._clock.sleep(_BEAT_EVERY)
            try:
                self._cursor = await answered(self._streaming.heartbeat(self._cursor), doing="sending a heartbeat")
            except CloudError as error:
                log.info("%s", error)  # if our place is lost, the commit will tell
