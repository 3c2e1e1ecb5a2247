"""What an agent runs: its event source, and the early starter if the source supports that."""

import asyncio
from collections.abc import Sequence

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.controllers.notices.early_start import EarlyStarter
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout.providers.event_source import EarlyStartSource, EventSource
from haulout.providers.notice_writer import NoticeWriter, node_field_selector


class Agent:
    """One event source for one node. There is no leader election: nothing else writes these notices."""

    def __init__(self, client: Client, source: EventSource, *, node: str) -> None:
        self.source = source
        self._notice_writer = NoticeWriter(client)
        self._notices: Informer[MaintenanceNotice] = Informer(
            client, ListWatch(MAINTENANCE_NOTICES, fields=node_field_selector(node)), transform=as_is
        )
        early_start_source = source if isinstance(source, EarlyStartSource) else None
        self._early_starter = (
            EarlyStarter(client, self._notices, early_start_source_of=lambda _: early_start_source)
            if early_start_source
            else None
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.source.run(self._notice_writer))
            if self._early_starter is not None:
                group.create_task(self._notices.run())
                self._notices.subscribe(self._on_notice)
                group.create_task(self._early_starter.run())

    def _on_notice(self, _: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        if new is not None and new.spec.source == self.source.name and self._early_starter is not None:
            self._early_starter.add(new)

    @property
    def is_up(self) -> bool:
        """Whether the event source receives events from its cloud."""
        return self.source.is_up

    def problems(self) -> Sequence[str]:
        """Return one line per problem."""
        problem = self._notices.health().problem if self._early_starter is not None else None
        cache_problems = (f"cannot watch the MaintenanceNotices of this node: {problem}",) if problem else ()
        return (*self.source.problems(), *cache_problems)
