"""What must come about in time: convergence, answers to events, deadlines that are told of, and the legacy of the dead.

Time passes also without writes: each judge looks at the end of the history once more.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.store import Write
from support.invariants.checking import Invariant, Judge, State, Violation
from support.invariants.reading import Predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class Converges(Invariant):
    """Once faults stop, all is as it should be within some time, and stays so.

    `should` says what is not yet as it should be, empty if nothing; it is asked after each write to one of `of`.
    """

    asks_who: ClassVar[bool] = False
    should: Callable[[State], str]
    of: frozenset[str]
    after: datetime  # when faults stopped
    within: timedelta

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that matter to it."""
        return self.of

    def begin(self) -> Judge:
        """Return a judge."""
        return _ConvergenceJudge(self)


class _ConvergenceJudge(Judge):
    def __init__(self, rule: Converges) -> None:
        self._rule = rule
        self._due = rule.after + rule.within
        self._wrong = ""  # until now
        self._is_late = False

    def see(self, write: Write, state: State) -> Iterator[Violation]:
        was_wrong, self._wrong = self._wrong, self._rule.should(state)
        if write.at <= self._due:
            return
        if was_wrong:
            yield from self._late(write.at, was_wrong)
        elif self._wrong:
            self._is_late = True  # and no more is said of it
            what = f"it did not stay so: {self._wrong}"
            yield Violation(revision=write.revision, at=write.at, who=write.who, what=what)

    def end(self, at: datetime, state: State) -> Iterator[Violation]:
        wrong = self._rule.should(state)
        if wrong and at >= self._due:
            yield from self._late(at, wrong)

    def _late(self, at: datetime, wrong: str) -> Iterator[Violation]:
        if not self._is_late:
            self._is_late = True
            what = f"not within {self._rule.within} after faults stopped: {wrong}"
            yield Violation(revision=0, at=at, who="", what=what)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An event that a cloud delivered."""

    at: datetime
    event: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsBecomeObjects(Invariant):
    """Every event that a cloud delivers is an object of kind `plural` within some seconds; `event` tells which."""

    asks_who: ClassVar[bool] = False
    deliveries: Sequence[Delivery]
    plural: str
    event: Callable[[JsonObject], str]
    within: timedelta = timedelta(seconds=10)

    @property
    def kinds(self) -> frozenset[str]:
        """The kind of the objects."""
        return frozenset({self.plural})

    def begin(self) -> Judge:
        """Return a judge."""
        return _DeliveryJudge(self)


class _DeliveryJudge(Judge):
    def __init__(self, rule: EventsBecomeObjects) -> None:
        self._rule = rule
        self._seen_at: dict[str, datetime] = {}

    def see(self, write: Write, state: State) -> tuple[Violation, ...]:
        del state
        if write.after is not None:
            self._seen_at.setdefault(self._rule.event(write.after), write.at)
        return ()

    def end(self, at: datetime, state: State) -> Iterator[Violation]:
        del state
        for delivery in self._rule.deliveries:
            took = self._seen_at.get(delivery.event, at) - delivery.at
            if took > self._rule.within:
                lacking = "" if delivery.event in self._seen_at else " and still is none"
                what = f"event {delivery.event} was no object within {self._rule.within}{lacking}"
                yield Violation(revision=0, at=delivery.at + self._rule.within, who="", what=what)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinesTold(Invariant):
    """A deadline that cannot be met is said before it passes."""

    asks_who: ClassVar[bool] = False
    plural: str
    deadline: Callable[[JsonObject], datetime | None]
    is_met: Predicate
    is_told: Predicate  # the object says that its deadline will be missed

    @property
    def kinds(self) -> frozenset[str]:
        """The kind of the objects that have deadlines."""
        return frozenset({self.plural})

    def begin(self) -> Judge:
        """Return a judge."""
        return _DeadlineJudge(self)


class _DeadlineJudge(Judge):
    def __init__(self, rule: DeadlinesTold) -> None:
        self._rule = rule
        self._blamed: set[tuple[str, datetime]] = set()

    def see(self, write: Write, state: State) -> Iterator[Violation]:
        del state
        yield from self._missed(write.key, write.before, write.at)

    def end(self, at: datetime, state: State) -> Iterator[Violation]:
        for key, obj in sorted(state.all(self._rule.plural).items()):
            yield from self._missed(key, obj, at)

    def _missed(self, key: str, obj: JsonObject | None, at: datetime) -> Iterator[Violation]:
        """Yield if the deadline passed while the object was as `obj` shows it."""
        due = self._rule.deadline(obj) if obj is not None else None
        if obj is None or due is None or at < due or (key, due) in self._blamed:
            return
        if not self._rule.is_met(obj) and not self._rule.is_told(obj):
            self._blamed.add((key, due))
            what = f"the deadline of {key} passed, and nothing was said before"
            yield Violation(revision=0, at=due, who="", what=what)


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A process that ended without a word."""

    who: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadHoldNothing(Invariant):
    """What a dead process held (slots, cordons, locks) is free or taken over within its lease time.

    `holders` has, for each kind, who holds an object of it.
    """

    asks_who: ClassVar[bool] = False
    deaths: Sequence[Death]
    holders: Mapping[str, Callable[[JsonObject], Collection[str]]]
    lease: timedelta

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of what can be held."""
        return frozenset(self.holders)

    def begin(self) -> Judge:
        """Return a judge."""
        return _LegacyJudge(self)


class _LegacyJudge(Judge):
    def __init__(self, rule: DeadHoldNothing) -> None:
        self._rule = rule
        self._blamed: set[tuple[str, str, str]] = set()

    def see(self, write: Write, state: State) -> Iterator[Violation]:
        del state
        if write.before is not None:
            yield from self._held(write.kind.plural, write.key, write.before, write.at)

    def end(self, at: datetime, state: State) -> Iterator[Violation]:
        for plural in sorted(self._rule.holders):
            for key, obj in sorted(state.all(plural).items()):
                yield from self._held(plural, key, obj, at)

    def _held(self, plural: str, key: str, obj: JsonObject, at: datetime) -> Iterator[Violation]:
        """Yield if the object was, as `obj` shows it until `at`, held by a dead process for too long."""
        held_by = self._rule.holders[plural](obj)
        for death in self._rule.deaths:
            due = death.at + self._rule.lease
            if at <= due or death.who not in held_by or (plural, key, death.who) in self._blamed:
                continue
            self._blamed.add((plural, key, death.who))
            what = f"{plural} {key} is still held by {death.who}, which died at {death.at:%H:%M:%S}"
            yield Violation(revision=0, at=due, who=death.who, what=what)
