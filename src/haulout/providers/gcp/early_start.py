"""Begin a maintenance early, once its node is empty: performMaintenance.

Google's `canReschedule` means that the maintenance may begin at once. It can never be moved to a later time.

The current state is read first: a maintenance that has begun needs no call, and what Google would refuse is refused
with a better message. The request ID is derived from the notice and its start, so that a repeated call is harmless. The
operation is awaited for a short time, since it may fail at once; one that is still running counts as agreed, and may
take as long as the maintenance.
"""

import uuid
from collections.abc import Mapping
from datetime import timedelta

from haulout.api.maintenancenotice import MaintenanceNotice, NoticeStage
from haulout.errors import CloudError, RescheduleRefused
from haulout.providers.gcp.compute_api import NOT_FOUND, Compute, Document, explain_error, is_retryable
from haulout.providers.gcp.correlation import is_planned_ahead
from haulout.providers.gcp.upcoming_maintenance import (
    Machine,
    UnreadableMaintenance,
    UpcomingMaintenance,
    parse_machine,
    parse_provider_id,
    parse_upcoming,
)
from haulout.providers.retry import Retrier, await_with_timeout

_REQUEST_NAMESPACE = uuid.UUID("7d1c6f0e-52a0-4a55-9b0c-6f3f0f5a3f5e")  # arbitrary, but must never change
_OPERATION_TIMEOUT = timedelta(seconds=60)
_UNAUTHORIZED = 401


async def start_early(compute: Compute, notice: MaintenanceNotice, *, retrier: Retrier) -> None:
    """Return once Google has agreed; raise `RescheduleRefused` if it refuses, `CloudError` if it does not answer."""
    location = parse_provider_id(notice.spec.provider_id)
    if location is None:
        raise RescheduleRefused(
            f"{notice.name}: {notice.spec.provider_id or 'nothing'} is not an instance of Google Cloud"
        )
    if not is_planned_ahead(notice):
        raise RescheduleRefused(f"{notice.name}: it begins at once anyway; only planned maintenance can begin early")
    try:
        document = await retrier.call(lambda: compute.instance(*location), doing=f"asking for instance {location[2]}")
        if _has_started(notice, *_parse_instance(notice, document, project=location[0])):
            return
        operation = await retrier.call(
            lambda: compute.perform_maintenance(*location, request_id=_request_id(notice)),
            doing=f"beginning {notice.name}",
        )
        problem = _operation_error(await _wait_for_operation(compute, location, operation))
    except CloudError as error:
        if is_retryable(error) or error.status == _UNAUTHORIZED:
            raise
        raise RescheduleRefused(f"{notice.name}: {explain_error(error)}") from error
    if problem:
        raise RescheduleRefused(f"{notice.name}: Google does not begin it: {problem}")


def _parse_instance(
    notice: MaintenanceNotice, document: Document, *, project: str
) -> tuple[Machine, UpcomingMaintenance | None]:
    status = document.get("resourceStatus")
    try:
        upcoming = parse_upcoming(status.get("upcomingMaintenance") if isinstance(status, Mapping) else None)
        return parse_machine(document, project=project), upcoming
    except UnreadableMaintenance as error:
        raise RescheduleRefused(f"{notice.name}: the instance data of Google cannot be read: {error}") from error


def _has_started(notice: MaintenanceNotice, machine: Machine, upcoming: UpcomingMaintenance | None) -> bool:
    if not notice.spec.notice_id.startswith(f"{machine.number}-"):
        raise RescheduleRefused(f"{notice.name}: the machine is gone, and another has its name")
    if upcoming is None or upcoming.stage is NoticeStage.ENDED:
        raise RescheduleRefused(f"{notice.name}: Google plans no maintenance of {machine.name} any more")
    if upcoming.stage is NoticeStage.STARTED:
        return True
    if not upcoming.can_start_early:
        raise RescheduleRefused(f"{notice.name}: Google does not let it begin early")
    return False


def _request_id(notice: MaintenanceNotice) -> str:
    start = notice.spec.start
    return str(uuid.uuid5(_REQUEST_NAMESPACE, f"{notice.uid} {'' if start is None else start.isoformat()}"))


async def _wait_for_operation(compute: Compute, location: tuple[str, str, str], operation: Document) -> Document:
    """Return the finished operation; if it does not finish in time, return it as it was."""
    if operation.get("status") == "DONE" or not operation.get("name"):
        return operation
    project, zone, _ = location
    pending = compute.operation(project, zone, str(operation["name"]))
    try:
        return await await_with_timeout(pending, doing="waiting for the operation", within=_OPERATION_TIMEOUT)
    except CloudError as error:
        if error.status in (0, NOT_FOUND) or is_retryable(error):
            return operation
        raise


def _operation_error(operation: Document) -> str:
    failed = operation.get("error")
    errors = failed.get("errors") if isinstance(failed, Mapping) else None
    messages = [item.get("message") or item.get("code") for item in errors or () if isinstance(item, Mapping)]
    return "; ".join(str(item) for item in messages if item) or str(operation.get("httpErrorMessage") or "")
