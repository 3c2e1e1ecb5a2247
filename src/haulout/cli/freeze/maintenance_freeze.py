"""Create and delete a MaintenanceFreeze on behalf of a user."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from haulout.api.maintenancefreeze import (
    MAINTENANCE_FREEZES,
    FreezePhase,
    MaintenanceFreeze,
    MaintenanceFreezeSpec,
    phase_at,
)
from haulout.api.objects import RawObject
from haulout.cli.cordon.node_changes import DRY_RUN_SUFFIXES
from haulout.cli.hold.node_hold import current_user
from haulout.cli.output import OutputLine
from haulout.cli.times import parse_instant
from haulout.core.text import format_list
from haulout.errors import HauloutError, NotFound, UsageError
from haulout.kube import selectors
from haulout.kube.client import Client
from haulout.kube.selectors import Requirement, SelectorError
from haulout.runtime.freezes import parse_freeze

_NOT_INSTALLED = "MaintenanceFreezes are not installed in this cluster; `haulout manifests --crds-only` prints them"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeRequest:
    """The options of the command, as given."""

    name: str | None = None
    selector: str | None = None
    start: str | None = None
    until: str | None = None
    reason: str = ""
    by: str | None = None  # None: the authenticated user
    hold_notices: bool = False


async def create_freeze(client: Client, request: FreezeRequest, *, dry_run: str = "none") -> AsyncIterator[OutputLine]:
    """Create a freeze, and yield what was done. Raise `UsageError`, or `KubeError`."""
    now = client.clock.now()
    name = request.name or f"freeze-{now:%Y%m%d-%H%M%S}"
    spec = _spec(request, by=await current_user(client) if request.by is None else request.by, now=now)
    freeze = MaintenanceFreeze(spec=spec)
    if dry_run != "client":
        body = {
            "apiVersion": MAINTENANCE_FREEZES.api_version,
            "kind": MAINTENANCE_FREEZES.kind,
            "metadata": {"name": name},
            "spec": {**msgspec.to_builtins(spec), "except": list(spec.except_)},
        }
        try:
            freeze = await client.create(MAINTENANCE_FREEZES, body, dry_run=dry_run == "server")
        except NotFound:
            raise HauloutError(_NOT_INSTALLED) from None
    yield OutputLine(f"{_resource(name)} created{DRY_RUN_SUFFIXES[dry_run]}", is_result=True)
    yield OutputLine(_text(freeze))


async def delete_freeze(client: Client, name: str | None, *, dry_run: str = "none") -> AsyncIterator[OutputLine]:
    """Delete a freeze, and yield what was done. Raise `HauloutError`."""
    try:
        freeze = await client.get(MAINTENANCE_FREEZES, name) if name else await _only_freeze(client)
    except NotFound:
        raise HauloutError(f'MaintenanceFreeze "{name}" not found' if name else _NOT_INSTALLED) from None
    if dry_run != "client":
        await client.delete(MAINTENANCE_FREEZES, freeze.name, uid=freeze.uid, dry_run=dry_run == "server")
    yield OutputLine(f"{_resource(freeze.name)} deleted{DRY_RUN_SUFFIXES[dry_run]}", is_result=True)
    yield OutputLine(f"was {_text(freeze)}")


async def _only_freeze(client: Client) -> MaintenanceFreeze:
    now = client.clock.now()
    found = [
        item
        for item in (await client.list(MAINTENANCE_FREEZES)).items
        if phase_at(item, now=now).phase is not FreezePhase.ENDED
    ]
    match found:
        case [only]:
            return only
        case []:
            raise HauloutError("nothing is frozen: there is no MaintenanceFreeze that has not ended")
    raise HauloutError(f"there are {len(found)} freezes, name one: {format_list(sorted(item.name for item in found))}")


def _spec(request: FreezeRequest, *, by: str, now: datetime) -> MaintenanceFreezeSpec:
    start, until = _instant("--from", request.start, now), _instant("--until", request.until, now)
    if until is not None and until <= (start or now):
        raise UsageError(f"--until: the end must be after {'--from' if start else 'now'}")
    return MaintenanceFreezeSpec(
        selector=_label_selector(request.selector),
        from_=start,
        until=until,
        reason=request.reason,
        by=by,
        except_=() if request.hold_notices else MaintenanceFreezeSpec().except_,
    )


def _instant(option: str, text: str | None, now: datetime) -> datetime | None:
    try:
        return None if text is None else parse_instant(text, now=now)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{option}: {error}") from None


def _label_selector(text: str | None) -> RawObject:
    """Return the LabelSelector for the text form."""
    try:
        requirements: Sequence[Requirement] = selectors.parse(text or "").requirements
    except SelectorError as error:
        raise UsageError(f"--selector: {error}") from None
    expressions = [
        {"key": item.key, "operator": item.operator, **({"values": list(item.values)} if item.values else {})}
        for item in requirements
    ]
    if any(item["operator"] in ("Gt", "Lt") for item in expressions):
        raise UsageError("--selector: > and < are not possible here, expected such as pool=a,zone!=b")
    return {"matchExpressions": expressions} if expressions else {}


def _text(freeze: MaintenanceFreeze) -> str:
    return str(parse_freeze(freeze).to_hold())


def _resource(name: str) -> str:
    return f"maintenancefreeze.haulout.dev/{name}"
