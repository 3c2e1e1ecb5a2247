"""What a drain remembers of the pods it has seen: a value, from which the next decision is made.

    memory = Memory(started=now)
    memory = memory.ask(uid, Rung.EVICT, at=now, pace=uid).refused(uid, blocker, at=now, wait=…)

Little of it matters: a successor that starts with nothing but a `Checkpoint` asks a pod or two once more than needed,
and comes to the same end. Pods are known by their uid: another pod of the same name is another pod.

**Pace.** Pods that were refused for the same reason by the same thing (one disruption budget, an API server that cannot
be reached) share one pace: only one of them, the one that was asked longest ago, is asked again when the pace says so.
When it is accepted the next is asked at once, unless somebody watches for when that makes sense
(`haulout.drain.openings`). So twenty pods behind one budget cost the server one request now and then.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from haulout.drain.blockers import Blocker, Kind
from haulout.drain.ladder import Rung
from haulout.drain.selection import controller_of
from haulout.kube.objects import Pod

# Trouble that is not about one pod: who else would be refused by the same object, or in the same namespace.
_SHARED = (Kind.BUDGET, Kind.API, Kind.NAMESPACE, Kind.THROTTLING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a successor needs to go on where a drain stood."""

    started: datetime
    since: Mapping[str, datetime] = field(default_factory=dict)  # by uid: when its turn to leave or be detached came
    gone: int = 0
    percent: int = 0
    is_drained: bool = False  # the node was empty: its volumes are not waited for again


@dataclass(frozen=True, slots=True)
class Pace:
    """When one of several pods that are refused alike is asked again."""

    refusals: int  # in a row
    next_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What is known of one pod."""

    uid: str
    owner: str
    seen_at: datetime
    generation: int = 0  # 0: there from the beginning; 1: came later; 2: came after one that came later was told to go
    counted: bool = False  # it was to leave at some time
    since: datetime | None = None  # when its turn to leave came
    asks: int = 0
    asked_at: datetime | None = None
    asking: Rung | None = None  # a request is under way
    pace: str = ""  # in which it was made
    requested_at: datetime | None = None  # when its EvictionRequest was last sent
    unrequestable: str = ""  # why it cannot be asked by one
    accepted_at: datetime | None = None
    told: Rung | None = None  # by what it was told to go
    blocker: Blocker | None = None  # why it was refused the last time
    blocked_since: datetime | None = None
    is_doubtful: bool = False  # the server said that there is no such pod

    def shifted(self, by: timedelta, *, is_inherited: bool) -> "Trace":
        """Return it after the wall clock was set by so much."""
        return replace(
            self,
            seen_at=self.seen_at + by,
            since=self.since if is_inherited else _later(self.since, by),
            asked_at=_later(self.asked_at, by),
            requested_at=_later(self.requested_at, by),
            accepted_at=_later(self.accepted_at, by),
            blocked_since=_later(self.blocked_since, by),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What is known of all pods, by uid."""

    started: datetime
    begun: bool = False  # the pods were looked through, and none forbade the drain
    traces: Mapping[str, Trace] = field(default_factory=dict)
    paces: Mapping[str, Pace] = field(default_factory=dict)
    inherited: Checkpoint | None = None
    percent: int = 0
    verified_at: datetime | None = None  # when a list last confirmed what is there
    verifications: int = 0  # in a row, that changed nothing
    detaching_since: datetime | None = None  # when the drain began to wait for volumes
    is_detached: bool = False  # nobody waits for volumes any more
    left_attached: str = ""  # what is to be said of volumes that were given up

    @classmethod
    def resume(cls, checkpoint: Checkpoint) -> "Memory":
        """Return the memory of one who goes on from there."""
        return cls(
            started=checkpoint.started,
            inherited=checkpoint,
            percent=checkpoint.percent,
            is_detached=checkpoint.is_drained,
        )

    @property
    def asking(self) -> int:
        """How many requests are under way."""
        return sum(trace.asking is not None for trace in self.traces.values())

    @property
    def gone_before(self) -> int:
        """How many pods went in a predecessor's time."""
        return 0 if self.inherited is None else self.inherited.gone

    def seeing(self, pods: Iterable[Pod], *, now: datetime) -> "Memory":
        """Return it with a trace for each of the pods."""
        new = [pod for pod in pods if pod.uid not in self.traces]
        if not new:
            return self
        traces = {**self.traces, **{pod.uid: self._first_trace(pod, now=now) for pod in new}}
        return replace(self, traces=traces)

    def shifted(self, by: timedelta) -> "Memory":
        """Return it after the wall clock was set by so much; what a predecessor has noted was by another clock."""
        inherited = {} if self.inherited is None else self.inherited.since
        return replace(
            self,
            started=self.started if self.inherited is not None else self.started + by,
            traces={uid: it.shifted(by, is_inherited=uid in inherited) for uid, it in self.traces.items()},
            paces={name: replace(it, next_at=it.next_at + by) for name, it in self.paces.items()},
            verified_at=_later(self.verified_at, by),
            detaching_since=_later(self.detaching_since, by),
        )

    def having(self, changed: Mapping[str, Trace]) -> "Memory":
        """Return it with some traces replaced."""
        return replace(self, traces={**self.traces, **changed}) if changed else self

    def ask(self, uid: str, rung: Rung, *, at: datetime, pace: str) -> "Memory":
        """Return it with a request under way."""
        trace = self.traces[uid]
        return self.having({uid: replace(trace, asking=rung, asks=trace.asks + 1, asked_at=at, pace=pace)})

    def accepted(self, uid: str, *, at: datetime, wait: timedelta = timedelta()) -> "Memory":
        """Return it after a pod was told to go; the next of those that wait for the same thing is due after `wait`."""
        trace = self.traces[uid]
        told = replace(
            trace,
            asking=None,
            accepted_at=at,
            told=trace.asking,
            blocker=None,
            blocked_since=None,
        )
        return replace(self.having({uid: told}), paces={**self.paces, trace.pace: Pace(0, at + wait)})

    def requested(self, uid: str, *, at: datetime, problem: str) -> "Memory":
        """Return it after an EvictionRequest was sent, or could not be, which would be the same the next time."""
        trace = self.traces[uid]
        sent = replace(trace, asking=None, requested_at=at, unrequestable=problem, blocker=None, blocked_since=None)
        return replace(self.having({uid: sent}), paces={**self.paces, trace.pace: Pace(0, at)})

    def vanished(self, uid: str, *, at: datetime, wait: timedelta) -> "Memory":
        """Return it after the server said that there is no such pod, which a list is to confirm."""
        trace = self.traces[uid]
        paces = {**self.paces, trace.pace: Pace(0, at), uid: Pace(1, at + wait)}
        lost = replace(trace, asking=None, blocker=None, blocked_since=None, is_doubtful=True)
        return replace(self.having({uid: lost}), paces=paces)

    def refused(self, uid: str, blocker: Blocker, *, at: datetime, wait: timedelta) -> "Memory":
        """Return it after a request was refused; all that wait for the same thing wait at least as long."""
        trace = self.traces[uid]
        same = trace.blocker is not None and _same(trace.blocker, blocker)
        turned_away = replace(
            trace,
            asking=None,
            blocker=blocker,
            blocked_since=trace.blocked_since if same else at,
        )
        group = _refused_pace(trace, blocker)
        pace = self.paces.get(group)
        # Of several that were refused at the same time only the first counts.
        again = pace is None or (trace.asked_at or at) >= pace.next_at
        paced = Pace((pace.refusals if pace else 0) + 1, at + wait) if again or pace is None else pace
        return replace(self.having({uid: turned_away}), paces={**self.paces, group: paced})

    def dropped(self, uid: str) -> "Memory":
        """Return it after a request was given up before it was sent."""
        trace = self.traces[uid]
        return self.having({uid: replace(trace, asking=None, asks=trace.asks - 1)})

    def refusals(self, uid: str, blocker: Blocker) -> int:
        """Return how often in a row was refused what waits for the same thing."""
        pace = self.paces.get(_refused_pace(self.traces[uid], blocker))
        return pace.refusals if pace else 0

    def hurried(self, budgets: str, *, at: datetime) -> "Memory":
        """Return it with the next pod due of those that wait for budgets whose name begins like this."""
        prefix = f"{Kind.BUDGET} {budgets}"
        due = {group: Pace(0, at) for group in self.paces if group.startswith(prefix)}
        return replace(self, paces={**self.paces, **due}) if due else self

    def verified(self, *, at: datetime) -> "Memory":
        """Return it after a list confirmed what is there."""
        sure = {uid: replace(it, is_doubtful=False) for uid, it in self.traces.items() if it.is_doubtful}
        return replace(self.having(sure), verified_at=at, verifications=self.verifications + 1)

    def without_volumes(self) -> "Memory":
        """Return it after pods came to a node whose volumes were waited for: that begins anew when they have left."""
        inherited = self.inherited
        if inherited is not None:
            inherited = replace(inherited, since={uid: at for uid, at in inherited.since.items() if uid in self.traces})
        return replace(self, inherited=inherited, detaching_since=None, is_detached=False, left_attached="")

    def _first_trace(self, pod: Pod, *, now: datetime) -> Trace:
        owner = owner_of(pod)
        since = None if self.inherited is None else self.inherited.since.get(pod.uid)
        created = pod.metadata.creation_timestamp
        # Whoever takes over a drain has not seen the beginning: then the pods themselves tell how old they are.
        was_there = not self.begun and (since is not None or created is None or created <= self.started)
        generation = 0 if was_there else 1 + max((it.generation for it in self._told_before(owner, now)), default=0)
        return Trace(uid=pod.uid, owner=owner, seen_at=now, generation=generation, since=since)

    def _told_before(self, owner: str, now: datetime) -> list[Trace]:
        return [
            it
            for it in self.traces.values()
            if it.owner == owner and it.accepted_at is not None and it.accepted_at <= now
        ]


def owner_of(pod: Pod) -> str:
    """Return who makes pods like this one, so that its successor can be told; a pod without owner is its own."""
    owner = controller_of(pod)
    return pod.key if owner is None else owner.uid or f"{owner.kind} {pod.namespace}/{owner.name}"


def pace_of(trace: Trace) -> str:
    """Return the name of the pace of a pod: shared by those that wait for the same thing."""
    blocker = trace.blocker
    if blocker is None:
        return trace.uid
    if blocker.kind in _SHARED and (blocker.object or blocker.kind is Kind.THROTTLING):
        return f"{blocker.kind} {blocker.object}"
    if blocker.kind is Kind.PERMISSION:
        return f"{blocker.kind} {blocker.pod.partition('/')[0]}"
    return trace.uid


def budget_of(pace: str) -> str:
    """Return the budget, as blockers name it, for which the pods of a pace wait; empty if it is something else."""
    kind, _, name = pace.partition(" ")
    return name if kind == Kind.BUDGET else ""


def _refused_pace(trace: Trace, blocker: Blocker) -> str:
    """Return the pace of a pod whose request was refused; no budget has a say in a deletion, so that has its own."""
    is_deletion = trace.asking in (Rung.DELETE, Rung.KILL)
    return trace.pace if is_deletion else pace_of(replace(trace, blocker=blocker))


def _same(one: Blocker, other: Blocker) -> bool:
    return (one.kind, one.object) == (other.kind, other.object)


def _later(instant: datetime | None, by: timedelta) -> datetime | None:
    return None if instant is None else instant + by
