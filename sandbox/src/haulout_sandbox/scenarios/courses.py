"""What clouds do to machines: a maintenance from its announcement to its end, and instances that are taken away.

    course = Course(cluster, fleet, member, kind="Reboot", event=event, lasts=…)
    await course.run(say)

The machine really goes away, whether its node is empty or not: nobody asks the cluster. What is planned for one that
is ended before, by whoever replaces it, is dropped. When a maintenance begins is
what its cloud says at that moment, for whoever listens to the cloud may ask it for another time.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from haulout.kube.objects import RawObject
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.scenarios.deeds import Say
from haulout_sandbox.scenarios.fleet import Fleet, Member
from haulout_sandbox.scenarios.providers import Provider

_LOOKS_EVERY = timedelta(seconds=10)  # for a time that somebody else asked for
_NOUNS = {"Reboot": "reboot", "Stop": "stop", "Terminate": "end", "Migrate": "migration", "Freeze": "freeze"}
_VERBS = {"Reboot": "reboots", "Stop": "stops", "Terminate": "terminates", "Migrate": "migrates", "Freeze": "freezes"}


class Stage(StrEnum):
    """How far a maintenance is."""

    PLANNED = "planned"
    BEGUN = "begun"
    OVER = "over"


@dataclass(slots=True)
class Course:
    """One maintenance of one machine."""

    cluster: Cluster
    fleet: Fleet
    member: Member
    kind: str
    event: str
    lasts: timedelta
    stage: Stage = Stage.PLANNED
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def what(self) -> str:
        """What it is, for people."""
        return f"the {_NOUNS[self.kind]} of {self.member.node}"

    @property
    def provider(self) -> Provider:
        """Whose it is."""
        return self.fleet.provider(self.member.cloud)

    async def run(self, say: Say) -> None:
        """Let it take its course: begin and end when it is time to, unless somebody has done so before."""
        while self.stage is Stage.PLANNED and not self._is_gone and (start := self._start) > self._now():
            await self._wait_until(min(start, self._now() + _LOOKS_EVERY))
        if self.stage is Stage.PLANNED:
            say(await self.begin())
        ends_at = self._now() + self.lasts
        while self.stage is Stage.BEGUN and self._now() < ends_at:
            await self._wait_until(ends_at)
        if self.stage is Stage.BEGUN:
            say(await self.end())

    def move(self, start: datetime) -> None:
        """Have it begin at another time."""
        self._expect(Stage.PLANNED, "moved")
        self.provider.move(self.event, start=start)
        self._changed.set()

    def cancel(self) -> None:
        """Have it not take place."""
        self._expect(Stage.PLANNED, "cancelled")
        self._turn(Stage.OVER)
        self.provider.cancel(self.event)

    async def begin(self) -> str:
        """Let it begin now; return what that comes to, for people."""
        self._expect(Stage.PLANNED, "begun")
        node, title = self.member.node, self.provider.title
        if self._is_gone:
            self._turn(Stage.OVER)
            self.provider.drop(self.event)
            return f"{title} drops {self.what}, which is gone"
        self._turn(Stage.BEGUN)
        left = emptiness(self.cluster, node)
        self.provider.begin(self.event)
        match self.kind:
            case "Terminate":
                await self.fleet.remove(node)
            case "Stop":
                self.provider.stop(self.member.instance)
                self.cluster.kubelets.kill(node)
            case "Reboot" | "Freeze":
                self.cluster.kubelets.kill(node)
        return f"{title} {_VERBS[self.kind]} {node}, {left}"

    async def end(self) -> str:
        """Let it end now; return what that comes to, for people."""
        self._expect(Stage.BEGUN, "ended")
        self._turn(Stage.OVER)
        node, title = self.member.node, self.provider.title
        if self.kind == "Terminate":
            self.provider.end(self.event)
            return replaced(self.fleet, self.member)
        if not self._is_gone:
            self._bring_back(node)
        self.provider.end(self.event)
        return f"{title} is done with {node}"

    def _bring_back(self, node: str) -> None:
        match self.kind:
            case "Reboot":
                self.cluster.kubelets.reboot(node, timedelta())
            case "Stop":
                self.provider.start(self.member.instance)
                self.cluster.kubelets.reboot(node, timedelta())
            case "Freeze":
                self.cluster.kubelets.revive(node)

    @property
    def _is_gone(self) -> bool:
        return self.fleet.member(self.member.node) is None

    @property
    def _start(self) -> datetime:
        return self.provider.start_of(self.event)

    def _expect(self, stage: Stage, verb: str) -> None:
        if self.stage is not stage:
            raise ValueError(f"{self.what} is {self.stage} and cannot be {verb}")

    def _turn(self, stage: Stage) -> None:
        self.stage = stage
        self._changed.set()

    async def _wait_until(self, instant: datetime) -> None:
        """Wait for an instant, or for a change."""
        self._changed.clear()
        alarm = self.cluster.clock.call_at(instant, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            alarm.cancel()

    def _now(self) -> datetime:
        return self.cluster.clock.now()


def replaced(fleet: Fleet, member: Member) -> str:
    """Bring in another machine for one that is gone; return what that comes to, for people."""
    if any(member.pool == pool.name for pool in fleet.of_machines):
        return f"{member.node} is gone for good; another comes when its Machine is deleted"
    return f"{fleet.bring(member.pool)} joins in place of {member.node}"


def emptiness(cluster: Cluster, node: str) -> str:
    """Return how much would be lost with a machine, for people."""
    left = sum(_is_lost(it) for it in cluster.api.objects("pods") if it["spec"].get("nodeName") == node)
    if not left:
        return "which is empty"
    return f"with {left} pods on it" if left > 1 else "with 1 pod on it"


def _is_lost(pod: RawObject) -> bool:
    owners = {it["kind"] for it in pod["metadata"].get("ownerReferences", ())}
    return not owners & {"DaemonSet", "Node"} and pod["status"].get("phase") not in ("Succeeded", "Failed")
