"""Tells clouds to begin, once a node has been emptied for a maintenance that would begin later by itself.

A node that is empty and waits costs capacity. So a source that can be told (a `Starter`) is told as soon as the notice
says Emptied, once for each start that it plans. That it is told is written down before, and what came of it after
(`haulout.kinds.early`), each on the object as it was seen: whoever takes over after a crash tells it again, which is
harmless, and whoever has an old view is refused.

A source that has to wait for others (`Hesitant`) is asked for what is in the way each time before.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from haulout.core.backoff import Backoff
from haulout.errors import CannotMove, CloudError, Conflict, NotFound, OutsideError
from haulout.kinds.early import Answer, Early, early_of
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticeCondition, Phase, Stage
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.queue import Queue
from haulout.notices.sources import Hesitant, Starter

log = logging.getLogger(__name__)

_LOOKS_AGAIN_AFTER = timedelta(seconds=15)  # while something is in the way
_PAUSE = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=1), jitter=0.3)
_WORKERS = 4

StarterOf = Callable[[str], Starter | None]  # by what `spec.source` says


@dataclass(frozen=True, slots=True)
class Begin:
    """The source is to be told, which is written down already."""

    early: Early


def decided(notice: MaintenanceNotice, *, now: datetime) -> Begin | Early | None:
    """Return what to do next about a notice: tell, write down, or nothing."""
    early, stage = early_of(notice), notice.spec.stage
    if early is not None and early.answer is not Answer.ASKING:
        return None
    if early is not None and stage == Stage.STARTED:
        return answered(
            early, Answer.AGREED, f"{notice.node} is empty: {notice.spec.source} was told to begin, and has begun"
        )
    if not may_begin(notice):
        return None
    if early is not None:
        return Begin(early)
    said = f"{notice.node} is empty: {notice.spec.source} is told to begin"
    return Early(start=notice.spec.start, asked_at=now.replace(microsecond=0), said=said)


def may_begin(notice: MaintenanceNotice) -> bool:
    """Tell whether a maintenance has not begun, and its node was emptied for what is planned now."""
    status = notice.status
    said = status.condition(NoticeCondition.EMPTIED)
    is_pending = notice.spec.stage in ("", Stage.SCHEDULED) and status.phase == Phase.DUE
    is_seen = status.observed_generation == notice.metadata.generation
    return is_pending and is_seen and said is not None and said.status == "True"


def answered(early: Early, answer: Answer, said: str) -> Early:
    """Return that the source has answered."""
    return msgspec.structs.replace(early, answer=answer, said=said)


class Starting:
    """Tells sources; the owner runs `run`, and says by `add` which notices have changed."""

    def __init__(self, client: Client, notices: Cache[MaintenanceNotice], *, starter_of: StarterOf) -> None:
        self._client = client
        self._notices = notices
        self._starter_of = starter_of
        self._failures: dict[str, int] = {}
        self._rests: dict[str, datetime] = {}  # until when the source is left alone, after it failed
        self._waits: dict[str, str] = {}  # for what, as it was logged last
        self._answers: dict[tuple[str, Early], Early] = {}  # that could not be written yet
        self._queue: Queue[str] = Queue(
            self._work,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            meters=client.meters,
            name="starting notices",
        )

    def add(self, notice: MaintenanceNotice) -> None:
        """Look at a notice soon, if there is anything to see."""
        if notice.status.condition(NoticeCondition.EMPTIED) is not None:
            self._queue.add(notice.name)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.run()

    async def _work(self, name: str) -> datetime | None:
        notice = self._notices.get(name)
        starter = None if notice is None else self._starter_of(notice.spec.source)
        step = None if notice is None else decided(notice, now=self._client.clock.now())
        if notice is None or starter is None or step is None:
            self._forget(name)
            return None
        if isinstance(step, Early):
            return await self._ask(notice, starter, step)
        if (name, step.early) not in self._answers:
            return await self._tell(notice, starter, step.early)
        await self._write(notice, self._answers[name, step.early])
        return None

    async def _ask(self, notice: MaintenanceNotice, starter: Starter, early: Early) -> datetime | None:
        """Write down that the source is told, or what came of that, unless something is in the way."""
        if early.answer is Answer.ASKING and (waits := await self._waiting(notice, starter)):
            return waits
        await self._write(notice, early)
        return None  # the watch will tell

    async def _tell(self, notice: MaintenanceNotice, starter: Starter, early: Early) -> datetime | None:
        """Tell the source, and keep what it said until that is written."""
        if waits := await self._waiting(notice, starter):
            return waits
        try:
            answer = await _told(starter, notice, early)
        except OutsideError as error:
            return self._failed(notice, error)
        self._answers[notice.name, early] = answer
        await self._write(self._notices.get(notice.name) or notice, answer)
        return None

    async def _waiting(self, notice: MaintenanceNotice, starter: Starter) -> datetime | None:
        """Return when to look again, if something is in the way."""
        until = self._rests.get(notice.name)
        if until is not None and self._client.clock.now() < until:
            return until  # that the notice has changed is no reason to ask sooner
        if not isinstance(starter, Hesitant):
            return None
        try:
            why = await starter.obstacle(notice)
        except OutsideError as error:
            return self._failed(notice, error)
        if not why:
            return None
        if self._waits.get(notice.name) != why:
            self._waits[notice.name] = why
            log.info("%s: %s is not told to begin yet: %s", notice.name, notice.spec.source, why)
        return self._client.clock.now() + _LOOKS_AGAIN_AFTER

    def _failed(self, notice: MaintenanceNotice, error: OutsideError) -> datetime:
        failures = self._failures[notice.name] = self._failures.get(notice.name, 0) + 1
        log.warning("%s: telling %s to begin: %s; trying again", notice.name, notice.spec.source, error)
        told = error.retry_after if isinstance(error, CloudError) else None
        pause = max(_PAUSE.delay(failures, self._client.random), told or timedelta())
        until = self._rests[notice.name] = self._client.clock.now() + pause
        return until

    def _forget(self, name: str) -> None:
        self._failures.pop(name, None)
        self._rests.pop(name, None)
        self._waits.pop(name, None)
        self._answers = {key: answer for key, answer in self._answers.items() if key[0] != name}

    async def _write(self, notice: MaintenanceNotice, early: Early) -> None:
        basis = {"uid": notice.uid, "resourceVersion": notice.resource_version}
        patch = merge_patch({"metadata": {**basis, **early.change}})
        try:
            await self._client.patch(MAINTENANCE_NOTICES, notice.name, patch)
        except (Conflict, NotFound) as error:
            log.debug("notice %s is not as it was: %s", notice.name, error)  # the watch will tell
        else:
            log.info("%s: %s", notice.name, early.said)


async def _told(starter: Starter, notice: MaintenanceNotice, early: Early) -> Early:
    source = notice.spec.source
    try:
        await starter.begin(notice)
    except CannotMove as error:
        return answered(early, Answer.REFUSED, f"{notice.node} is empty, but {source} does not begin early: {error}")
    return answered(early, Answer.AGREED, f"{notice.node} is empty: {source} was told to begin, and agreed")
