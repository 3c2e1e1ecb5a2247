"""The retention of history records as a component of the operator."""

from collections.abc import Iterator
from typing import Any

from haulout.api import maintenancerecord
from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.api.reasons import OperatorEventReason
from haulout.history import permissions
from haulout.history.retention import Retention, RetentionSettings
from haulout.history.writer import HistoryWriter
from haulout.kube.rbac import Permission
from haulout.runtime.component import Component, CustomResource, Leader
from haulout.runtime.tasks import running


class HistoryComponent(Component):
    """Keeps the records of deleted nodes for a time."""

    title, failure_reason, action = "history", OperatorEventReason.HISTORY_FAILED, "RunHistory"

    custom_resource = CustomResource(
        MAINTENANCE_RECORDS, "the history of nodes", maintenancerecord.custom_resource_definition
    )

    @classmethod
    def permissions(cls, settings: Any, *, namespace: str) -> tuple[Permission, ...]:
        del settings, namespace
        return permissions.permissions()

    def __init__(self, settings: RetentionSettings | None = None) -> None:
        super().__init__()
        self.settings = settings or RetentionSettings()
        self.retention: Retention | None = None  # while this replica leads
        self._writer: HistoryWriter | None = None  # it writes nothing, and knows whether the CRD is installed

    async def lead(self, leader: Leader) -> None:
        writer = self._writer = leader.history(self.history_backlog)
        retention = self.retention = Retention(
            leader.client, leader.nodes, is_off=lambda: writer.is_off, settings=self.settings
        )
        writer.subscribe(retention.relist)
        try:
            async with running(writer):
                await retention.run()
        finally:
            self.retention = self._writer = None

    @property
    def is_on(self) -> bool:
        """Whether a history is kept, as far as this replica knows."""
        return self._writer is not None and not self._writer.is_off

    def on_record_created(self, node: str) -> None:
        """Enqueue a node whose MaintenanceRecord was created: the node may be deleted already."""
        if self.retention is not None:
            self.retention.enqueue(node)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.retention is not None:
            yield from self.retention.problems()
