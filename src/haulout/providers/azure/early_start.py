"""Has an event begin before its time, once every machine that it is about is ready.

To tell Azure to begin is to tell it for all machines of the event. So each agent, when its own node is empty, looks at
the notices of the others, whose names follow from the event: only when each of them says Emptied, too, is Azure told. A
machine that has no notice is not known to us, or has no agent: then the event begins at its time, as without us.

Whoever is the last to be ready sees all others ready. Several may tell Azure at once, which is harmless.
"""

from datetime import timedelta

from haulout.api.maintenancenotice import MaintenanceNotice, object_name
from haulout.controllers.notices.early_start import may_start_early
from haulout.core import duration
from haulout.errors import CloudError, RescheduleRefused
from haulout.providers.azure.event_source import AzureEventSource
from haulout.providers.azure.scheduled_events import SOURCE, ScheduledEvent, notice_id, split_notice_id

_MAX_DOCUMENT_AGE = timedelta(seconds=10)  # a document, while one comes every second
_BAD_REQUEST = 400


class AzureEarlyStartSource(AzureEventSource):
    """The same source, which also tells Azure to begin."""

    async def start_blocker(self, notice: MaintenanceNotice) -> str:
        """Return what is in the way; nothing, if it has begun."""
        since_last_answer = self.time_since_last_answer()
        if since_last_answer is None or since_last_answer > _MAX_DOCUMENT_AGE:
            silent_for = "yet" if since_last_answer is None else f"for {duration.format_short(since_last_answer)}"
            return f"Azure has not said {silent_for} how things are"
        event = self._find_event(notice)
        if event is None:
            return "Azure does not show it any more"
        if event.has_started:
            return ""
        for machine in event.resources:
            if machine.lower() != self.machine.lower() and (blocker := await self._machine_blocker(event, machine)):
                return blocker
        return ""

    async def start_early(self, notice: MaintenanceNotice) -> None:
        """Tell Azure to begin; nothing happens if it has. Raises `RescheduleRefused` if there is nothing to begin."""
        event = self._find_event(notice)
        if event is None:
            raise RescheduleRefused("Azure does not show it any more")
        if event.has_started:
            return
        try:
            await self._metadata.start_event(event.event_id)
        except CloudError as error:
            if error.status == _BAD_REQUEST:
                raise RescheduleRefused(f"Azure says no: {error.message}") from error
            raise

    def _find_event(self, notice: MaintenanceNotice) -> ScheduledEvent | None:
        return None if self.document is None else self.document.find(*split_notice_id(notice.spec.notice_id))

    async def _machine_blocker(self, event: ScheduledEvent, machine: str) -> str:
        """Return why another machine of an event is not ready; empty if it is."""
        if self._notice_writer is None:
            return "nobody has looked yet"
        found = await self._notice_writer.find(object_name(SOURCE, notice_id(event.event_id, machine)))
        if found is None:
            return f"machine {machine} is affected, too, and has no notice: is it a node, and does an agent run there?"
        return "" if may_start_early(found) else f"machine {machine} ({found.node}) is affected, too, and is not empty"
