"""Poll the Instance Metadata Service, and write the notices of one node.

While an event of this machine is open, the source polls once per second, as often as Azure permits: the time between
the beginning of an event and its restart can be that short. Otherwise it polls every few seconds, since Azure announces
a preemption 30 s ahead. All state is in the notices: after a restart the source reads those of its node. An event is
over only if it was missing from all documents for some seconds, each of which was parsed completely. An error never
ends a notice.

`AzureEarlyStartSource` begins an event early, once every machine in it is ready. An approval applies to all machines of
an event. So when its own node is empty, each agent reads the notices of the other machines, whose names follow from the
event: only if each of them has the condition Emptied is the event approved. A machine without a notice is not a node of
this cluster, or has no agent: then the event begins at its time. The last machine to become ready finds all others
ready. Several agents may approve at once, which is harmless.
"""

import logging
from datetime import timedelta
from random import Random

from haulout.api.maintenancenotice import MaintenanceNotice, object_name
from haulout.controllers.notices.early_start import may_start_early
from haulout.core import duration
from haulout.core.backoff import RECONNECT
from haulout.core.clock import Clock
from haulout.core.retry import Retry
from haulout.errors import CloudError, RescheduleRefused
from haulout.providers.azure.imds import AzureInstanceMetadata
from haulout.providers.azure.scheduled_events import (
    SOURCE,
    ScheduledEvent,
    ScheduledEvents,
    UnreadableScheduledEvent,
    end_report,
    is_open,
    missing_notices,
    notice_id,
    parse_scheduled_events,
    report_of,
    split_notice_id,
)
from haulout.providers.event_source import AgentEventSource
from haulout.providers.http_fetch import Fetch
from haulout.providers.notice_writer import NoticeWriter, write_if_changed
from haulout.providers.poller import Poller

log = logging.getLogger(__name__)

_POLL_INTERVAL_OPEN, _POLL_INTERVAL_IDLE = timedelta(seconds=1), timedelta(seconds=5)
_ENDED_AFTER = timedelta(seconds=5)
_RELIST_AFTER = timedelta(minutes=5)  # another client may have changed or deleted a notice

_MAX_DOCUMENT_AGE = timedelta(seconds=10)  # a new document arrives every second while an event is open
_BAD_REQUEST = 400


class AzureEventSource(AgentEventSource):
    """Scheduled Events of the machine of a node; if `machine` is empty, its name is read from the service."""

    def __init__(self, fetch: Fetch, *, node: str, clock: Clock, random: Random, machine: str = "") -> None:
        super().__init__(SOURCE, clock, node=node)
        self.machine = machine
        self.document: ScheduledEvents | None = None  # the last one read
        self._metadata = AzureInstanceMetadata(fetch)
        self._clock = clock
        self._notices_by_id: dict[str, MaintenanceNotice] | None = None  # by notice ID; None: not read yet
        self._listed_at = 0.0
        # by notice ID: monotonic time since when documents do not contain the event
        self._missing_since: dict[str, float] = {}
        self._notice_writer: NoticeWriter | None = None
        self._poller = Poller(
            Retry(clock, random, RECONNECT),
            self._current_problems,
            failure="Azure does not answer",
            interval=lambda: _POLL_INTERVAL_OPEN if self._has_open_notices() else _POLL_INTERVAL_IDLE,
        )

    async def run(self, notice_writer: NoticeWriter) -> None:
        """Write Azure's events as notices, until cancelled."""
        self._notice_writer = notice_writer
        await self._poller.run(lambda: self.poll(notice_writer))

    async def poll(self, notice_writer: NoticeWriter) -> None:
        """Poll once and write the notices; raise `CloudError` or `KubeError`."""
        notices = await self._list_notices(notice_writer)
        if not self.machine:
            self.machine = await self._metadata.machine()
            log.info("azure: the agent runs on machine %s", self.machine)
        body = await self._metadata.events()
        self._last_answer.record()
        try:
            document = self.document = parse_scheduled_events(body)
        except UnreadableScheduledEvent as error:
            self.quarantine.add(where="scheduled events", why=str(error), what=body.decode("utf-8", "replace"))
            raise CloudError(str(error), doing="asking Azure for scheduled events", status=200) from None
        for what, why in (*document.unreadable, *document.invalid_times):
            self.quarantine.add(where="scheduled events", why=why, what=what)
        await self._write_events(notice_writer, notices, document)
        await self._end_missing(notice_writer, notices, document)

    async def _write_events(
        self, notice_writer: NoticeWriter, notices: dict[str, MaintenanceNotice], document: ScheduledEvents
    ) -> None:
        for event in document.events:
            if not event.is_about(self.machine):
                continue
            event_notice_id = notice_id(event.event_id, self.machine)
            before = notices.get(event_notice_id)
            report = report_of(event, machine=self.machine, node=self._node, at=self._clock.now(), existing=before)
            after = await write_if_changed(notice_writer, before, report, self.quarantine)
            self._remember(notices, before, after)

    async def _end_missing(
        self, notice_writer: NoticeWriter, notices: dict[str, MaintenanceNotice], document: ScheduledEvents
    ) -> None:
        not_shown = {
            missing_notice.spec.notice_id: missing_notice
            for missing_notice in missing_notices(document, list(notices.values()))
        }
        now = self._clock.monotonic()
        self._missing_since = {missing_id: self._missing_since.get(missing_id, now) for missing_id in not_shown}
        for missing_id, notice in not_shown.items():
            if now - self._missing_since[missing_id] < _ENDED_AFTER.total_seconds():
                continue
            # read it again: the early starter may have recorded a request
            latest = await notice_writer.find(notice.name)
            if latest is None:
                del notices[missing_id]
                continue
            self._remember(notices, notice, await notice_writer.write(end_report(latest, at=self._clock.now())))

    def _remember(
        self, notices: dict[str, MaintenanceNotice], before: MaintenanceNotice | None, after: MaintenanceNotice | None
    ) -> None:
        if after is None or after is before:
            return
        self._messages_processed += 1
        notices[after.spec.notice_id] = after
        log.info("azure: %s is %s", after.name, after.spec.stage, extra={"node": self._node})

    async def _list_notices(self, notice_writer: NoticeWriter) -> dict[str, MaintenanceNotice]:
        """Return the notices of this node; they are listed again periodically."""
        now = self._clock.monotonic()
        if self._notices_by_id is None or now - self._listed_at > _RELIST_AFTER.total_seconds():
            found = await notice_writer.list_by_source(SOURCE, node=self._node)
            self._notices_by_id, self._listed_at = {notice.spec.notice_id: notice for notice in found}, now
        return self._notices_by_id

    def _has_open_notices(self) -> bool:
        return any(is_open(notice) for notice in (self._notices_by_id or {}).values())


class AzureEarlyStartSource(AzureEventSource):
    """An `AzureEventSource` that can also begin events early."""

    async def start_blocker(self, notice: MaintenanceNotice) -> str:
        """Return what blocks an early start; empty if nothing does or the event has begun."""
        since_last_answer = self.time_since_last_answer()
        if since_last_answer is None or since_last_answer > _MAX_DOCUMENT_AGE:
            silent_for = "yet" if since_last_answer is None else f"for {duration.format_short(since_last_answer)}"
            return f"Azure has not answered {silent_for}"
        event = self._find_event(notice)
        if event is None:
            return "Azure no longer lists the event"
        if event.has_started:
            return ""
        for machine in event.resources:
            if machine.lower() != self.machine.lower() and (blocker := await self._machine_blocker(event, machine)):
                return blocker
        return ""

    async def start_early(self, notice: MaintenanceNotice) -> None:
        """Approve the event; do nothing if it has begun. Raise `RescheduleRefused` if it does not exist any more."""
        event = self._find_event(notice)
        if event is None:
            raise RescheduleRefused("Azure no longer lists the event")
        if event.has_started:
            return
        try:
            await self._metadata.start_event(event.event_id)
        except CloudError as error:
            if error.status == _BAD_REQUEST:
                raise RescheduleRefused(f"Azure refuses: {error.message}") from error
            raise

    def _find_event(self, notice: MaintenanceNotice) -> ScheduledEvent | None:
        return None if self.document is None else self.document.find(*split_notice_id(notice.spec.notice_id))

    async def _machine_blocker(self, event: ScheduledEvent, machine: str) -> str:
        """Return why another machine of an event is not ready; empty if it is."""
        if self._notice_writer is None:
            return "the MaintenanceNotices are not read yet"
        found = await self._notice_writer.find(object_name(SOURCE, notice_id(event.event_id, machine)))
        if found is None:
            return f"machine {machine} is affected, too, and has no notice: is it a node, and does an agent run there?"
        return "" if may_start_early(found) else f"machine {machine} ({found.node}) is affected, too, and is not empty"
