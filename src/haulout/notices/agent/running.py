"""What runs in an agent: its source, and whoever tells the cloud to begin early."""

import asyncio
from collections.abc import Sequence

from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.notices.inbox import Inbox, of_node
from haulout.notices.sources import Source, Starter
from haulout.notices.starting import Starting


class Agent:
    """One source, for one node. There is no leader: nobody else writes these notices."""

    def __init__(self, client: Client, source: Source, *, node: str) -> None:
        self.source = source
        self._inbox = Inbox(client)
        self._notices: Cache[MaintenanceNotice] = Cache(
            client, Selection(MAINTENANCE_NOTICES, fields=of_node(node)), row=as_is
        )
        starter = source if isinstance(source, Starter) else None
        self._starting = Starting(client, self._notices, starter_of=lambda _: starter) if starter else None

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.source.run(self._inbox))
            if self._starting is not None:
                group.create_task(self._notices.run())
                self._notices.subscribe(self._note)
                group.create_task(self._starting.run())

    def _note(self, _: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        if new is not None and new.spec.source == self.source.name and self._starting is not None:
            self._starting.add(new)

    @property
    def is_up(self) -> bool:
        """Tell whether it hears what the cloud says."""
        return self.source.is_up

    def troubles(self) -> Sequence[str]:
        """Return what keeps it from its work, a line each."""
        problem = self._notices.health().problem if self._starting is not None else None
        seen = (f"notices of this node are not followed: {problem}",) if problem else ()
        return (*self.source.troubles(), *seen)
