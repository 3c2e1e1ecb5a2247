"""Has an event begin before its time, once every machine that it is about is ready.

To tell Azure to begin is to tell it for all machines of the event. So each agent, when its own node is empty, looks at
the notices of the others, whose names follow from the event: only when each of them says Emptied, too, is Azure told. A
machine that has no notice is not known to us, or has no agent: then the event begins at its time, as without us.

Whoever is the last to be ready sees all others ready. Several may tell Azure at once, which is harmless.
"""

from datetime import timedelta

from haulout.core import duration
from haulout.errors import CannotMove, CloudError
from haulout.kinds.notice import MaintenanceNotice, name_of
from haulout.notices.sources.azure.reading import SOURCE, Event, notice_id, parts
from haulout.notices.sources.azure.source import AzureSource
from haulout.notices.starting import may_begin

_NEW_ENOUGH = timedelta(seconds=10)  # a document, while one comes every second
_REFUSED = 400


class AzureStarter(AzureSource):
    """The same source, which also tells Azure to begin."""

    async def obstacle(self, notice: MaintenanceNotice) -> str:
        """Return what is in the way; nothing, if it has begun."""
        silence = self.silence()
        if silence is None or silence > _NEW_ENOUGH:
            ago = "yet" if silence is None else f"for {duration.short(silence)}"
            return f"Azure has not said {ago} how things are"
        event = self._event(notice)
        if event is None:
            return "Azure does not show it any more"
        if event.has_begun:
            return ""
        for machine in event.resources:
            if machine.lower() != self.machine.lower() and (why := await self._laggard(event, machine)):
                return why
        return ""

    async def begin(self, notice: MaintenanceNotice) -> None:
        """Tell Azure to begin; nothing happens if it has. Raises `CannotMove` if there is nothing to begin."""
        event = self._event(notice)
        if event is None:
            raise CannotMove("Azure does not show it any more")
        if event.has_begun:
            return
        try:
            await self._metadata.begin(event.event_id)
        except CloudError as error:
            if error.status == _REFUSED:
                raise CannotMove(f"Azure says no: {error.message}") from error
            raise

    def _event(self, notice: MaintenanceNotice) -> Event | None:
        return None if self.document is None else self.document.event(*parts(notice.spec.notice_id))

    async def _laggard(self, event: Event, machine: str) -> str:
        """Return why another machine of an event is not ready; empty if it is."""
        if self._inbox is None:
            return "nobody has looked yet"
        found = await self._inbox.find(name_of(SOURCE, notice_id(event.event_id, machine)))
        if found is None:
            return f"machine {machine} is affected, too, and has no notice: is it a node, and does an agent run there?"
        return "" if may_begin(found) else f"machine {machine} ({found.node}) is affected, too, and is not empty"
