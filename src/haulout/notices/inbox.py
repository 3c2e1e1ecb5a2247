"""Takes what sources report into MaintenanceNotice objects.

    await inbox.take(report)        # returns when the object says so; only then is the message acknowledged

A report may be taken any number of times, by several processes at once and in any order (`haulout.kinds.reports`): each
write rests on the object as it was read, and whoever loses that race reads again. What comes out is the same.
"""

from datetime import timedelta

import msgspec

from haulout.core.backoff import Backoff
from haulout.errors import AlreadyExists, Conflict, NotFound
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice, Spec
from haulout.kinds.reports import Report, merged, noted
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.patches import difference, merge_patch

_PAUSE = Backoff(first=timedelta(milliseconds=20), limit=timedelta(seconds=5), jitter=0.5)


class Inbox:
    """Writes notices."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def take(self, report: Report) -> MaintenanceNotice:
        """Return the notice, once it says what is reported; raises `KubeError` if it cannot be written now."""
        attempt = 0
        while True:
            found = await self.find(report.name)
            try:
                if found is None:
                    return await self._create(report)
                return await self._change(found, report)
            except (AlreadyExists, Conflict, NotFound) as error:
                if found is None and isinstance(error, NotFound):
                    raise  # there is no such kind of object
                attempt += 1  # somebody else was quicker
                await self._client.clock.sleep(_PAUSE.delay(attempt, self._client.random))

    async def of(self, source: str, *, node: str = "") -> list[MaintenanceNotice]:
        """Return all that one source has reported, of one node or of all, and that is not cleared away yet."""
        found = await self._client.list(MAINTENANCE_NOTICES, fields=of_node(node) if node else "")
        return [it for it in found.items if it.spec.source == source]

    async def find(self, name: str) -> MaintenanceNotice | None:
        """Return the notice of this name, as it is now."""
        try:
            return await self._client.get(MAINTENANCE_NOTICES, name)
        except NotFound:
            return None

    async def _create(self, report: Report) -> MaintenanceNotice:
        body: RawObject = {
            "apiVersion": MAINTENANCE_NOTICES.api_version,
            "kind": MAINTENANCE_NOTICES.kind,
            "metadata": {"name": report.name, "annotations": dict(report.notes)},
            "spec": _written(merged(Spec(), report)),
        }
        return await self._client.create(MAINTENANCE_NOTICES, body)

    async def _change(self, found: MaintenanceNotice, report: Report) -> MaintenanceNotice:
        change = difference(_written(found.spec), _written(merged(found.spec, report)))
        notes = noted(found.metadata.annotations, report)
        if not change and not notes:
            return found
        basis: RawObject = {"uid": found.uid, "resourceVersion": found.resource_version}
        if notes:
            basis["annotations"] = notes
        patch = merge_patch({"metadata": basis, "spec": change})
        return await self._client.patch(MAINTENANCE_NOTICES, found.name, patch)


def of_node(node: str) -> str:
    """Return the field selector for notices that name a node."""
    return f"spec.nodeName={node}"


def _written(spec: Spec) -> RawObject:
    written: RawObject = msgspec.to_builtins(spec)
    return written
