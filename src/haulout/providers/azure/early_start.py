"""Begin an event early, once every machine in it is ready.

An approval applies to all machines of an event. So when its own node is empty, each agent reads the notices of the
other machines, whose names follow from the event: only if each of them has the condition Emptied is the event approved.
A machine without a notice is not a node of this cluster, or has no agent: then the event begins at its time.

The last machine to become ready finds all others ready. Several agents may approve at once, which is harmless.
"""

from datetime import timedelta

from haulout.api.maintenancenotice import MaintenanceNotice, object_name
from haulout.controllers.notices.early_start import may_start_early
from haulout.core import duration
from haulout.errors import CloudError, RescheduleRefused
from haulout.providers.azure.event_source import AzureEventSource
from haulout.providers.azure.scheduled_events import SOURCE, ScheduledEvent, notice_id, split_notice_id

_MAX_DOCUMENT_AGE = timedelta(seconds=10)  # a new document arrives every second while an event is open
_BAD_REQUEST = 400


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
