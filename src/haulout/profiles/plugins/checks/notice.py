"""The check `notice`."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from haulout.kinds.notice import Kind, MaintenanceNotice, Phase, Spec
from haulout.kinds.standing import LEAD, Standing, standing
from haulout.profiles import topics
from haulout.profiles.options import option
from haulout.profiles.plugin import Check, Need, Scene, Verdict, fails, passes

_DRAINED = tuple(kind for kind in Kind if kind is not Kind.FREEZE)


class When(StrEnum):
    """What is looked for."""

    DUE = "due"
    ACTIVE = "active"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class _Seen:
    notice: MaintenanceNotice
    standing: Standing
    is_pressing: bool

    def __str__(self) -> str:
        said = self.notice.spec
        about = f"{said.kind} ({said.reason})" if said.reason else said.kind
        return f"{about}, notice {self.notice.name}: {self.standing.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(Check):
    """Passes if a maintenance that somebody announced for the node is due, has begun, or is over.

    Clouds, people and other tools announce maintenance by MaintenanceNotices: `kubectl get mn` lists them.

    - `due`: one is less than `leadTime` away, or has begun. If emptying the node has taken longer than that before, it
      is due that much earlier.
    - `active`: one has begun, and is not over.
    - `over`: none is due or has begun, nor is one so near that the profile takes the node out of service for it,
      whatever the `leadTime` here is: what a profile took it does not give back only to take it again. A maintenance
      that was cancelled, and one whose notice was deleted, is over; one that its source calls failed is not, until a
      person says so.

    A node of which nobody announced anything has nothing due, and all is over.
    """

    type = "notice"
    example = "when: due\nleadTime: 15m\nkinds: [Reboot, Stop, Terminate]"
    needs = frozenset({Need.NOTICES})

    when: When = option("What is looked for: `due`, `active` or `over`.", default=When.DUE)
    lead_time: timedelta = option("How long before its start a maintenance is due.", default=LEAD)
    kinds: tuple[Kind, ...] = option(
        "What may happen to the machine: Reboot, Stop, Migrate, Terminate, Freeze, Unknown. Others are ignored; by "
        "default Freeze is, which takes seconds.",
        default=_DRAINED,
    )
    sources: tuple[str, ...] = option("Only notices of these sources, such as oci or aws. By default all.", default=())

    def look(self, scene: Scene) -> Verdict:
        """Return the verdict."""
        seen = sorted(self._seen(scene), key=lambda it: it.notice.name)
        wakes_at = min((it.standing.until for it in seen if it.standing.until), default=None)
        told = {it.notice.name: str(it.standing.phase) for it in seen}
        wanted = [it for it in seen if it.is_pressing]
        if self.when is When.OVER:
            if wanted:
                return fails(_said(wanted), wakes_at=wakes_at, notices=told)
            return passes("no maintenance is due or has begun", wakes_at=wakes_at, notices=told)
        if wanted:
            return passes(_said(wanted), wakes_at=wakes_at, notices=told)
        others = [it for it in seen if not it.standing.phase.is_over]
        return fails(_said(others) or "nothing is announced", wakes_at=wakes_at, notices=told)

    def sees(self, notice: MaintenanceNotice, *, now: datetime) -> bool:
        """Tell whether a maintenance is what it looks for: due, begun, or for `over` either."""
        return self._read(notice, now=now).is_pressing

    def topics(self, node: str) -> tuple[str, ...]:
        """Return what wakes the node."""
        return (topics.notices(node),)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what makes no sense."""
        if self.lead_time < timedelta():
            yield "leadTime", "expected a duration that is not negative"
        if not self.kinds:
            yield "kinds", "expected at least one kind, such as Reboot"

    def _seen(self, scene: Scene) -> Iterator[_Seen]:
        for notice in scene.sights.notices(scene.node.name):
            if not notice.fits(scene.node):
                continue
            found = self._read(notice, now=scene.now)
            if self.when is When.OVER and not found.is_pressing:
                found = self._kept(found, scene)
            if found.is_pressing or self._means(notice.spec):
                yield found

    def _kept(self, found: _Seen, scene: Scene) -> _Seen:
        """Return a maintenance as those see it that took the node for it, if they did."""
        seen: list[_Seen] = []

        def says(check: Check) -> bool | None:
            if not isinstance(check, Notice) or check.when is When.OVER:
                return None
            seen.append(check._read(found.notice, now=scene.now))  # noqa: SLF001 - of one of its own kind
            return seen[-1].is_pressing

        if scene.leads_here(says):
            return next(it for it in seen if it.is_pressing)
        until = min((it.standing.until for it in (found, *seen) if it.standing.until), default=None)
        return replace(found, standing=replace(found.standing, until=until))

    def _read(self, notice: MaintenanceNotice, *, now: datetime) -> _Seen:
        """Return how a maintenance stands, and whether it is what this looks for."""
        lead = max(self.lead_time, timedelta(seconds=notice.status.predicted_drain_seconds))
        found = standing(notice.spec, now=now, lead=lead)
        pressing = (Phase.ACTIVE,) if self.when is When.ACTIVE else (Phase.DUE, Phase.ACTIVE)
        return _Seen(notice, found, is_pressing=found.phase in pressing and self._means(notice.spec))

    def _means(self, spec: Spec) -> bool:
        return spec.kind in self.kinds and (not self.sources or spec.source in self.sources)


def _said(seen: list[_Seen]) -> str:
    return "; ".join(map(str, seen))
