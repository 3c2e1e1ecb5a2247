"""Asks clouds to move maintenance to a time that suits the cluster.

A maintenance is moved if its source can do that (`spec.reschedulable`, and the source is a `Mover`) and the calendar of
whoever will empty its node does not allow the planned time, but allows a later one before the deadline.

It is asked for once for each start that the source plans. What is asked for is written down before, and what came of it
after (status.reschedule, the condition Rescheduled, and the history). So whoever takes over after a crash asks for the
same time again, which is harmless, and never for another one. Two who both believe they lead ask for the same time,
too: one of them wrote it down, the other was refused.

A cloud that does not answer is asked again, with pauses, until the start is too near. One that says no is believed.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from haulout.core.backoff import Backoff
from haulout.errors import CannotMove, Conflict, NotFound, OutsideError
from haulout.kinds.notice import (
    MAINTENANCE_NOTICES,
    MaintenanceNotice,
    NoticeCondition,
    Phase,
    Reschedule,
    Stage,
    Status,
)
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Node, StatusCondition
from haulout.kube.patches import difference, merge_patch
from haulout.kube.queue import Queue
from haulout.notices.happenings import Happening
from haulout.notices.review import remembered, with_condition
from haulout.notices.sources import Mover

log = logging.getLogger(__name__)

_TOO_NEAR = timedelta(minutes=5)
_MOST_ASKED = 5  # starts of one maintenance: a cloud that plans again and again is not argued with
_LOOKS_AGAIN_AFTER = timedelta(minutes=10)  # a calendar may have changed; looking costs no request
_PAUSE = Backoff(first=timedelta(seconds=30), limit=timedelta(minutes=10), jitter=0.3)
_WORKERS = 4

# The first start from the planned one on that suits the node, which is the planned one if that does; None: nobody
# minds, nobody can tell, or nothing suits before the deadline.
Calendar = Callable[[Node, MaintenanceNotice], datetime | None]
MoverOf = Callable[[str], Mover | None]  # by what `spec.source` says
Tell = Callable[[MaintenanceNotice, Happening], object]


def nobody_minds(node: Node, notice: MaintenanceNotice) -> None:
    """Have every start suit."""
    del node, notice


class Answer(StrEnum):
    """The reasons of the condition Rescheduled."""

    ASKING = "Asking"
    AGREED = "Agreed"
    REFUSED = "Refused"
    NO_ANSWER = "NoAnswer"


@dataclass(frozen=True, slots=True)
class Ask:
    """The source is to be asked, for what is written down already."""

    to: datetime


@dataclass(frozen=True, slots=True)
class Note:
    """Something is to be written down."""

    status: Status
    happening: Happening


def is_movable(notice: MaintenanceNotice, *, now: datetime) -> bool:
    """Tell whether it makes sense to ask for another time."""
    spec = notice.spec
    is_pending = notice.status.phase in (Phase.PLANNED, Phase.DUE) and spec.stage in ("", Stage.SCHEDULED)
    is_seen = notice.status.start == spec.start  # else its history does not tell yet what is planned
    return spec.reschedulable and is_pending and is_seen and spec.start is not None and now < spec.start - _TOO_NEAR


def decided(notice: MaintenanceNotice, *, now: datetime, suits: Callable[[], datetime | None]) -> Ask | Note | None:
    """Return what to do next about a notice; None: nothing. `suits` is asked for a start only if that matters."""
    asked, start, waits_for = notice.status.reschedule, notice.spec.start, _waits_for(notice)
    if asked is not None and waits_for is not None:
        if start == waits_for:
            return answered(notice, Answer.AGREED, f"{notice.spec.source} moved it to {_told(waits_for)}", now=now)
        if is_movable(notice, now=now) and start == asked.from_:
            return Ask(waits_for)
        why = "it was planned anew meanwhile" if start != asked.from_ else "it cannot be moved any more"
        return answered(notice, Answer.NO_ANSWER, f"no answer about {_told(waits_for)}: {why}", now=now)
    if not is_movable(notice, now=now) or start is None:
        return None
    if asked is not None and (start in (asked.from_, asked.to) or asked.asked >= _MOST_ASKED):
        return None
    to = suits()
    return None if to is None or to <= start else _asking(notice, start, to, now=now)


def _waits_for(notice: MaintenanceNotice) -> datetime | None:
    """Return the start that was asked for, and of which nobody has said yet what came of it."""
    asked, said = notice.status.reschedule, notice.status.condition(NoticeCondition.RESCHEDULED)
    is_open = said is not None and said.reason == Answer.ASKING
    return asked.to if asked is not None and is_open else None


def _asking(notice: MaintenanceNotice, start: datetime, to: datetime, *, now: datetime) -> Note:
    before = notice.status.reschedule
    what = f"asking {notice.spec.source} for {_told(to)}, since {_told(start)} is outside of all windows"
    status = msgspec.structs.replace(
        _said(notice, Answer.ASKING, what, now=now),
        reschedule=Reschedule(from_=start, to=to, asked=1 if before is None else before.asked + 1),
    )
    return Note(status, Happening("MaintenanceMoveAsked", what))


def answered(notice: MaintenanceNotice, answer: Answer, what: str, *, now: datetime) -> Note:
    """Return that the source has answered, or never will."""
    is_bad = answer is not Answer.AGREED
    happening = Happening(f"MaintenanceMove{answer}", what, notice.spec.source, is_bad=is_bad)
    return Note(_said(notice, answer, what, now=now, happening=happening), happening)


def _said(
    notice: MaintenanceNotice, answer: Answer, what: str, *, now: datetime, happening: Happening | None = None
) -> Status:
    told = {Answer.ASKING: "Unknown", Answer.AGREED: "True"}.get(answer, "False")
    condition = StatusCondition(
        type=NoticeCondition.RESCHEDULED,
        status=told,
        reason=answer,
        message=what,
        observed_generation=notice.metadata.generation,
    )
    entry = happening or Happening("", what)
    return msgspec.structs.replace(
        notice.status,
        conditions=with_condition(notice.status, condition, now=now),
        history=remembered(notice, (entry,), now=now),
    )


def _told(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M} UTC"


class Moving:
    """Asks for other times; the owner runs `run`, and says by `add` which notices have changed."""

    def __init__(
        self,
        client: Client,
        notices: Cache[MaintenanceNotice],
        *,
        node_of: Callable[[MaintenanceNotice], Node | None],
        mover_of: MoverOf,
        calendar: Calendar,
        tell: Tell,
    ) -> None:
        self._client = client
        self._notices = notices
        self._node_of = node_of
        self._mover_of = mover_of
        self._calendar = calendar
        self._tell = tell
        self._failures: dict[str, int] = {}
        self._queue: Queue[str] = Queue(
            self._work,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            meters=client.meters,
            name="moving notices",
        )

    def add(self, notice: MaintenanceNotice) -> None:
        """Look at a notice soon, if its source can be asked."""
        if notice.spec.reschedulable or notice.status.reschedule is not None:
            self._queue.add(notice.name)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.run()

    async def _work(self, name: str) -> datetime | None:
        notice = self._notices.get(name)
        mover = None if notice is None else self._mover_of(notice.spec.source)
        if notice is None or mover is None:
            self._failures.pop(name, None)
            return None
        now = self._client.clock.now()
        match decided(notice, now=now, suits=lambda: self._suits(notice)):
            case Ask(to):
                return await self._ask(notice, mover, to)
            case Note() as note:
                await self._write(notice, note)
                return None  # the watch will tell
        return now + _LOOKS_AGAIN_AFTER if is_movable(notice, now=now) else None

    def _suits(self, notice: MaintenanceNotice) -> datetime | None:
        node = self._node_of(notice)
        return None if node is None else self._calendar(node, notice)

    async def _ask(self, notice: MaintenanceNotice, mover: Mover, to: datetime) -> datetime | None:
        source = notice.spec.source
        try:
            await mover.move(notice, to)
        except CannotMove as error:
            answer, what = Answer.REFUSED, f"{source} does not move it to {_told(to)}: {error}"
        except OutsideError as error:
            failures = self._failures[notice.name] = self._failures.get(notice.name, 0) + 1
            log.warning("%s: asking %s for %s: %s; trying again", notice.name, source, _told(to), error)
            return self._client.clock.now() + _PAUSE.delay(failures, self._client.random)
        else:
            answer, what = Answer.AGREED, f"{source} agreed to begin at {_told(to)}"
        self._failures.pop(notice.name, None)
        latest = self._notices.get(notice.name)
        if latest is not None and latest.uid == notice.uid and _waits_for(latest) == to:
            await self._write(latest, answered(latest, answer, what, now=self._client.clock.now()))
        return None

    async def _write(self, notice: MaintenanceNotice, note: Note) -> None:
        change = difference(msgspec.to_builtins(notice.status), msgspec.to_builtins(note.status))
        basis = {"uid": notice.uid, "resourceVersion": notice.resource_version}
        patch = merge_patch({"metadata": basis, "status": change})
        try:
            await self._client.patch(MAINTENANCE_NOTICES, notice.name, patch, subresource="status")
        except (Conflict, NotFound) as error:
            log.debug("notice %s is not as it was: %s", notice.name, error)
            return  # the watch will tell, and it is asked again for the same
        self._tell(notice, note.happening)
