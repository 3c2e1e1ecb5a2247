"""Keeps instances that Auto Scaling is about to terminate until their nodes are empty, and then lets them go.

A node is empty if its condition `Drained` says so, or if it is cordoned and nothing is left that a drain would make
leave: it does not matter who drained it.

All that is needed for it stands in the annotations of the notice: the group, the hook and the token. So whoever takes
over goes on. A notice that has begun (`Started`) is one that Auto Scaling was told to go on with; if we are stopped
between telling and writing, Auto Scaling is told again, and says that it has no such action any more.
"""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.errors import CloudError, KubeError
from haulout.kinds.notice import MaintenanceNotice, Stage
from haulout.kinds.reports import Report
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.notices.occupancy import drained_at
from haulout.notices.sources.aws.cloud import AutoScaling, explained
from haulout.notices.sources.aws.desk import Desk
from haulout.notices.sources.aws.fleet import Fleet, is_empty
from haulout.notices.sources.aws.identities import Identities
from haulout.notices.sources.aws.readings import BY_HOOK, GROUP, HOOK, SOURCE, Family, instance_of
from haulout.notices.sources.calls import Patient, answered

log = logging.getLogger(__name__)

_AFTER_TROUBLE = timedelta(seconds=5)
_WHILE_DRAINING = timedelta(seconds=5)
_USUAL_PATIENCE = timedelta(minutes=2)
_UNKNOWN_ACTION = "ValidationError"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often Auto Scaling is asked to wait, for how long, and how long after the drain it may go on."""

    heartbeat: timedelta | None = None  # None: as often as the hook needs it
    until: timedelta = timedelta(hours=48)
    complete_after: timedelta = timedelta()


class Lifecycles:
    """Sees to lifecycle actions."""

    def __init__(
        self,
        groups: AutoScaling,
        *,
        client: Client,
        patient: Patient,
        fleet: Fleet,
        identities: Identities,
        pace: Pace,
    ) -> None:
        self.trouble = ""
        self._groups = groups
        self._client = client
        self._clock = client.clock
        self._patient = patient
        self._fleet = fleet
        self._identities = identities
        self._pace = pace
        self._wake = asyncio.Event()
        self._instances: set[str] = set()  # whose nodes are watched
        self._beats: dict[str, datetime] = {}  # by name of the notice: when to ask for more time
        self._empty_since: dict[str, datetime] = {}  # by uid of the node
        self._hooks: dict[tuple[str, str], timedelta] = {}

    def wake(self) -> None:
        """Have a look: there may be a new notice."""
        self._wake.set()

    def note_node(self, old: Node | None, new: Node | None) -> None:
        """Have a look if it is about a node that is waited for."""
        if any(it is not None and self._may_be_waited_for(it) for it in (old, new)):
            self._wake.set()

    def _may_be_waited_for(self, node: Node) -> bool:
        return bool(self._instances) and (
            not node.spec.provider_id or instance_of(node.spec.provider_id) in self._instances
        )

    async def run(self, desk: Desk) -> None:
        """See to them until cancelled."""
        while True:
            self._wake.clear()
            next_look = await self._see_to_all(desk)
            alarm = next_look and self._clock.call_at(next_look, self._wake.set, set_back=self._wake.set)
            await self._wake.wait()
            if alarm:
                alarm.cancel()

    async def complete(self, instance: str, *, group: str, hook: str, token: str) -> None:
        """Let Auto Scaling go on; that it has gone on already is fine."""
        try:
            await self._patient.ask(
                lambda: self._groups.complete(instance, group=group, hook=hook, token=token),
                doing=f"completing the lifecycle action for {instance}",
            )
        except CloudError as error:
            if error.code != _UNKNOWN_ACTION:
                raise
            log.info("aws: Auto Scaling has gone on with %s already: %s", instance, error)

    async def _see_to_all(self, desk: Desk) -> datetime | None:
        """Return when to look again; None: when somebody wakes us."""
        waiting = [(instance, it) for instance, it in desk.open() if _is_waiting(it)]
        self._instances = {instance for instance, _ in waiting}
        self._beats = {it.name: self._beats[it.name] for _, it in waiting if it.name in self._beats}
        looks: list[datetime | None] = []
        trouble = ""
        for instance, notice in waiting:
            try:
                looks.append(await self._see_to(desk, instance, notice))
            except (CloudError, KubeError) as error:
                said = explained(error) if isinstance(error, CloudError) else str(error)
                trouble = f"aws: Auto Scaling group {notice.metadata.annotations[GROUP]} is tried again: {said}"
                log.warning("%s", trouble)
                looks.append(self._clock.now() + _AFTER_TROUBLE)
        self.trouble = trouble
        return min((it for it in looks if it is not None), default=None)

    async def _see_to(self, desk: Desk, instance: str, notice: MaintenanceNotice) -> datetime | None:
        """Return when to look again; None: it is done."""
        now = self._clock.now()
        await self._identities.of(instance, notice)  # an instance that has no node is let go at once
        nodes = tuple(self._fleet.nodes(instance))
        goes_on_at = await self._goes_on_at(nodes, now)
        if goes_on_at is not None and goes_on_at <= now:
            await self.complete(instance, **_action(notice))
        elif await self._is_kept(instance, notice):
            is_draining = any(it.spec.unschedulable for it in nodes)
            looks = (self._beats[notice.name], goes_on_at, now + _WHILE_DRAINING if is_draining else None)
            return min(it for it in looks if it is not None)
        await desk.report(_goes(instance, notice, at=self._clock.now()))
        return None

    async def _goes_on_at(self, nodes: Collection[Node], now: datetime) -> datetime | None:
        """Return when the instance may go: when all nodes on it are empty, and at once if there is none."""
        empty = [await self._emptied_at(it, now) for it in nodes]
        known = [it for it in empty if it is not None]
        if len(known) < len(empty):
            return None
        return max((it + self._pace.complete_after for it in known), default=now)

    async def _emptied_at(self, node: Node, now: datetime) -> datetime | None:
        drained = drained_at(node)
        if drained is not None:
            return drained
        if await is_empty(self._client, node):
            return self._empty_since.setdefault(node.uid, now)
        self._empty_since.pop(node.uid, None)
        return None

    async def _is_kept(self, instance: str, notice: MaintenanceNotice) -> bool:
        """Ask for more time if it is time to; return whether Auto Scaling still waits."""
        now = self._clock.now()
        if now < self._beats.get(notice.name, now):
            return True
        action = _action(notice)
        self._beats[notice.name] = now + await self._interval(action["group"], action["hook"])
        received = notice.metadata.creation_timestamp or now  # not what the message says: it may have waited for hours
        if now >= received + self._pace.until:
            return True
        doing = f"asking Auto Scaling to wait for {instance}"
        try:
            await answered(self._groups.heartbeat(instance, **action), doing=doing)
        except CloudError as error:
            if error.code == _UNKNOWN_ACTION:
                log.warning("aws: %s: it does not wait any more: %s", doing, error)
                return False
            del self._beats[notice.name]
            raise
        return True

    async def _interval(self, group: str, hook: str) -> timedelta:
        if self._pace.heartbeat is not None:
            return self._pace.heartbeat
        if (group, hook) not in self._hooks:
            doing = f"asking how long Auto Scaling group {group} waits"
            try:
                asked = await answered(self._groups.patience(group=group, hook=hook), doing=doing)
            except CloudError as error:
                log.info("aws: %s: %s", doing, error)
                return _USUAL_PATIENCE / 2
            self._hooks[group, hook] = asked or _USUAL_PATIENCE
        return self._hooks[group, hook] / 2


def _action(notice: MaintenanceNotice) -> dict[str, str]:
    notes = notice.metadata.annotations
    token = notes[Family.LIFECYCLE]
    return {"group": notes[GROUP], "hook": notes[HOOK], "token": "" if token.startswith(BY_HOOK) else token}


def _goes(instance: str, notice: MaintenanceNotice, *, at: datetime) -> Report:
    return Report(source=SOURCE, notice_id=notice.spec.notice_id, at=at, provider_id=instance, stage=Stage.STARTED)


def _is_waiting(notice: MaintenanceNotice) -> bool:
    notes = notice.metadata.annotations
    return notice.spec.stage == Stage.SCHEDULED and all(key in notes for key in (Family.LIFECYCLE, GROUP, HOOK))
