"""Which notice it is about when Google speaks of a machine, and what follows when it does not any more. Pure.

    for report in of_upcoming(machine, upcoming, notices, at=now): …

Google has no name for a maintenance. It shows at most one for each machine, the next; so the notice is named after the
number of the machine and the start that was told first. What is planned for a machine that has an open notice is about
that notice, also at another time: it was moved. Only after one has begun is another start another maintenance.

What is not shown any more is over. Before its start it was cancelled. After it, or once it had begun or was told to
begin, it has ended: few minutes in a window of hours are enough, and nobody may have looked meanwhile.

A notice that was ended because Google did not show it is noted so (`GONE`): if it is shown again there is another
notice. One that a person has called off is left alone.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from haulout.kinds.early import may_have_begun
from haulout.kinds.notice import Kind, MaintenanceNotice, Stage
from haulout.kinds.reports import Plan, Report
from haulout.notices.sources.gcp import SOURCE
from haulout.notices.sources.gcp.readings import MIGRATES, Machine, Upcoming, of_event, of_preemption

GONE = "gcp.haulout.dev/gone-at"
EVENT = "gcp.haulout.dev/maintenance-event"  # that the machine was told of it, too
BOOT = "gcp.haulout.dev/boot"  # when it was announced: the machine was not started since, if that is the same

_NONE = "NONE"
_OVER = (Stage.CANCELLED, Stage.ENDED)
_SAME = timedelta(hours=1)  # so long before its start a machine is told, at most
_LINGERS = timedelta(minutes=10)
_ID = re.compile(r"(?P<number>[0-9]+)-(?:(?P<word>event|preempted)-)?.*")
_STOPPED = (Kind.REBOOT, Kind.STOP, Kind.UNKNOWN)


def is_over(notice: MaintenanceNotice) -> bool:
    """Tell whether nothing more is expected of it."""
    return notice.spec.stage in _OVER


def is_planned(notice: MaintenanceNotice) -> bool:
    """Tell whether it was planned ahead, and is not just told to the machine that it begins."""
    found = _ID.fullmatch(notice.spec.notice_id)
    return found is not None and not found["word"]


def of_upcoming(
    machine: Machine,
    upcoming: Upcoming | None,
    notices: Iterable[MaintenanceNotice],
    *,
    at: datetime,
    node: str = "",
    notes: Mapping[str, str] | None = None,
) -> Iterator[Report]:
    """Yield what follows from what is planned for a machine; None: nothing is, for certain."""
    ours = [it for it in notices if _is_of(it, machine, "")]
    meant = None if upcoming is None else _meant(ours, upcoming)
    for notice in ours:
        if notice is not meant and not is_over(notice):
            yield _gone(notice, at)
    if upcoming is None:
        return
    plan = upcoming.plan(machine)
    if meant is not None:
        said = meant.metadata.annotations
        fresh = {key: value for key, value in (notes or {}).items() if key not in said}
        yield _about(machine, meant.spec.notice_id, at=at, stage=upcoming.stage, plan=plan, node=node, notes=fresh)
    elif upcoming.stage is not Stage.ENDED and (called := _named(machine, upcoming, ours, at)):
        yield _about(machine, called, at=at, stage=upcoming.stage, plan=plan, node=node, notes=notes)


def of_maintenance_event(
    machine: Machine, word: str, notices: Collection[MaintenanceNotice], *, at: datetime, node: str = ""
) -> Iterator[Report]:
    """Yield what follows from the key maintenance-event: something happens at once, or is over."""
    told = [it for it in notices if not is_over(it) and _is_of(it, machine, "event")]
    planned = [it for it in notices if _is_of(it, machine, "")]
    if word == _NONE:
        yield from (_gone(it, at, stage=Stage.ENDED) for it in told)
        return
    if any(_is_just_over(it, word, at) for it in planned):
        return  # the keys do not change in the same instant
    near = next((it for it in planned if not is_over(it) and _is_near(it, at)), None)
    if near is not None:
        yield from (_gone(it, at, stage=Stage.ENDED) for it in told)  # it is the same, as is known now
        if EVENT not in near.metadata.annotations:
            yield _about(machine, near.spec.notice_id, at=at, node=node, notes={EVENT: word})
        return
    same = next((it for it in told if it.spec.reason == word), None)
    yield from (_gone(it, at, stage=Stage.ENDED) for it in told if it is not same)
    if same is None:
        called = f"{machine.number}-event-{_stamp(at)}"
        yield _about(machine, called, at=at, plan=of_event(machine, word, at=at), node=node)


def of_preempted(
    machine: Machine, *, is_preempted: bool, notices: Iterable[MaintenanceNotice], at: datetime, node: str = ""
) -> Iterator[Report]:
    """Yield what follows from the key preempted: the machine is taken back, or runs again."""
    told = [it for it in notices if _is_of(it, machine, "preempted") and not is_over(it)]
    if not is_preempted:
        yield from (_gone(it, at, stage=Stage.ENDED) for it in told)
    elif not told:
        called = f"{machine.number}-preempted-{_stamp(at)}"
        yield _about(machine, called, at=at, plan=of_preemption(at=at), node=node)


def of_silence(
    machine: Machine, notices: Iterable[MaintenanceNotice], *, word: str, boot: str, at: datetime
) -> Iterator[Report]:
    """Yield what is over though the metadata server does not know what is planned: a new host was told nothing yet.

    Only what did happen says so: the machine was told that it begins and then that it is over, or was started since.
    """
    for notice in notices:
        if is_over(notice) or word != _NONE or not _is_of(notice, machine, ""):
            continue
        start, said = notice.spec.start, notice.metadata.annotations
        has_begun = notice.spec.stage == Stage.STARTED or start is None or at >= start
        was_started = bool(boot) and said.get(BOOT, boot) != boot and notice.spec.kind in _STOPPED
        was_moved = said.get(EVENT, "").startswith(MIGRATES)
        if (has_begun and was_started) or was_moved:
            yield _gone(notice, at, stage=Stage.ENDED)


def of_absence(machine_number: str, notices: Iterable[MaintenanceNotice], *, at: datetime) -> Iterator[Report]:
    """Yield what is over since a machine is gone, or another has its name; the number is that of the one there is."""
    for notice in notices:
        found = _ID.fullmatch(notice.spec.notice_id)
        if found is not None and found["number"] != machine_number and not is_over(notice):
            yield _gone(notice, at)


def ending(notice: MaintenanceNotice, at: datetime) -> Stage:
    """Return how something ended that is not shown any more: before its start it was cancelled, unless we began it."""
    spec = notice.spec
    is_ahead = spec.stage in ("", Stage.SCHEDULED) and spec.start is not None and at < spec.start
    return Stage.CANCELLED if is_ahead and not may_have_begun(notice) else Stage.ENDED


def _is_of(notice: MaintenanceNotice, machine: Machine, word: str) -> bool:
    found = _ID.fullmatch(notice.spec.notice_id)
    return found is not None and found["number"] == machine.number and (found["word"] or "") == word


def _meant(notices: Iterable[MaintenanceNotice], upcoming: Upcoming) -> MaintenanceNotice | None:
    """Return the open notice that a maintenance is about."""
    known = [it for it in notices if not is_over(it)]
    same = [it for it in known if it.spec.start == upcoming.start]
    moved = [it for it in known if upcoming.stage is not Stage.SCHEDULED or it.spec.stage != Stage.STARTED]
    return next(iter((*same, *moved)), None)


def _named(machine: Machine, upcoming: Upcoming, notices: Sequence[MaintenanceNotice], at: datetime) -> str:
    """Return what to call a maintenance that has no open notice; empty if somebody has called it off."""
    called = f"{machine.number}-{_stamp(upcoming.start or at)}"
    before = [it for it in notices if it.spec.notice_id.startswith(called)]
    if not before:
        return called
    is_back = all(GONE in it.metadata.annotations for it in before)
    return f"{called}-{_stamp(at)}" if is_back else ""


def _is_near(notice: MaintenanceNotice, at: datetime) -> bool:
    start = notice.spec.start
    return notice.spec.stage == Stage.STARTED or start is None or at >= start - _SAME


def _is_just_over(notice: MaintenanceNotice, word: str, at: datetime) -> bool:
    said = notice.metadata.annotations
    is_told = is_over(notice) and said.get(EVENT) == word
    return is_told and said.get(GONE, "") >= _written(at - _LINGERS)


def _gone(notice: MaintenanceNotice, at: datetime, *, stage: Stage | None = None) -> Report:
    spec = notice.spec
    return Report(
        source=SOURCE,
        notice_id=spec.notice_id,
        at=at,
        provider_id=spec.provider_id,
        node_name=spec.node_name,
        stage=stage or ending(notice, at),
        notes={GONE: _written(at)},
    )


def _about(
    machine: Machine,
    called: str,
    *,
    at: datetime,
    stage: Stage = Stage.SCHEDULED,
    plan: Plan | None = None,
    node: str = "",
    notes: Mapping[str, str] | None = None,
) -> Report:
    return Report(
        source=SOURCE,
        notice_id=called,
        at=at,
        provider_id=machine.provider_id,
        node_name=node,
        stage=stage,
        plan=plan,
        notes=notes or {},
    )


def _stamp(instant: datetime) -> str:
    return f"{instant:%Y%m%dt%H%M%S}"


def _written(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"
