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
from haulout.kinds.reports import Report, merged
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
            try:
                found = await self._find(report.name)
                if found is None:
                    return await self._create(report)
                return await self._change(found, merged(found.spec, report))
            except (AlreadyExists, Conflict, NotFound):
                attempt += 1  # somebody else was quicker
                await self._client.clock.sleep(_PAUSE.delay(attempt, self._client.random))

    async def _find(self, name: str) -> MaintenanceNotice | None:
        try:
            return await self._client.get(MAINTENANCE_NOTICES, name)
        except NotFound:
            return None

    async def _create(self, report: Report) -> MaintenanceNotice:
        body: RawObject = {
            "apiVersion": MAINTENANCE_NOTICES.api_version,
            "kind": MAINTENANCE_NOTICES.kind,
            "metadata": {"name": report.name},
            "spec": _written(merged(Spec(), report)),
        }
        return await self._client.create(MAINTENANCE_NOTICES, body)

    async def _change(self, found: MaintenanceNotice, spec: Spec) -> MaintenanceNotice:
        change = difference(_written(found.spec), _written(spec))
        if not change:
            return found
        basis = {"uid": found.uid, "resourceVersion": found.resource_version}
        patch = merge_patch({"metadata": basis, "spec": change})
        return await self._client.patch(MAINTENANCE_NOTICES, found.name, patch)


def _written(spec: Spec) -> RawObject:
    written: RawObject = msgspec.to_builtins(spec)
    return written
