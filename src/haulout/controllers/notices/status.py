"""The status of a MaintenanceNotice: one way to write it."""

import msgspec

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, MaintenanceNoticeStatus
from haulout.kube.client import Client
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.patches import difference, merge_patch


async def write_status(
    client: Client,
    notices: MutationCache[MaintenanceNotice],
    notice: MaintenanceNotice,
    status: MaintenanceNoticeStatus,
) -> None:
    change = difference(msgspec.to_builtins(notice.status), msgspec.to_builtins(status))
    if change:
        patch = merge_patch({"metadata": notice.preconditions, "status": change})
        notices.record_write(await client.patch(MAINTENANCE_NOTICES, notice.name, patch, subresource="status"))
