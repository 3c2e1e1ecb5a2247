"""Having a maintenance begin early, once its node is empty: performMaintenance.

Google's `canReschedule` says that it may begin at once. It can never be moved to a later time.

How things stand is asked first: what goes on already needs no word, and what Google would refuse is refused in words
that people understand. The request has a name of its own for each start of each notice, so that making it twice is
harmless. The operation that follows is waited for a moment, since it may fail at once; one that goes on has been
agreed to, and may take as long as the maintenance.
"""

import uuid
from collections.abc import Mapping
from datetime import timedelta

from haulout.errors import CannotMove, CloudError
from haulout.kinds.notice import MaintenanceNotice, Stage
from haulout.notices.sources.calls import Patient, answered
from haulout.notices.sources.gcp.compute import NOT_FOUND, Compute, Document, explained, is_busy
from haulout.notices.sources.gcp.joining import is_planned
from haulout.notices.sources.gcp.readings import Machine, Unreadable, Upcoming, machine_of, place_of, upcoming_of

_NAMES = uuid.UUID("7d1c6f0e-52a0-4a55-9b0c-6f3f0f5a3f5e")  # any will do, as long as it stays the same
_MOMENT = timedelta(seconds=60)
_UNAUTHORIZED = 401


async def begin(compute: Compute, notice: MaintenanceNotice, *, patient: Patient) -> None:
    """Return once Google has agreed; raises `CannotMove` if it says no, `CloudError` if it says nothing."""
    place = place_of(notice.spec.provider_id)
    if place is None:
        raise CannotMove(f"{notice.name}: {notice.spec.provider_id or 'nothing'} is no machine of Google Cloud")
    if not is_planned(notice):
        raise CannotMove(f"{notice.name}: it begins at once by itself; only what is planned ahead can begin early")
    try:
        document = await patient.ask(lambda: compute.instance(*place), doing=f"asking for instance {place[2]}")
        if _has_begun(notice, *_read(notice, document, project=place[0])):
            return
        asked = await patient.ask(
            lambda: compute.perform_maintenance(*place, request=_request(notice)), doing=f"beginning {notice.name}"
        )
        problem = _problem(await _settled(compute, place, asked))
    except CloudError as error:
        if is_busy(error) or error.status == _UNAUTHORIZED:
            raise
        raise CannotMove(f"{notice.name}: {explained(error)}") from error
    if problem:
        raise CannotMove(f"{notice.name}: Google does not begin it: {problem}")


def _read(notice: MaintenanceNotice, document: Document, *, project: str) -> tuple[Machine, Upcoming | None]:
    status = document.get("resourceStatus")
    try:
        upcoming = upcoming_of(status.get("upcomingMaintenance") if isinstance(status, Mapping) else None)
        return machine_of(document, project=project), upcoming
    except Unreadable as error:
        raise CannotMove(f"{notice.name}: what Google says of the machine makes no sense: {error}") from error


def _has_begun(notice: MaintenanceNotice, machine: Machine, upcoming: Upcoming | None) -> bool:
    if not notice.spec.notice_id.startswith(f"{machine.number}-"):
        raise CannotMove(f"{notice.name}: the machine is gone, and another has its name")
    if upcoming is None or upcoming.stage is Stage.ENDED:
        raise CannotMove(f"{notice.name}: Google plans no maintenance of {machine.name} any more")
    if upcoming.stage is Stage.STARTED:
        return True
    if not upcoming.can_begin_early:
        raise CannotMove(f"{notice.name}: Google does not let it begin early")
    return False


def _request(notice: MaintenanceNotice) -> str:
    start = notice.spec.start
    return str(uuid.uuid5(_NAMES, f"{notice.uid} {'' if start is None else start.isoformat()}"))


async def _settled(compute: Compute, place: tuple[str, str, str], operation: Document) -> Document:
    """Return an operation, if it is done in a moment; otherwise as it was."""
    if operation.get("status") == "DONE" or not operation.get("name"):
        return operation
    project, zone, _ = place
    asking = compute.operation(project, zone, str(operation["name"]))
    try:
        return await answered(asking, doing="waiting for the operation", within=_MOMENT)
    except CloudError as error:
        if error.status in (0, NOT_FOUND) or is_busy(error):
            return operation
        raise


def _problem(operation: Document) -> str:
    failed = operation.get("error")
    errors = failed.get("errors") if isinstance(failed, Mapping) else None
    told = [it.get("message") or it.get("code") for it in errors or () if isinstance(it, Mapping)]
    return "; ".join(str(it) for it in told if it) or str(operation.get("httpErrorMessage") or "")
