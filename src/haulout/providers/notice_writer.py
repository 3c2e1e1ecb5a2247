"""Takes what sources report into MaintenanceNotice objects.

    await inbox.take(report)        # returns when the object says so; only then is the message acknowledged

A report may be taken any number of times, by several processes at once and in any order
(`haulout.api.notice_reports`): each write rests on the object as it was read, and whoever loses that race reads again.
What comes out is the same.
"""

from datetime import timedelta

import msgspec

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, MaintenanceNoticeSpec
from haulout.api.notice_reports import NoticeReport, merge_report, missing_annotations
from haulout.api.objects import RawObject
from haulout.core.backoff import Backoff
from haulout.errors import AlreadyExists, Conflict, NotFound
from haulout.kube.client import Client
from haulout.kube.patches import difference, merge_patch

_CONFLICT_BACKOFF = Backoff(first=timedelta(milliseconds=20), limit=timedelta(seconds=5), jitter=0.5)


class NoticeWriter:
    """Writes notices."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def write(self, report: NoticeReport) -> MaintenanceNotice:
        """Return the notice, once it says what is reported; raises `KubeError` if it cannot be written now."""
        attempt = 0
        while True:
            found = await self.find(report.name)
            try:
                if found is None:
                    return await self._create(report)
                return await self._update(found, report)
            except (AlreadyExists, Conflict, NotFound) as error:
                if found is None and isinstance(error, NotFound):
                    raise  # there is no such kind of object
                attempt += 1  # somebody else was quicker
                await self._client.clock.sleep(_CONFLICT_BACKOFF.delay(attempt, self._client.random))

    async def list_by_source(self, source: str, *, node: str = "") -> list[MaintenanceNotice]:
        """Return all that one source has reported, of one node or of all, and that is not cleared away yet."""
        found = await self._client.list(MAINTENANCE_NOTICES, fields=node_field_selector(node) if node else "")
        return [notice for notice in found.items if notice.spec.source == source]

    async def find(self, name: str) -> MaintenanceNotice | None:
        """Return the notice of this name, as it is now."""
        try:
            return await self._client.get(MAINTENANCE_NOTICES, name)
        except NotFound:
            return None

    async def _create(self, report: NoticeReport) -> MaintenanceNotice:
        body: RawObject = {
            "apiVersion": MAINTENANCE_NOTICES.api_version,
            "kind": MAINTENANCE_NOTICES.kind,
            "metadata": {"name": report.name, "annotations": dict(report.notes)},
            "spec": _to_builtins(merge_report(MaintenanceNoticeSpec(), report)),
        }
        return await self._client.create(MAINTENANCE_NOTICES, body)

    async def _update(self, found: MaintenanceNotice, report: NoticeReport) -> MaintenanceNotice:
        change = difference(_to_builtins(found.spec), _to_builtins(merge_report(found.spec, report)))
        annotations = missing_annotations(found.metadata.annotations, report)
        if not change and not annotations:
            return found
        metadata: RawObject = {"uid": found.uid, "resourceVersion": found.resource_version}
        if annotations:
            metadata["annotations"] = annotations
        patch = merge_patch({"metadata": metadata, "spec": change})
        return await self._client.patch(MAINTENANCE_NOTICES, found.name, patch)


def node_field_selector(node: str) -> str:
    """Return the field selector for notices that name a node."""
    return f"spec.nodeName={node}"


def _to_builtins(spec: MaintenanceNoticeSpec) -> RawObject:
    builtins: RawObject = msgspec.to_builtins(spec)
    return builtins
