"""What Google says about a machine and the maintenance that is planned for it. Pure.

    machine = machine_of(document)                      # of the Compute API
    upcoming = upcoming_of(document["resourceStatus"]["upcomingMaintenance"])

The metadata server and the Compute API say the same in two spellings: `can_reschedule: "true"` and `canReschedule:
true`. What is not needed may be missing or make no sense. A start that cannot be read is `Unreadable`: without it
nobody knows when to empty the node.

A machine either moves to another host while it runs, or is stopped and, if it is set to, started elsewhere: to a node
that is a reboot. A live migration that is announced a minute before stands still for less than a second, and a drain
would not be over before it: that is a Freeze. One that is planned ahead is a Migrate.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from haulout.core import gotime
from haulout.core.walltime import EARLIEST, LATEST
from haulout.kinds.notice import Kind, Stage
from haulout.kinds.reports import Plan

MIGRATES, TERMINATES = "MIGRATE", "TERMINATE"

_PROVIDER_ID = re.compile(r"gce://(?P<project>[^/\s]+)/(?P<zone>[^/\s]+)/(?P<name>[^/\s]+)")
_NUMBER = re.compile(r"[0-9]{1,20}")
_STAGES = {"ONGOING": Stage.STARTED, "COMPLETE": Stage.ENDED, "COMPLETED": Stage.ENDED}
_LONGEST_REASON = 1024  # as the schema of notices has it
_LONGEST_DESCRIPTION = 4096
_TOLD_AHEAD = timedelta(seconds=60)
_PREEMPTED_AFTER = timedelta(seconds=30)
_MOVED_AFTER = timedelta(minutes=5)

Document = Mapping[str, Any]


class Unreadable(ValueError):
    """It is about the maintenance of a machine, and makes no sense: what was found, and what was expected."""


class Unheard(Unreadable):
    """The metadata server has not heard of any maintenance yet, which does not say that none is planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """An instance; another that gets its name has another number."""

    project: str
    zone: str
    name: str
    number: str
    on_maintenance: str = ""  # MIGRATE or TERMINATE; empty: not known
    is_restarted: bool = True  # after it was stopped for maintenance

    @property
    def provider_id(self) -> str:
        """What its node says of it."""
        return f"gce://{self.project}/{self.zone}/{self.name}"

    @property
    def kind(self) -> Kind:
        """What maintenance of its host means to it."""
        if self.on_maintenance == MIGRATES:
            return Kind.MIGRATE
        if self.on_maintenance == TERMINATES:
            return Kind.REBOOT if self.is_restarted else Kind.STOP
        return Kind.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """A maintenance that is planned, or goes on."""

    start: datetime | None = None
    end: datetime | None = None
    deadline: datetime | None = None  # the latest start
    stage: Stage = Stage.SCHEDULED
    can_begin_early: bool = False
    reason: str = ""
    description: str = ""

    def plan(self, machine: Machine) -> Plan:
        """Return what a notice says of it. It can begin earlier, and never be moved to a later time."""
        return Plan(
            kind=machine.kind,
            reason=self.reason,
            description=self.description,
            start=self.start,
            end=self.end,
            deadline=self.deadline,
        )


def place_of(provider_id: str) -> tuple[str, str, str] | None:
    """Return project, zone and name, as the providerID of a node has them; None if it is no machine of Google's."""
    found = _PROVIDER_ID.fullmatch(provider_id.strip())
    return None if found is None else (found["project"], found["zone"], found["name"])


def machine_of(document: Document, *, project: str) -> Machine:
    """Return the machine that an instance of the Compute API is; raises `Unreadable`."""
    name, number = _text(document, "name"), str(document.get("id") or "")
    zone = _text(document, "zone").rpartition("/")[2]
    if not name or not zone or not _NUMBER.fullmatch(number):
        raise Unreadable(f"expected an instance with id, name and zone, found {dict(document)!r:.120}")
    return scheduled(Machine(project=project, zone=zone, name=name, number=number), document.get("scheduling"))


def scheduled(machine: Machine, options: object) -> Machine:
    """Return a machine with what its scheduling options say, in either spelling."""
    said = _plain(options) if isinstance(options, Mapping) else {}
    return replace(
        machine,
        on_maintenance=str(said.get("onhostmaintenance") or "").strip().upper(),
        is_restarted=_is_true(said.get("automaticrestart", True)),
    )


def upcoming_of(document: object) -> Upcoming | None:
    """Return the maintenance that is told of; None if none is. Raises `Unreadable`."""
    if document is None:
        return None
    if not isinstance(document, Mapping):
        raise Unreadable(f"expected an object, found {document!r:.100}")
    said = _plain(document)
    if len(said) == 1 and isinstance(inner := next(iter(said.values())), Mapping):
        said = _plain(inner)  # under a title, as in Google's own examples
    if not any(said.values()):
        return None
    if "error" in said:
        raise Unheard(f"expected a maintenance, found the error {said['error']!r:.100}")
    start = _instant(said, "windowStartTime")
    return Upcoming(
        start=start,
        end=_from(start, _instant_if_any(said, "windowEndTime")),
        deadline=_from(start, _instant_if_any(said, "latestWindowStartTime")),
        stage=_STAGES.get(str(said.get("maintenancestatus")).upper(), Stage.SCHEDULED),
        can_begin_early=_is_true(said.get("canreschedule", False)),
        reason=_reason(said)[:_LONGEST_REASON],
        description=_description(said)[:_LONGEST_DESCRIPTION],
    )


def of_event(machine: Machine, word: str, *, at: datetime) -> Plan:
    """Return what the key maintenance-event says; when exactly is told only of a live migration."""
    if word.startswith(MIGRATES):
        return Plan(
            kind=Kind.FREEZE,
            reason=word,
            description="live migration to another host",
            start=at + _TOLD_AHEAD,
            end=at + _TOLD_AHEAD + _MOVED_AFTER,
        )
    kind = Kind.REBOOT if machine.is_restarted else Kind.STOP
    return Plan(kind=kind, reason=word, description="the machine is stopped for maintenance of its host")


def of_preemption(*, at: datetime) -> Plan:
    """Return that a machine is taken back."""
    return Plan(
        kind=Kind.TERMINATE,
        reason="PREEMPTED",
        description="Compute Engine takes the machine back",
        start=at + _PREEMPTED_AFTER,
    )


def _plain(document: Mapping[Any, Any]) -> dict[str, Any]:
    """Return it with names that are the same in both spellings."""
    return {str(key).replace("_", "").replace("-", "").lower(): value for key, value in document.items()}


def _text(document: Document, key: str) -> str:
    found = document.get(key)
    return found.strip() if isinstance(found, str) else ""


def _is_true(found: object) -> bool:
    return found is True or str(found).strip().lower() == "true"


def _words(found: object) -> list[str]:
    values = found if isinstance(found, Sequence) and not isinstance(found, str) else [found]
    return [it.strip() for it in values if isinstance(it, str) and it.strip()]


def _reason(said: Document) -> str:
    return ", ".join(_words(said.get("maintenancereasons")) or _words(said.get("type")) or ["UNKNOWN"])


def _description(said: Document) -> str:
    kind = (_words(said.get("type")) or [""])[0].lower().replace("_", " ")
    told = [f"{kind} maintenance of the host" if kind in ("scheduled", "unscheduled") else "maintenance of the host"]
    if _is_true(said.get("maintenanceonshutdown", False)):
        told.append("done when the machine is shut down")
    if _is_true(said.get("canreschedule", False)):
        told.append("it can begin early")
    return ", ".join(told)


def _instant(said: Document, key: str) -> datetime | None:
    written = said.get(key.lower())
    if written is None or written == "":
        return None
    try:
        found = gotime.parse(str(written)).instant.replace(microsecond=0)
    except ValueError:
        raise Unreadable(f"expected an instant as {key}, found {written!r:.60}") from None
    if not EARLIEST <= found < LATEST:
        raise Unreadable(f"expected an instant of our days as {key}, found {written!r:.60}")
    return found


def _instant_if_any(said: Document, key: str) -> datetime | None:
    try:
        return _instant(said, key)
    except Unreadable:
        return None


def _from(start: datetime | None, later: datetime | None) -> datetime | None:
    return later if later is not None and (start is None or start <= later) else None
