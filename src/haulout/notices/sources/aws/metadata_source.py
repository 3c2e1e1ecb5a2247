"""What EC2 tells an instance about its own maintenance, as a source of notices: for `haulout agent --cloud aws`.

    source = AwsMetadataSource(over_http(address), node="n1", clock=clock, random=random)

It asks every two seconds, as aws-node-termination-handler does: a spot instance has two minutes. What it is told meets
the notice that the operator made of the queue or of EC2, if there is one (`joining`).

What was shown and is not shown any more is over only if it was missing from all answers for some seconds. An error says
nothing. Nothing that matters is kept here: after a restart it reads the notices of its node, and goes on from there.

No boto3 and no aiohttp here, nor anything else that is big: this runs on each node.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random

from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import ApiError, CloudError, KubeError
from haulout.kinds.notice import MaintenanceNotice, Stage
from haulout.kinds.reports import Plan, Report
from haulout.notices.inbox import Inbox
from haulout.notices.sources.aws.desk import Desk
from haulout.notices.sources.aws.joining import SPOT_IS_LATE, ending, is_of, is_over
from haulout.notices.sources.aws.metadata import HISTORY, REBALANCE, SCHEDULED, SPOT, TARGET_STATE, InstanceMetadata
from haulout.notices.sources.aws.metadata_readings import (
    Read,
    Shown,
    read_events,
    read_rebalance,
    read_spot,
    read_target_state,
)
from haulout.notices.sources.aws.readings import METADATA, SOURCE, Family, Nonsense, Reading
from haulout.notices.sources.calls import Pulse
from haulout.notices.sources.fetching import Fetch
from haulout.notices.sources.quarantine import Quarantine

log = logging.getLogger(__name__)

PATHS: Mapping[Family, str] = {
    Family.SPOT: SPOT,
    Family.TARGET: TARGET_STATE,
    Family.EVENT: SCHEDULED,
    Family.REBALANCE: REBALANCE,
}
_EVERY = timedelta(seconds=2)
_MISSED_FOR = timedelta(seconds=10)
_READS_AGAIN_AFTER = timedelta(minutes=5)  # notices: somebody else may have changed or deleted one
_LONGEST_PAUSE = timedelta(minutes=1)
_PAUSE = Backoff(first=_EVERY, limit=timedelta(seconds=30), jitter=0.5)

_READS: Mapping[Family, Read] = {
    Family.SPOT: read_spot,
    Family.REBALANCE: read_rebalance,
    Family.TARGET: read_target_state,
    Family.EVENT: read_events,
}


class AwsMetadataSource:
    """Maintenance of the instance that a node runs on; `families` are what it asks for."""

    name = SOURCE

    def __init__(
        self,
        fetch: Fetch,
        *,
        node: str,
        clock: Clock,
        random: Random,
        families: Sequence[Family] = tuple(PATHS),
        drains_for_network: bool = False,
    ) -> None:
        self.quarantine = Quarantine(SOURCE, clock)
        self.taken = 0
        self._metadata = InstanceMetadata(fetch, clock=clock)
        self._node = node
        self._families = families
        self._drains_for_network = drains_for_network
        self._clock = clock
        self._random = random
        self._pulse = Pulse(clock)
        self._instance = ""
        self._desk: Desk | None = None
        self._read_at: float | None = None  # the notices; None: not yet
        self._names: frozenset[str] = frozenset()  # of the notices that there were then
        self._told: dict[tuple[Family, str], tuple[Stage, Plan | None]] = {}  # what notices say already
        self._missed: dict[str, float] = {}  # by name of the notice: since when it is not shown
        self._trouble = ""

    @property
    def is_up(self) -> bool:
        """Tell whether it hears what EC2 says."""
        return not self._trouble and self._pulse.ago() is not None

    def troubles(self) -> Sequence[str]:
        """Return what keeps it from its work, and what makes no sense."""
        return (*([self._trouble] if self._trouble else ()), *self.quarantine.troubles())

    def silence(self) -> timedelta | None:
        """Return how long ago the metadata service last answered."""
        return self._pulse.ago()

    async def run(self, inbox: Inbox) -> None:
        """Report what EC2 says, until cancelled."""
        failures = 0
        while True:
            try:
                await self.look(inbox)
            except (CloudError, KubeError) as error:
                failures += 1
                self._complain(error)
                asked_for = error.retry_after if isinstance(error, CloudError | ApiError) else None
                pause = max(_PAUSE.delay(failures, self._random), asked_for or timedelta())
                await self._clock.sleep(min(pause, _LONGEST_PAUSE))
            else:
                if self._trouble:
                    log.info("aws: all is well again", extra={"node": self._node})
                failures, self._trouble = 0, ""
                await self._clock.sleep(_EVERY)

    async def look(self, inbox: Inbox) -> None:
        """Ask once, and have notices say the same; raises `CloudError` or `KubeError`."""
        if not self._instance:
            self._instance = await self._metadata.instance()
            log.info("aws: this is instance %s", self._instance, extra={"node": self._node})
        desk = await self._refreshed(inbox)
        refused: CloudError | KubeError | None = None
        for family in self._families:
            try:
                await self._look_at(desk, family)
            except (CloudError, KubeError) as error:
                if isinstance(error, CloudError) and not error.status:
                    raise  # the others would not be answered either
                refused = error
        if refused is not None:
            raise refused

    async def _look_at(self, desk: Desk, family: Family) -> None:
        shown = await self._read(PATHS[family], _READS[family])
        self._pulse.beat()
        await self._take(desk, shown.readings)
        if not shown.nonsense:  # otherwise it may be what cannot be read that seems to be missing
            await self._settle(desk, family, {it.called for it in shown.readings})

    # What is shown

    async def _read(self, path: str, read: Read) -> Shown:
        """Return what the service shows, and put aside what makes no sense."""
        body = await self._metadata.get(path)
        if body is None:
            return Shown()
        try:
            shown = read(body, instance=self._instance, at=self._clock.now())
        except Nonsense as problem:
            shown = Shown(nonsense=(str(problem),))
        for why in shown.nonsense:
            self.quarantine.put(where=path, why=why, what=body.decode("utf-8", "replace"))
        return shown

    # What becomes of it

    async def _refreshed(self, inbox: Inbox) -> Desk:
        if self._desk is None:
            self._desk = Desk(
                inbox,
                hears=self._count,
                quarantine=self.quarantine,
                node_of=lambda _: self._node,
                node=self._node,
                drains_for_network=self._drains_for_network,
            )
        now = self._clock.monotonic()
        if self._read_at is None or now - self._read_at > _READS_AGAIN_AFTER.total_seconds():
            await self._desk.refresh()
            names = frozenset(it.name for it in self._desk.of(self._instance))
            if self._names - names:
                self._told.clear()  # somebody has deleted what may still be planned
            self._read_at, self._names = now, names
        return self._desk

    async def _take(self, desk: Desk, readings: Sequence[Reading]) -> None:
        """Have notices say what is shown for the first time, or is not as it was shown before.

        What is shown again is no news: EC2 may have told the operator of another start meanwhile, which this service
        shows some minutes later.
        """
        for reading in readings:
            key, said = (reading.family, reading.called), (reading.stage, reading.plan)
            if self._told.get(key) != said:
                await desk.take([reading])
                self._told[key] = said
                self._names |= {it.name for it in desk.of(self._instance)}

    async def _settle(self, desk: Desk, family: Family, shown: set[str]) -> None:
        """End what was shown, and has not been for a while."""
        now = self._clock.monotonic()
        for notice in self._open(desk, family):
            if (family is not Family.EVENT and shown) or notice.metadata.annotations[family] in shown:
                self._missed.pop(notice.name, None)
            elif now - self._missed.setdefault(notice.name, now) >= _MISSED_FOR.total_seconds():
                await self._end(desk, family, notice)

    def _open(self, desk: Desk, family: Family) -> Iterator[MaintenanceNotice]:
        for notice in desk.of(self._instance):
            if is_of(notice, family) and METADATA in notice.metadata.annotations and not is_over(notice):
                yield notice

    async def _end(self, desk: Desk, family: Family, notice: MaintenanceNotice) -> None:
        at = self._clock.now()
        stage = await self._event_ending(notice, at) if family is Family.EVENT else _ending(family, notice, at)
        if stage is None:
            return
        log.info("aws: %s is not shown any more: %s", notice.name, stage, extra={"node": self._node})
        await desk.report(
            Report(source=SOURCE, notice_id=notice.spec.notice_id, at=at, provider_id=self._instance, stage=stage)
        )
        self._told = {key: said for key, said in self._told.items() if key[0] is not family}
        self._missed.pop(notice.name, None)

    async def _event_ending(self, notice: MaintenanceNotice, at: datetime) -> Stage:
        """Return how a scheduled event ended: as its history says, or else by its start."""
        found = await self._read(HISTORY, read_events)
        called = notice.metadata.annotations[Family.EVENT]
        said = [it.stage for it in found.readings if it.called == called and it.stage in (Stage.ENDED, Stage.CANCELLED)]
        return said[0] if said else ending(notice.spec.start, at)

    def _count(self) -> None:
        self.taken += 1

    def _complain(self, error: CloudError | KubeError) -> None:
        whose = "the metadata service" if isinstance(error, CloudError) else "notices cannot be read or written"
        does = " does not answer" if isinstance(error, CloudError) else ""
        trouble = f"aws: {whose}{does}, which is tried again: {error}"
        if trouble != self._trouble:
            log.warning("%s", trouble, extra={"node": self._node})
        self._trouble = trouble


def _ending(family: Family, notice: MaintenanceNotice, at: datetime) -> Stage | None:
    """Return how something ended that is shown no more; None if it is too early to tell.

    A spot instance is often taken back some time after the announced moment, so that a notice ends well after it.
    """
    start = notice.spec.start
    if family is Family.SPOT and start is not None and at >= start:
        return Stage.ENDED if at >= start + SPOT_IS_LATE else None
    return Stage.ENDED if notice.spec.stage == Stage.STARTED else Stage.CANCELLED
